"""The decoded rows of `shuffle="global"` in files: later runs, shared folders, kills and damage."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import resource
import shutil
import signal
import stat
import sys
import threading
import time
from itertools import chain
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.forked_programs import ForkedProgram
from tests.fixtures.tree import completed
from torchparquet import ParquetDataset, Shuffle

NUM_ROWS = 16_000
# The first arguments are the data and the cache. Prints whether the rows are those of the files.
PROGRAM = """
import sys
from itertools import chain
from torchparquet import ParquetDataset
dataset = ParquetDataset(sys.argv[1], batch_size=1000, shuffle="global", cache_dir=sys.argv[2])
rows = [(x, text) for b in dataset for x, text in zip(b["x"].tolist(), b["text"].to_str())]
print(sorted(rows) == [(row, "text" * (row % 5)) for row in range(len(rows))], len(rows))
"""

# Ends with an iterator at its first batch.
LEAVES = """
import faulthandler, sys
faulthandler.dump_traceback_later(90, exit=True)
from torchparquet import ParquetDataset, Shuffle
dataset = ParquetDataset(sys.argv[1], batch_size=100, shuffle=Shuffle("global", first="windows"))
batches = iter(dataset)
next(batches)
"""


def write(path: Path, num_rows: int = NUM_ROWS, row_group: int = 2000) -> Path:
    wide = np.repeat(np.arange(num_rows, dtype=np.float32), 64)
    columns: dict[str, Any] = {
        "x": np.arange(num_rows),
        "wide": pa.FixedSizeListArray.from_arrays(pa.array(wide), 64),
        "text": ["text" * (row % 5) for row in range(num_rows)],
    }
    pq.write_table(pa.table(columns), path, row_group_size=row_group, compression="none")
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(tmp_path / "data.parquet")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def check(data: Any, cache: Path, num_rows: int = NUM_ROWS, **options: Any) -> list[Path]:
    """Check an epoch against the files; return the pieces, of which nothing is left but files."""
    dataset = ParquetDataset(data, batch_size=999, shuffle="global", cache_dir=cache, **options)
    rows = []
    for batch in dataset:
        rows.append(batch["x"].tolist())
        assert batch["wide"].equal(batch["x"].float()[:, None].expand(-1, 64))
        assert batch["text"].to_str() == ["text" * (row % 5) for row in rows[-1]]
    assert sorted(chain(*rows)) == list(range(num_rows))
    assert rows != sorted(rows)
    return pieces_in(cache)


def pieces_in(cache: Path) -> list[Path]:
    files = sorted(path for path in (cache / "rows").rglob("*") if path.is_file())
    assert all(path.suffix == ".rows" for path in files), files
    return files


def program(data: Path, cache: Path, before: str = "") -> ForkedProgram:
    return ForkedProgram(before + PROGRAM, data, cache)


def stamps(pieces: list[Path]) -> list[tuple[int, int]]:
    return [(path.stat().st_ino, path.stat().st_mtime_ns) for path in pieces]


def erase_values(data: Path) -> None:
    """Leave of a file its footer alone."""
    status, content = data.stat(), data.read_bytes()
    footer_bytes = int.from_bytes(content[-8:-4], "little") + 8
    data.write_bytes(bytes(len(content) - footer_bytes) + content[-footer_bytes:])
    os.utime(data, ns=(status.st_atime_ns, status.st_mtime_ns))


def wait_for_pass() -> None:
    """Wait until no thread fills a store beside an epoch."""
    for thread in threading.enumerate():
        if thread.name == "torchparquet-store":
            thread.join()


def test_a_later_run_reads_no_value_of_the_files(data: Path, cache: Path) -> None:
    pieces = check(data, cache)
    assert len(pieces) > 2
    before = stamps(pieces)
    erase_values(data)
    assert stamps(check(data, cache)) == before
    process = program(data, cache)
    assert process.communicate()[0] == f"True {NUM_ROWS}\n"


def evict(pieces: list[Path]) -> None:
    """Drop pieces from memory: from the maps of this process, then from the page cache."""
    libc, dont_need = ctypes.CDLL(None), 4
    for line in Path("/proc/self/maps").read_text().splitlines():
        found = re.match(rf"(\w+)-(\w+) .* {re.escape(str(pieces[0].parent))}/", line)
        if found:
            begin, end = (int(of, 16) for of in found.groups())
            libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), dont_need)
    for path in pieces:
        with path.open("rb") as file:
            os.fsync(file)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_so_far() -> tuple[int, int]:
    """Return the bytes that this process has read from disks, and its faults that waited."""
    counts = Path("/proc/self/io").read_text().split("read_bytes: ")[1]
    return int(counts.split()[0]), resource.getrusage(resource.RUSAGE_SELF).ru_majflt


@pytest.mark.skipif(sys.platform != "linux", reason="pages are counted in /proc")
def test_rows_on_a_cold_disk_are_asked_for_before_they_are_copied(data: Path, cache: Path) -> None:
    dataset = ParquetDataset(data, batch_size=999, shuffle="global", cache_dir=cache)
    for _ in dataset:  # opens and compares all pieces
        pass
    evict(pieces_in(cache))
    read_bytes, faults = read_so_far()
    assert sorted(chain(*(batch["x"].tolist() for batch in dataset))) == list(range(NUM_ROWS))
    more_bytes, more_faults = read_so_far()
    if more_bytes - read_bytes < 2 << 20:
        pytest.skip("the file system keeps its pages in memory")
    # The store has a thousand pages. A row that is not asked for waits for a fault of its own.
    assert more_faults - faults < 100


def test_the_pass_is_beside_an_epoch_by_windows(data: Path, cache: Path) -> None:
    options: dict[str, Any] = {
        "shuffle": Shuffle("global", first="windows"),
        "cache_dir": cache,
        "batch_size": 100,
    }
    dataset = ParquetDataset(data, **options)
    batches = iter(dataset)
    first = [next(batches)["x"].tolist()]
    assert len(first[0]) == 100
    wait_for_pass()
    pieces = pieces_in(cache)
    assert len(pieces) > 2
    before = stamps(pieces)
    first += [batch["x"].tolist() for batch in batches]
    assert sorted(chain(*first)) == list(range(NUM_ROWS))
    erase_values(data)
    second = [batch["x"].tolist() for batch in dataset]
    assert sorted(chain(*second)) == list(range(NUM_ROWS))
    assert second != first
    # A later run has the same orders, all from the store.
    later = ParquetDataset(data, **options)
    assert [batch["x"].tolist() for batch in later] == first
    assert [batch["x"].tolist() for batch in later] == second
    assert stamps(pieces_in(cache)) == before


def test_a_program_ends_while_a_thread_stores_rows(data: Path) -> None:
    done = completed("-c", LEAVES, data)
    assert done.returncode == 0, done.stderr


def test_blocks_of_a_remote_store_are_not_kept_beside_the_rows(data: Path, cache: Path) -> None:
    url = "memory://decoded-rows/data.parquet"
    with fsspec.open(url, "wb") as file:
        file.write(data.read_bytes())

    def bytes_of_blocks() -> int:
        return sum(path.stat().st_size for path in cache.glob("[0-9a-f][0-9a-f]/*"))

    check(url, cache)
    assert bytes_of_blocks() == 0
    dataset = ParquetDataset(url, batch_size=999, shuffle="global", cache_dir=cache)
    fsspec.filesystem("memory").rm(url)
    for _ in range(2):  # reads nothing of the store
        assert sum(len(batch["x"]) for batch in dataset) == NUM_ROWS
    with fsspec.open(url, "wb") as file:
        file.write(data.read_bytes())
    reading = iter(ParquetDataset(url, batch_size=999, cache_dir=cache))
    next(reading)  # an epoch that ends leaves what it has not written yet
    until = time.monotonic() + 60
    while bytes_of_blocks() <= data.stat().st_size / 2:  # a thread writes them beside the loop
        assert time.monotonic() < until


def test_other_data_columns_and_rows_have_files_of_their_own(data: Path, cache: Path) -> None:
    first = check(data, cache)
    dataset = ParquetDataset(
        data, batch_size=9, columns=["x"], shuffle="global", cache_dir=cache, filters="x < 100"
    )
    assert sorted(chain(*(batch["x"].tolist() for batch in dataset))) == list(range(100))
    assert len({path.parent for path in pieces_in(cache)}) == 2
    write(data, 3000)
    check(data, cache, 3000)
    assert len({path.parent for path in pieces_in(cache)}) == 3
    assert set(first) < set(pieces_in(cache))


def test_a_killed_run_leaves_whole_pieces_which_the_next_completes(data: Path, cache: Path) -> None:
    kill_at_third = """
