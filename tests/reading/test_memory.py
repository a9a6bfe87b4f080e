"""The peak of a process's memory over a long pass stays within what max_memory promises."""

from __future__ import annotations

import json
import resource
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from tests.fixtures.pyarrow_release import needs_pyarrow
from tests.fixtures.thrift_bytes import (
    FILE_NUM_ROWS,
    FILE_ROW_GROUPS,
    GROUP_NUM_ROWS,
    META_COMPRESSED_BYTES,
    META_NUM_VALUES,
    PAGE_BYTES,
    PAGE_COMPRESSED_BYTES,
    all_replaced,
    column_metadata,
    footer,
    pages,
)
from tests.fixtures.tree import completed
from torchparquet import NullValueError, ParquetDataset

MIB = 2**20
PER_THREAD = 64 * MIB
STATUS = Path("/proc/self/status")

# Runs each case in a process of its own, forked before any thread exists, and prints the rows
# that it read and, in bytes, how far its peak rose above the state before the pass. The kernel's
# VmHWM starts anew in each process, whereas ru_maxrss would also show the peak of the process
# that started this one.
PASSES = """
import itertools, json, os, sys
from pathlib import Path

import pyarrow.parquet.encryption as pe
from torchparquet import ParquetDataset

def peak_bytes():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024

def run(paths, num_epochs, num_kept, num_batches, key=None, **options):
    if key is not None:
        options["decryption_properties"] = pe.create_decryption_properties(key.encode())
    dataset = ParquetDataset(paths, rank=0, world_size=1, pin_memory=False, **options)
    before = peak_bytes()
    rows = 0
    for _ in range(num_epochs):
        kept = []
        for batch in itertools.islice(dataset, num_batches):
            rows += len(next(iter(batch.values())))
            kept = [*kept, batch][-num_kept:]
    return rows, peak_bytes() - before

for case in json.loads(sys.argv[1]):
    if os.fork() == 0:
        print(json.dumps(run(**case)), flush=True)
        os._exit(0)
    _, status = os.wait()
    if status != 0:
        sys.exit(f"{case} ended with status {status}")
"""

pytestmark = [
    pytest.mark.skipif(
        not STATUS.exists() or "VmHWM" not in STATUS.read_text(),
        reason="this system does not tell the peak of a process's memory",
    ),
    needs_pyarrow(25, "does not encrypt by a key alone"),
]

