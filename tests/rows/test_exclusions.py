"""`Excluding`: what `verify` could not read is left out, with even steps on all ranks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch.utils.data import DataLoader

from tests.fixtures import thrift_bytes
from torchparquet import Column, CorruptFileError, Excluding, ParquetDataset, mix
from torchparquet.cli import main

ROWS, GROUP = 900, 100
# By file, the row groups that are damaged.
DAMAGED = {0: [2, 5], 2: [0], 3: list(range(8))}


def flip(path: Path, row_group: int, column: int) -> None:
    """Change one byte in the middle of a column chunk's last page."""
    page = thrift_bytes.pages(path, row_group, column)[-1]
    content = bytearray(path.read_bytes())
    content[(page.begin + page.end) // 2] ^= 0x55
    path.write_bytes(content)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six files, of which one is cut, one is empty, and three have damaged pages."""
    root = tmp_path_factory.mktemp("exclusions") / "data"
    root.mkdir()
    for file in range(6):
        ids = np.arange(ROWS) + ROWS * file
        rows = pa.table({"id": ids, "word": [f"word {n % 7}" for n in ids]})
        pq.write_table(
            rows, root / f"{file}.parquet", row_group_size=GROUP, write_page_checksum=True
        )
    for file, groups in DAMAGED.items():
        for group in groups:
            flip(root / f"{file}.parquet", group, group % 2)
    cut = root / "4.parquet"
    cut.write_bytes(cut.read_bytes()[:-30])
    (root / "5.parquet").write_bytes(b"")
    return root


@pytest.fixture(scope="module")
def bad(files: Path) -> Path:
    """The exclusions of the files."""
    path = files.parent / "bad.json"
    assert main(["verify", str(files), "--exclusions", str(path)]) == 1
    return path


def sound_ids() -> list[int]:
    """Return the ids of all rows that no damage hits."""
    return [
        ROWS * file + row
        for file in range(4)
        for row in range(ROWS)
        if row // GROUP not in DAMAGED.get(file, [])
    ]


def opened(files: Path, bad: Path, **options: Any) -> ParquetDataset:
    given = {"batch_size": 64, "shuffle": True, "seed": 5, "rank": 0, "world_size": 1, **options}
    return ParquetDataset(files, rows=Excluding(bad), **given)


def read(dataset: ParquetDataset | DataLoader[Any]) -> list[list[int]]:
    return [batch["id"].tolist() for batch in dataset]


def test_verify_writes_what_it_cannot_read(files: Path, bad: Path) -> None:
    content = json.loads(bad.read_text())
    assert {one["name"]: one["row_groups"] for one in content["files"]} == {
        **{f"{file}.parquet": groups for file, groups in DAMAGED.items()},
        "4.parquet": None,
        "5.parquet": None,
    }


def test_without_it_the_files_cannot_be_read(files: Path) -> None:
    with pytest.raises(CorruptFileError):
        ParquetDataset(files, batch_size=64)


@pytest.mark.parametrize("even", ["split", "none"])
@pytest.mark.parametrize("world_size", [1, 3, 8])
def test_all_other_rows_come_in_even_steps(
    files: Path, bad: Path, world_size: int, even: Any
) -> None:
    ranks = [
        opened(files, bad, rank=rank, world_size=world_size, even=even)
        for rank in range(world_size)
    ]
    found = [read(rank) for rank in ranks]
    if even == "split":
        assert len({len(batches) for batches in found}) == 1
    ids = [id_ for batches in found for batch in batches for id_ in batch]
    assert set(ids) == set(sound_ids())
    assert len(ids) - len(set(ids)) < world_size
    assert [len(rank) for rank in ranks] == [len(batches) for batches in found]


def test_metrics_count_what_is_left_out(files: Path, bad: Path) -> None:
    dataset = opened(files, bad)
    read(dataset)
    for metrics in (dataset.metrics(), dataset.metrics(all_iterations=True)):
        assert metrics.files_excluded == 2
        assert metrics.row_groups_excluded == 11
        assert metrics.rows_excluded == 1100
        assert metrics.as_dict()["rows_excluded"] == 1100
        assert metrics.since(metrics).rows_excluded == 1100
    mixed = mix([opened(files, bad, batch_size=32), opened(files, bad, batch_size=32)], seed=1)
    assert {id_ for batch in mixed for id_ in batch["id"].tolist()} == set(sound_ids())
    assert mixed.metrics().rows_excluded == 2200
    assert [of and of.rows_excluded for of in mixed.metrics().sources] == [1100, 1100]


def test_an_epoch_resumes(files: Path, bad: Path) -> None:
    dataset = opened(files, bad)
    whole = read(dataset)
    dataset.set_epoch(0)
    batches = iter(dataset)
    taken = [next(batches)["id"].tolist() for _ in range(7)]
    resumed = opened(files, bad)
    resumed.load_state_dict(dataset.state_dict())
    assert taken + read(resumed) == whole
    with pytest.raises(ValueError, match="other files or rows"):
        ParquetDataset(files / "1.parquet", batch_size=64).load_state_dict(dataset.state_dict())


def test_it_goes_with_other_ways_to_choose_rows(files: Path, bad: Path) -> None:
    dataset = opened(
        files,
        bad,
        filters="id % 2 = 1",
        columns=["id", Column("word", vocab="auto")],
        row_ids=True,
    )
    ids = [id_ for batch in read(dataset) for id_ in batch]
    assert sorted(ids) == [id_ for id_ in sound_ids() if id_ % 2]
    assert dataset.fields[1].words == tuple(f"word {n}".encode() for n in range(7))
    parts = {"a": 0.5, "b": 0.5}
    halves = [read(opened(files, bad, split=(name, parts, 0))) for name in parts]
    assert sorted(id_ for half in halves for batch in half for id_ in batch) == sound_ids()
    loader = DataLoader(opened(files, bad), batch_size=None, num_workers=2)
    assert sorted(id_ for batch in read(loader) for id_ in batch) == sound_ids()
    rows = opened(files, bad).unbatched()
    assert sorted(int(row["id"]) for row in rows) == sound_ids()
    dynamic = opened(files, bad, even="dynamic", order=None)
    assert sorted(id_ for batch in read(dynamic) for id_ in batch) == sound_ids()


def test_caches_of_footers_are_of_the_files_that_are_left(
    files: Path, bad: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        dataset = opened(files, bad, manifest_cache=tmp_path / "cache")
        assert sorted(id_ for batch in read(dataset) for id_ in batch) == sound_ids()


def test_copies_and_parts_of_the_files(files: Path, bad: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copy"
    shutil.copytree(files, copied)
    assert sorted(id_ for batch in read(opened(copied, bad)) for id_ in batch) == sound_ids()
    part = ParquetDataset(copied / "[0-1].parquet", batch_size=64, rows=Excluding(bad))
    assert sorted(id_ for batch in read(part) for id_ in batch) == [
        id_ for id_ in sound_ids() if id_ < 2 * ROWS
    ]


def test_exclusions_of_other_files_are_refused(files: Path, bad: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="names no file of the data set"):
        ParquetDataset(files / "1.parquet", batch_size=64, rows=Excluding(bad))
    copied = tmp_path / "copy"
    shutil.copytree(files, copied)
    (copied / "0.parquet").write_bytes((copied / "1.parquet").read_bytes() + b"PAR1")
    with pytest.raises(ValueError, match=r"verify them again: .*0.parquet' had \d+ bytes"):
        opened(copied, bad)
    with pytest.raises(ValueError, match="leaves no file"):
        opened(files / "4.parquet", bad)
    shutil.copytree(files, tmp_path / "twice" / "a")
    shutil.copytree(files, tmp_path / "twice" / "b")
    with pytest.raises(ValueError, match="must name one file"):
        opened(tmp_path / "twice", bad)
    table = pq.read_table(files / "1.parquet")
    with pytest.raises(ValueError, match="needs files; the data is in memory"):
        ParquetDataset(table, batch_size=64, rows=Excluding(bad))
    other = tmp_path / "other.json"
    other.write_text('{"format": "mine"}')
    with pytest.raises(ValueError, match=r"not a file of exclusions \(torchparquet verify"):
        opened(files, other)
    with pytest.raises(FileNotFoundError):
        opened(files, tmp_path / "none.json")
    with pytest.raises(TypeError, match="path of Excluding must be a path"):
        Excluding(3)  # type: ignore[arg-type]


def test_sound_files_exclude_nothing(files: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    assert main(["verify", str(files / "1.parquet"), "--exclusions", str(bad)]) == 0
    whole = ParquetDataset(files / "1.parquet", batch_size=64)
    dataset = ParquetDataset(files / "1.parquet", batch_size=64, rows=Excluding(bad))
    assert dataset.manifest.fingerprint == whole.manifest.fingerprint
    assert main(["verify", str(files), "--no-decode", "--exclusions", str(bad)]) == 2
    assert main(["verify", str(files), "--exclusions", str(tmp_path / "none" / "bad.json")]) == 1