import os, pathlib, signal
replace, calls = pathlib.Path.replace, []
def killing(path, target):
    calls.append(path)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(path, target)
pathlib.Path.replace = killing
"""
    process = program(data, cache, kill_at_third)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    left = sorted((cache / "rows").rglob("*.rows"))
    assert [path for path in left if not path.name.startswith(".")] == left
    assert len(left) == 2
    before = stamps(left)
    pieces = check(data, cache)
    assert len(pieces) > 2
    assert stamps(pieces[:2]) == before


def test_processes_at_once_share_the_work(data: Path, cache: Path) -> None:
    pieces = len(check(data, cache.with_name("of one process")))
    noting = """
import pathlib, sys
replace = pathlib.Path.replace
def noted(path, target):
    print(target.name, file=sys.stderr, flush=True)
    WAIT
    return replace(path, target)
pathlib.Path.replace = noted
"""
    slow = program(data, cache, noting.replace("WAIT", "sys.stdin.readline()"))
    made = [slow.stderr.readline().strip()]
    # While the slow one has its first piece in hand, the other one makes all others.
    fast = program(data, cache, noting.replace("WAIT", ""))
    others = [fast.stderr.readline().strip()]
    while len(others) < pieces - 1:
        others.append(fast.stderr.readline().strip())
    for process in (slow, fast):
        out, err = process.communicate("\n" * pieces)
        assert (out, err, process.returncode) == (f"True {NUM_ROWS}\n", "", 0)
    assert sorted(made + others) == [path.name for path in pieces_in(cache)]
    before = stamps(pieces_in(cache))
    assert stamps(check(data, cache)) == before


@pytest.mark.parametrize(
    "damage", ["byte", "middle of the tail", "cut", "foreign", "empty", "other"]
)
def test_a_damaged_piece_is_made_anew(data: Path, cache: Path, damage: str) -> None:
    pieces = check(data, cache)
    content = bytearray(pieces[1].read_bytes())
    if damage in ("byte", "middle of the tail"):
        content[len(content) // 2 if damage == "byte" else -100] ^= 1
    made = {"cut": bytes(content[:-1000]), "foreign": b"some other file" * 9, "empty": b""}
    made["other"] = pieces[0].read_bytes()  # whole, with as many rows
    pieces[1].write_bytes(made.get(damage, bytes(content)))
    before = stamps(pieces)
    with pytest.warns(UserWarning, match=r"decoded rows is damaged .*000001.rows"):
        assert check(data, cache) == pieces
    after = stamps(pieces)
    assert after[0] == before[0]
    assert after[1] != before[1]
    assert stamps(check(data, cache)) == after


def test_a_deleted_piece_is_made_again(data: Path, cache: Path) -> None:
    pieces = check(data, cache)
    pieces[0].unlink()
    assert check(data, cache) == pieces


def test_a_full_disk_is_an_error_that_keeps_what_was_written(tmp_path: Path, cache: Path) -> None:
    data = write(tmp_path / "data.parquet", row_group=8000)
    limited = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (MOST, MOST))\n"
    pieces = check(data, cache)
    pieces[1].unlink()
    size = pieces[0].stat().st_size // 2
    kept = stamps(pieces[:1])
    process = program(data, cache, limited.replace("MOST", str(size)))
    err = process.communicate()[1]
    assert process.returncode == 1
    assert 'shuffle="global" keeps decoded rows, about' in err
    assert "bytes left" in err
    assert stamps(pieces_in(cache)) == kept
    assert stamps(check(data, cache)[:1]) == kept


def test_folders_that_others_use_are_refused(data: Path, cache: Path) -> None:
    cache.mkdir()
    (cache / "other").write_text("of another program")
    with pytest.raises(ValueError, match="cache folder has other files"):
        check(data, cache)
    (cache / "other").unlink()
    check(data, cache)
    cache.chmod(0o777)
    for shuffle in ("global", Shuffle("global", first="windows")):
        dataset = ParquetDataset(data, batch_size=999, shuffle=shuffle, cache_dir=cache)
        with pytest.raises(ValueError, match="every user may write to the cache folder"):
            next(iter(dataset))
    cache.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(cache, 12345, -1)
        with pytest.raises(ValueError, match=r"belongs to another user.*of user 12345"):
            check(data, cache)
        os.chown(cache, 0, -1)
    check(data, cache)


@pytest.mark.parametrize("locks", [True, False])
def test_files_in_the_making_stay_where_their_process_may_live(
    data: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, locks: bool
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    pieces = check(data, cache)
    pieces[0].unlink()
    draft = pieces[0].with_name(f".{pieces[0].name}.0123abcd.draft")
    draft.write_bytes(b"what another process writes")
    if not locks:
        monkeypatch.setattr(fcntl, "flock", refuse)
    dataset = ParquetDataset(data, batch_size=999, shuffle="global", cache_dir=cache)
    assert sum(len(batch["x"]) for batch in dataset) == NUM_ROWS
    assert draft.exists() == (not locks)
    assert not list(draft.parent.glob("*.lock"))


def test_a_folder_that_another_process_removes_meanwhile_is_made_anew(
    data: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, num_left = Path.replace, 3

    def removing(path: Path, target: Path) -> Path:
        nonlocal num_left
        num_left -= 1
        if num_left == 0:
            shutil.rmtree(path.parent)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", removing)
    pieces = check(data, cache)
    assert num_left < 0
    assert pieces[-1].stat().st_size > 0


def test_what_is_not_of_the_store_stays_and_nobody_else_may_write_there(
    data: Path, cache: Path
) -> None:
    before = os.umask(0)
    try:
        check(data, cache)
    finally:
        os.umask(before)
    folder = pieces_in(cache)[0].parent
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder.parent, folder)] == [0o700] * 2
    other = folder.parent / "of a file manager"
    other.write_text("its notes")
    dataset = ParquetDataset(data, batch_size=999, shuffle="global", cache_dir=cache, columns=["x"])
    assert sum(len(batch["x"]) for batch in dataset) == NUM_ROWS
    assert other.exists()


def test_the_limit_of_the_cache_holds(tmp_path: Path, cache: Path) -> None:
    limit = 16 << 20
    data = [write(tmp_path / f"{number}.parquet", 40_000) for number in range(3)]
    for number, path in enumerate(data):
        os.utime(path, ns=(number, number))
        check(path, cache, 40_000, cache_limit=limit)
        assert sum(piece.stat().st_size for piece in pieces_in(cache)) < limit
    too_long = write(tmp_path / "long.parquet", 80_000)
    before = pieces_in(cache)
    with pytest.raises(ValueError, match=r"cache_limit must hold .* about 2\d+ bytes"):
        check(too_long, cache, 80_000, cache_limit=limit)
    assert pieces_in(cache) == before


def write_one_text(path: Path, num_rows: int, num_bytes: int) -> Path:
    """Write a text again and again, in a dictionary; no footer says how long rows are."""
    frame = polars.DataFrame({"x": np.arange(num_rows), "text": ["x" * num_bytes] * num_rows})
    frame.write_parquet(path, row_group_size=num_rows // 4)
    return path


def test_texts_that_are_longer_than_footers_say_do_not_pass_the_memory(tmp_path: Path) -> None:
    data = write_one_text(tmp_path / "data.parquet", 40_000, 200)
    dataset = ParquetDataset(data, batch_size=99, shuffle="global", max_memory="8MiB")
    assert dataset.decoded_bytes is not None
    assert dataset.decoded_bytes < 2**20
    too_long = r"half of max_memory, 4194304 b.*more than \d{7} bytes"
    with pytest.raises(ValueError, match=too_long):
        next(iter(dataset))
    beside = Shuffle("global", first="windows")
    batches = iter(ParquetDataset(data, batch_size=99, shuffle=beside, max_memory="8MiB"))
    assert len(next(batches)["x"]) == 99
    wait_for_pass()
    for _ in range(2):
        with pytest.raises(ValueError, match=too_long):
            list(batches)


def test_texts_that_are_longer_than_footers_say_are_read_in_parts(
    tmp_path: Path, cache: Path
) -> None:
    data = write_one_text(tmp_path / "data.parquet", 2000, 20_000)
    dataset = ParquetDataset(
        data, batch_size=9, shuffle="global", max_memory="8MiB", cache_dir=cache
    )
    rows = []
    for batch in dataset:
        rows += batch["x"].tolist()
        assert batch["text"].to_str() == ["x" * 20_000] * len(batch["x"])
    assert sorted(rows) == list(range(2000))


def test_a_row_of_ten_million_characters(tmp_path: Path, cache: Path) -> None:
    texts = ["a", "ten million characters " * 434_783, ""]
    pq.write_table(pa.table({"x": range(3), "text": texts}), tmp_path / "data.parquet")
    for folder in (None, cache):
        dataset = ParquetDataset(
            tmp_path / "data.parquet", batch_size=1, shuffle="global", cache_dir=folder
        )
        found = {int(batch["x"]): batch["text"].to_str()[0] for batch in dataset}
        assert found == dict(enumerate(texts))