RUNS_ROWS, NOISE_ROWS = 4_000_000, 2**22
WORDS_ROWS, WORDS_GROUP = 1_000_000, 50_000
COLUMN_ROWS = 32 * 2**20
SHUFFLE = {"shuffle": True, "num_threads": 2}
PAGE_KEY = "0123456789abcdef"
# A batch itself takes more than its rows.
FEW_ROWS = {"batch_size": 2, "max_memory": 128 * MIB, "num_threads": 1, "num_batches": 50_000}
# Every case but "one page", which meets one page of many rows, "images", whose page has 200 MiB,
# "encrypted", which meets a page of each of many columns, and those of few rows reads 256 MiB or
# more. If a shuffle window of row groups is asked for, one more in it would be refused.
CASES = {
    "one thread": {"batch_size": 8192, "max_memory": 16 * MIB, "num_threads": 1},
    "two threads": {"batch_size": 8192, "max_memory": 16 * MIB, "num_threads": 2},
    "two epochs": {"batch_size": 8192, "max_memory": 32 * MIB, "num_threads": 2, "num_epochs": 2},
    "row groups": {"batch_size": None, "max_memory": 80 * MIB, "num_threads": 1},
    "kept": {"batch_size": 8192, "max_memory": 16 * MIB, "num_threads": 1, "num_kept": 100},
    "noise": {"batch_size": 100_000, "max_memory": 32 * MIB, "num_threads": 2, "nulls": "nan"},
    "one page": {"batch_size": 8192, "max_memory": 16 * MIB, "num_threads": 1, "num_batches": 1},
    "encrypted": {
        **{"batch_size": 4096, "max_memory": 16 * MIB, "num_threads": 1, "num_batches": 4},
        "key": PAGE_KEY,
    },
    "texts": {"batch_size": 64, "max_memory": 32 * MIB, "num_threads": 2},
    "one page of images": {"batch_size": 2, "max_memory": 16 * MIB, "num_threads": 2},
    "window": {"batch_size": 8192, "max_memory": 150 * MIB, "shuffle_window": 4, **SHUFFLE},
    "window of one column": {
        **{"batch_size": 8192, "max_memory": 132 * MIB, "shuffle_window": 5},
        **{"shuffle": True, "num_threads": 1},
    },
    "default window": {"batch_size": 8192, "max_memory": 32 * MIB, **SHUFFLE},
    "window of words": {"batch_size": 512, "max_memory": 130 * MIB, "shuffle_window": 4, **SHUFFLE},
    "default window of words": {"batch_size": 512, "max_memory": 32 * MIB, **SHUFFLE},
    "default window of texts": {"batch_size": 64, "max_memory": 32 * MIB, **SHUFFLE},
    "all rows": {
        **{"batch_size": 8192, "max_memory": 552 * MIB, "num_threads": 2, "num_epochs": 2},
        "shuffle": "global",
    },
    "few rows of a column": FEW_ROWS,
    "default window of few rows of a column": FEW_ROWS | SHUFFLE | {"num_threads": 1},
}
TEXTS_ROWS, TEXT_BYTES = 20_000, 20_000
IMAGES = 200  # of a megabyte
ROWS_READ = {
    "two epochs": 2 * RUNS_ROWS,
    "all rows": 2 * RUNS_ROWS,
    "noise": NOISE_ROWS,
    "one page": 8192,
    "encrypted": 4 * 4096,
    "texts": TEXTS_ROWS,
    "one page of images": IMAGES,
    "window of one column": COLUMN_ROWS,
    "window of words": WORDS_ROWS,
    "default window of words": WORDS_ROWS,
    "default window of texts": TEXTS_ROWS,
    "few rows of a column": 2 * 50_000,
    "default window of few rows of a column": 2 * 50_000,
}
# The memory that the consumer holds beside the batches in flight.
HELD_BYTES = {"row groups": 400_000 * 8 * 9, "kept": 100 * 8192 * 8 * 9}
HELD_BYTES["texts"] = HELD_BYTES["default window of texts"] = 2 * 64 * 2 * TEXT_BYTES


def write_runs(path: Path) -> None:
    """A small file that holds much: 8 columns of long runs in 10 row groups."""
    values = pa.array(np.repeat(np.arange(4.0), 100_000))
    write_repeated(path, pa.table({f"c{i}": values for i in range(8)}), 10)


def write_repeated(path: Path, table: pa.Table, times: int, **options: Any) -> None:
    """Write a table several times, each time as a row group."""
    with pq.ParquetWriter(path, table.schema, **options) as writer:
        for _ in range(times):
            writer.write_table(table)


def write_noise(path: Path) -> None:
    """A large file of one row group, half its columns with a compression to undo."""
    values = np.random.default_rng(0).random(NOISE_ROWS)
    names = [f"c{i}" for i in range(8)]
    pq.write_table(
        pa.table(dict.fromkeys(names, values)),
        path,
        row_group_size=NOISE_ROWS,
        use_dictionary=False,
        compression={name: "lz4" if i % 2 else "none" for i, name in enumerate(names)},
    )


def write_page(path: Path) -> None:
    """A few hundred bytes: 2**28 nulls in one page, as one run of definition levels."""
    table = pa.table({"x": pa.nulls(1000, pa.int64())})
    pq.write_table(table, path, use_dictionary=False, compression="none", write_statistics=False)
    content, num_rows = path.read_bytes(), 2**28
    (page,) = pages(path)
    # The length of the levels, the run's header (1000 << 1 as a varint), its value.
    assert content[page.begin : page.end] == b"\x03\0\0\0\xd0\x0f\0"
    body = b"\x06\0\0\0\x80\x80\x80\x80\x02\0"
    sizes = {page.header[key]: len(body) for key in (PAGE_COMPRESSED_BYTES, PAGE_BYTES)}
    changed = content[: page.begin] + body + content[page.end :]
    changed = all_replaced(changed, {**sizes, page.details[1]: num_rows})
    grown = len(changed) - len(content)
    metadata, groups = column_metadata(changed, 0, 0), footer(changed)[FILE_ROW_GROUPS]
    lies = (metadata[META_NUM_VALUES], groups[0][GROUP_NUM_ROWS], footer(changed)[FILE_NUM_ROWS])
    size = metadata[META_COMPRESSED_BYTES]
    changed = all_replaced(changed, {**dict.fromkeys(lies, num_rows), size: size.value + grown})
    assert pq.read_metadata(pa.BufferReader(changed)).num_rows == num_rows
    path.write_bytes(changed)


