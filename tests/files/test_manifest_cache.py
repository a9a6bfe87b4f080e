"""manifest_cache=: footers that are not read again, and are as soon as a file is another."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from torchparquet import CorruptFileError, Order, ParquetDataset
from torchparquet._impl.files.manifest_reading import read_manifest

NUM_FILES = 5


def table_of(file: int) -> pa.Table:
    ids = np.arange(100 * file, 100 * (file + 1))
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(ids, 2)), 2)
    return pa.table({"id": ids, "text": [f"row {i}" for i in ids], "pair": lists})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    root = tmp_path / "data" / "day=1"
    root.mkdir(parents=True)
    for file in range(NUM_FILES):
        pq.write_table(table_of(file), root / f"{file}.parquet", row_group_size=30)
    return root


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cached manifest"


def dataset_of(data: Any, cache: Any, **options: Any) -> ParquetDataset:
    return ParquetDataset(
        data, batch_size=32, rank=0, world_size=1, manifest_cache=cache, **options
    )


def ids_of(dataset: ParquetDataset) -> list[int]:
    return [row for batch in dataset for row in batch["id"].tolist()]


def blank(path: Path) -> None:
    """Make the file one of zeros that looks unchanged from outside."""
    status = path.stat()
    with path.open("r+b") as file:
        file.write(bytes(status.st_size))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_no_footer_is_read_again(data: Any, cache: Path) -> None:
    first = dataset_of(data, cache)
    for path in data.iterdir():
        blank(path)
    again = dataset_of(data, cache)
    assert len(again) == len(first)
    assert again.manifest.fingerprint == first.manifest.fingerprint


def test_batches_and_states_are_the_same(data: Any, cache: Path) -> None:
    options = {"shuffle": True, "seed": 3, "filters": [("id", ">=", 130)]}
    plain = dataset_of(data, None, **options)
    expected = ids_of(plain)
    dataset_of(data, cache, **options)
    kept = dataset_of(data, cache, **options)
    iterator = iter(plain)
    first = next(iterator)["id"].tolist()
    kept.load_state_dict(plain.state_dict())
    rest = ids_of(kept)
    plain.set_epoch(1)
    assert first + rest == ids_of(plain)
    kept.set_epoch(0)
    assert ids_of(kept) == expected
    assert kept.manifest.partition_keys == {"day": ("1",) * NUM_FILES}


def test_sizes_of_columns_are_kept_with_it_once_they_are_asked_for(data: Any, cache: Path) -> None:
    options = {"even": "none", "order": Order(balance="bytes"), "columns": ["id"]}
    sizes = [pq.read_metadata(path).row_group(0).column(0) for path in sorted(data.iterdir())]
    dataset_of(data, cache)
    first = dataset_of(data, cache, **options)
    expected = first.plan().row_group_bytes.tolist()  # type: ignore[union-attr]
    assert expected[::4] == [size.total_compressed_size for size in sizes]
    for path in data.iterdir():
        blank(path)
    assert dataset_of(data, cache, **options).plan().row_group_bytes.tolist() == expected  # type: ignore[union-attr]
    assert len(dataset_of(data, cache)) == len(first)
    with np.load(cache) as stored:
        damaged = {name: stored[name] for name in stored.files}
    damaged["chunk_num_bytes"] = damaged["chunk_num_bytes"][1:]
    with cache.open("wb") as file:
        np.savez(file, **damaged)
    with (
        pytest.warns(UserWarning, match="manifest_cache is damaged"),
        pytest.raises(CorruptFileError),
    ):
        dataset_of(data, cache, **options)


def touch(data: Path) -> None:
    os.utime(data / "1.parquet", ns=(1, 1))


def rewrite(data: Path) -> None:
    """Another file of the same size and time."""
    path = data / "2.parquet"
    status = path.stat()
    shutil.copy(path, data / "new")
    os.replace(data / "new", path)  # noqa: PTH105
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def append(data: Any) -> None:
    pq.write_table(table_of(7), data / "3.parquet", row_group_size=50)


def add(data: Path) -> None:
    pq.write_table(table_of(9), data / "9.parquet")


def remove(data: Path) -> None:
    (data / "4.parquet").unlink()


@pytest.mark.parametrize("change", [touch, rewrite, append, add, remove])
def test_a_change_has_all_footers_read(data: Any, cache: Path, change: Any) -> None:
    dataset_of(data, cache)
    change(data)
    expected = read_manifest(data)
    found = dataset_of(data, cache)
    assert found.manifest.fingerprint == expected.fingerprint
    assert sorted(ids_of(found)) == sorted(ids_of(dataset_of(data, None)))
    for path in data.iterdir():
        blank(path)
    assert dataset_of(data, cache).manifest.fingerprint == expected.fingerprint


def test_other_paths_replace_it(data: Any, cache: Path) -> None:
    dataset_of(data, cache)
    assert ids_of(dataset_of(data / "1.parquet", cache)) == list(range(100, 200))
    assert len(ids_of(dataset_of(data, cache))) == 100 * NUM_FILES


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_a_damaged_cache_is_written_anew(data: Any, cache: Path, keep: int) -> None:
    dataset_of(data, cache)
    cache.write_bytes(cache.read_bytes()[:keep])
    with pytest.warns(UserWarning, match=r"manifest_cache is damaged.*cached manifest"):
        found = dataset_of(data, cache)
    assert ids_of(found) == list(range(100 * NUM_FILES))
    assert len(dataset_of(data, cache)) == len(found)


def test_parts_of_two_manifests_are_not_taken(data: Any, cache: Path, tmp_path: Path) -> None:
    dataset_of(data, cache)
    (tmp_path / "other").mkdir()
    pq.write_table(table_of(0), tmp_path / "other" / "a.parquet")
    dataset_of(tmp_path / "other", tmp_path / "cache of others")
    with np.load(cache) as one, np.load(tmp_path / "cache of others") as other:
        names = ("row_group_num_rows", "row_group_num_bytes", "row_group_first_row")
        mixed = {name: (other if name in names else one)[name] for name in one.files}
    with cache.open("wb") as file:
        np.savez(file, **mixed)
    with pytest.warns(UserWarning, match="damaged"):
        assert ids_of(dataset_of(data, cache)) == list(range(100 * NUM_FILES))


def test_nothing_is_left_where_it_cannot_be_written(data: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none"):
        dataset_of(data, tmp_path / "none" / "cache")
    (tmp_path / "a directory").mkdir()
    with pytest.raises(OSError, match="a directory"):
        dataset_of(data, tmp_path / "a directory")
    assert {path.name for path in tmp_path.iterdir()} == {"data", "a directory"}


KILLED = """
import os, pathlib, signal, sys
pathlib.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
from torchparquet import ParquetDataset
ParquetDataset(sys.argv[1], batch_size=32, manifest_cache=sys.argv[2])
"""


@pytest.mark.long
def test_drafts_of_killed_writers_are_removed_when_they_are_old(data: Any, cache: Path) -> None:
    drafts: list[Path] = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", KILLED, data, cache], check=False)
        assert done.returncode == -signal.SIGKILL
        (draft,) = set(cache.parent.glob(".*")) - set(drafts)
        drafts.append(draft)
    an_hour_ago = time.time() - 3601
    os.utime(drafts[0], (an_hour_ago, an_hour_ago))
    assert ids_of(dataset_of(data, cache)) == list(range(100 * NUM_FILES))
    # The other one may be that of a writer at work.
    assert set(cache.parent.glob(".*")) == {drafts[1]}
    assert cache.exists()


def test_what_has_no_cache(data: Any, cache: Path) -> None:
    with pytest.raises(ValueError, match=r"manifest_cache.*files on disk"):
        dataset_of(table_of(0), cache)
    with pytest.raises(ValueError, match=r"manifest_cache.*decryption_properties"):
        dataset_of(data, cache, decryption_properties=lambda _: None)
    assert not cache.exists()
