"""Data sets of pyarrow and of Hugging Face's library."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from tests.tables.reading import rows_of, sorted_rows
from torchparquet import ParquetDataset


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for day in (1, 2):
        path = tmp_path / "data" / f"day={day}" / "part.parquet"
        path.parent.mkdir(parents=True)
        ids = pa.array(range(100 * day, 100 * day + 30), pa.int64())
        pq.write_table(pa.table({"id": ids}), path, row_group_size=10)
    return tmp_path / "data"


def test_a_partitioned_data_set(folder: Path) -> None:
    dataset = pads.dataset(folder, partitioning="hive")
    expected = dataset.to_table().to_pylist()
    assert sorted_rows(rows_of(dataset, ["id", "day"])) == sorted_rows(expected)


def test_keys_that_are_not_in_the_names(folder: Path) -> None:
    parts = pads.partitioning(pa.schema([("which", pa.string())]))
    dataset = pads.dataset(folder, partitioning=parts)
    chosen = rows_of(dataset, ["id"], filters="which = 'day=2'")
    assert [row["id"] for row in chosen] == list(range(200, 230))


@pytest.mark.parametrize("place", [0, 1])
def test_fragments_of_some_row_groups(folder: Path, place: int) -> None:
    fragments = list(pads.dataset(folder, partitioning="hive").get_fragments())
    fragments[place] = fragments[place].subset(row_group_ids=[0, 2])
    some = pads.FileSystemDataset(
        fragments,
        schema=pa.schema([("id", pa.int64())]),
        format=pads.ParquetFileFormat(),
        filesystem=pafs.LocalFileSystem(),
    )
    first = 100 * (place + 1)
    expected = {*range(100, 130), *range(200, 230)} - {*range(first + 10, first + 20)}
    assert [row["id"] for row in rows_of(some)] == sorted(expected)
    found = rows_of(some, filters=[("id", "<", 125)])
    assert [row["id"] for row in found] == sorted(n for n in expected if n < 125)


def test_a_filtered_data_set_is_refused(folder: Path) -> None:
    filtered = pads.dataset(folder).filter(pads.field("id") > 3)
    with pytest.raises(ValueError, match="filters="):
        ParquetDataset(filtered, batch_size=3)


def test_columns_that_some_files_lack(folder: Path) -> None:
    more = pa.table({"id": pa.array([1, 2], pa.int64()), "x": pa.array([1.0, 2.0])})
    pq.write_table(more, folder / "day=1" / "more.parquet")
    both = pads.dataset(folder, schema=more.schema)
    expected = both.to_table().to_pylist()
    assert sorted_rows(rows_of(both)) == sorted_rows(expected)


def test_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    with pytest.raises(ValueError, match="Parquet"):
        ParquetDataset(pads.dataset(tmp_path / "a.csv", format="csv"), batch_size=1)


def test_a_data_set_of_hugging_face(folder: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    files = [str(path) for path in folder.rglob("*.parquet")]
    options = {"data_files": files, "split": "train", "cache_dir": str(tmp_path / "cache")}
    streamed = datasets.load_dataset("parquet", streaming=True, **options)
    expected = sorted(row["id"] for row in streamed)
    assert sorted(row["id"] for row in rows_of(streamed, ["id"])) == expected
    filters = [[("id", ">", 103), ("id", "<", 107)], [("id", "=", 201)]]
    few = datasets.load_dataset("parquet", streaming=True, filters=filters, **options)
    assert sorted(row["id"] for row in few) == [104, 105, 106, 201]
    assert sorted(row["id"] for row in rows_of(few, ["id"])) == [104, 105, 106, 201]
    assert [row["id"] for row in rows_of(few, ["id"], filters="id < 105")] == [104]
    mapped = streamed.map(lambda row: row)
    for other in (mapped, datasets.Dataset.from_dict({"a": [1]})):
        with pytest.raises(ValueError, match="streaming=True"):
            ParquetDataset(other, batch_size=1)