def long_texts(indices: Any, mask: Any = None) -> pa.Array:
    """Long strings by their numbers, so that footers do not tell their size."""
    words = pa.array([f"{i:05}" * (TEXT_BYTES // 5) for i in range(20)])
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32(), mask=mask), words)


def write_texts(path: Path) -> None:
    """A file of 1 MB that holds 800."""
    numbers = np.random.default_rng(0).integers(0, 20, (2, TEXTS_ROWS))
    columns = {name: long_texts(indices) for name, indices in zip("ab", numbers, strict=True)}
    table = pa.table({"i": range(TEXTS_ROWS), **columns})
    pq.write_table(table, path, row_group_size=TEXTS_ROWS // 2)


def write_column(path: Path) -> None:
    """One column, so that what windows take beside batches is most of their memory."""
    table = pa.table({"x": np.repeat(np.arange(8), 2**17)})
    write_repeated(path, table, COLUMN_ROWS // len(table))


def write_words(path: Path) -> None:
    """Two columns of strings of up to 300 bytes, whose lengths the footer tells."""
    lengths = np.random.default_rng(0).integers(0, 300, WORDS_GROUP).tolist()
    strings = pa.array([(f"{i:06}" * 50)[:length] for i, length in enumerate(lengths)])
    table = pa.table({"i": range(WORDS_GROUP), "a": strings, "b": strings})
    options = {"use_dictionary": False, "compression": "zstd"}
    write_repeated(path, table, WORDS_ROWS // WORDS_GROUP, **options)


def write_images(path: Path) -> None:
    """A page that is longer than the memory of two threads."""
    image = np.random.default_rng(0).bytes(MIB)
    pq.write_table(
        pa.table({"x": [image] * IMAGES}), path, compression="none", use_dictionary=False
    )
    assert len(pages(path)) == 1


def write_encrypted(path: Path) -> None:
    """80 columns with a page of a megabyte each."""
    values = np.random.default_rng(0).random(2**17)
    pq.write_table(
        pa.table({f"c{i}": values for i in range(80)}),
        path,
        use_dictionary=False,
        compression="none",
        data_page_size=2**20,
        max_rows_per_page=2**17,
        encryption_properties=pe.create_encryption_properties(PAGE_KEY.encode()),
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """All files, by the last word of the cases that read them."""
    folder, written = tmp_path_factory.mktemp("memory"), {}
    for write in (
        *(write_runs, write_noise, write_page, write_texts, write_column, write_words),
        *(write_images, write_encrypted),
    ):
        name = write.__name__.removeprefix("write_")
        write(folder / f"{name}.parquet")
        written[name] = str(folder / f"{name}.parquet")
    return written


@pytest.fixture(scope="module")
def measured(files: dict[str, str]) -> Any:
    """Rows read and bytes grown by, for each case."""
    defaults = {"num_epochs": 1, "num_kept": 1, "num_batches": None, "nulls": "mask"}
    cases = [
        {**defaults, "paths": files.get(name.split()[-1], files["runs"]), **case}  # type: ignore[dict-item]
        for name, case in CASES.items()
    ]
    result = completed("-c", PASSES, json.dumps(cases))
    assert result.returncode == 0, result.stderr
    lines = map(json.loads, result.stdout.splitlines())
    return dict(zip(CASES, lines, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_peak_stays_within_the_bound(measured: Any, name: str) -> None:
    rows, growth = measured[name]
    case = CASES[name]
    assert rows == ROWS_READ.get(name, RUNS_ROWS)
    bound = case["max_memory"] + case["num_threads"] * PER_THREAD + HELD_BYTES.get(name, 0)  # type: ignore[index]
    assert growth < bound


WINDOWS = {"runs": "window", "column": "window of one column", "words": "window of words"}


@pytest.mark.parametrize("source", WINDOWS)
def test_the_windows_are_as_large_as_they_may_be(files: dict[str, str], source: str) -> None:
    """A row group more does not fit the memory that is measured."""
    case = CASES[WINDOWS[source]]
    options = {"shuffle_window": case["shuffle_window"] + 1, "max_memory": case["max_memory"]}  # type: ignore[index]
    with pytest.raises(ValueError, match=f"shuffle_window={case['shuffle_window']} fits"):  # type: ignore[index]
        ParquetDataset(
            files[source],
            batch_size=case["batch_size"],  # type: ignore[index]
            nulls="mask",
            shuffle=True,
            **options,
        )


def test_kept_batches_are_seen_by_the_measure(measured: Any) -> None:
    """Without this, the measure might see nothing."""
    assert measured["kept"][1] > HELD_BYTES["kept"] - 8 * MIB


@pytest.mark.parametrize("null_row", [0, 63, 64, 3000, 5999])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_a_failure_while_memory_is_short(tmp_path: Path, null_row: int, num_threads: int) -> None:
    """Columns that wait for memory after the failure neither hide it nor hold it up."""
    rows = np.arange(6000)
    masks = {"a": None, "b": rows == null_row, "c": None}
    columns = {name: long_texts(rows % 20, mask) for name, mask in masks.items()}
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({**columns, "i": range(6000)}), path, row_group_size=2500)
    iterator = iter(
        ParquetDataset(
            path, batch_size=64, num_threads=num_threads, max_memory="32MiB", rank=0, world_size=1
        )
    )
    for number in range(null_row // 64):
        assert next(iterator)["i"][0] == 64 * number
    with pytest.raises(NullValueError, match=f"'b' .*row {null_row % 2500} of its row group"):
        next(iterator)


def num_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@pytest.mark.parametrize(
    "order", [{}, {"shuffle": True, "shuffle_window": 2}], ids=["file order", "windows"]
)
def test_later_epochs_take_no_new_memory(tmp_path: Path, order: dict[str, Any]) -> None:
    """Neither for batches nor for pages, dictionaries or where rows of a window go."""
    rng = np.random.default_rng(0)
    names = [f"x{number}" for number in range(16)]
    values = rng.integers(0, 150_000, 400_000)
    table = pa.table({name: np.roll(values, number) for number, name in enumerate(names)})
    path = tmp_path / "x.parquet"
    pq.write_table(
        table,
        path,
        row_group_size=100_000,
        compression="zstd",
        use_dictionary=names[::2],
        dictionary_pagesize_limit=2**20,
    )
    dataset = ParquetDataset(path, batch_size=4096, num_threads=2, pin_memory=False, **order)
    faults = []
    for _ in range(30):
        before = num_faults()
        for batch in dataset:
            del batch
        faults.append(num_faults() - before)
    # Which thread reads which column is as it happens, so each thread takes its largest buffers in
    # one epoch or another.
    assert statistics.median(faults[10:]) < 50, faults


def test_batches_that_the_loop_holds_take_no_new_memory_in_the_next_epoch(tmp_path: Path) -> None:
    """As much is in flight as ever, and the loop holds a batch while it takes the next one."""
    table = pa.table({"x": np.arange(40 * 200_000)})
    path = tmp_path / "x.parquet"
    pq.write_table(table, path, row_group_size=200_000, compression="zstd")
    dataset = ParquetDataset(path, batch_size=None, num_threads=2, pin_memory=False)
    faults = []
    for _ in range(12):
        before = num_faults()
        for number, _batch in enumerate(dataset, 1):
            deadline = time.monotonic() + 30
            while True:
                ring = dataset.metrics().ring
                # The loop wakes threads when an eighth of the batches is taken.
                most = ring.max_batches_in_flight
                if ring.batches_ready > min(most - most // 8, 39 - number):
                    break
                assert time.monotonic() < deadline, ring
        del _batch
        faults.append(num_faults() - before)
    assert ring.max_batches_in_flight < 30
    assert max(faults[6:]) < 200, faults
