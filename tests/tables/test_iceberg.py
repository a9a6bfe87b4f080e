"""Iceberg tables: the rows of one snapshot, by the ids of fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tables.reading import rows_of, sorted_rows, table_rows
from torchparquet import ParquetDataset

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    made = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w h")
    made.create_namespace("n")
    return made


def created(catalog: Any, data: pa.Table, **options: Any) -> Any:
    table = catalog.create_table("n.t", data.schema, **options)
    table.append(data)
    return table


def numbers(begin: int, end: int, **more: Any) -> pa.Table:
    return pa.table({"id": pa.array(range(begin, end), pa.int64())} | more)


def test_a_snapshot_and_the_next(catalog: Any) -> None:
    table = created(catalog, numbers(0, 30))
    first = table.current_snapshot().snapshot_id
    table.append(numbers(30, 50))
    assert sorted(row["id"] for row in rows_of(table)) == list(range(50))
    assert [row["id"] for row in rows_of(table.scan(snapshot_id=first))] == list(range(30))


def test_renamed_swapped_added_and_dropped_columns(catalog: Any) -> None:
    data = numbers(0, 8, a=pa.array(range(8), pa.int32()), b=pa.array(range(10, 18), pa.int32()))
    table = created(catalog, data.append_column("gone", pa.array(range(8), pa.int32())))
    with table.update_schema() as update:
        update.rename_column("a", "c")
        update.rename_column("b", "a")
        update.delete_column("gone")
    with table.update_schema() as update:
        update.rename_column("c", "b")
        update.add_column("new", _type("int"))
        update.add_column("gone", _type("double"))
    more = {"a": range(20, 23), "b": range(30, 33), "new": range(40, 43)}
    later = {name: pa.array(values, pa.int32()) for name, values in more.items()}
    table.append(numbers(8, 11, **later, gone=pa.array([0.5, 1.5, 2.5])))
    columns = ["id", "a", "b", "new", "gone"]
    expected = table_rows(table.scan().to_arrow(), columns)
    assert sorted_rows(rows_of(table, columns)) == sorted_rows(expected)
    assert expected[0] in rows_of(table, columns)
    everything = ParquetDataset(table, batch_size=4, nulls="mask")
    assert [name for name in next(iter(everything)) if "." not in name] == [
        field.name for field in table.schema().fields
    ]


@pytest.mark.parametrize("number", range(4))
def test_a_column_that_was_dropped_and_comes_again(catalog: Any, number: int) -> None:
    """Names of files are drawn: whichever comes first, each has its own ids."""
    table = created(catalog, numbers(0, 4, x=pa.array(range(100, 104), pa.int32())))
    with table.update_schema() as update:
        update.delete_column("x")
    with table.update_schema() as update:
        update.add_column("x", _type("int"))
    table.append(numbers(4, 6 + number, x=pa.array(range(4, 6 + number), pa.int32())))
    expected = table_rows(table.scan().to_arrow(), ["id", "x"])
    assert sorted_rows(rows_of(table)) == sorted_rows(expected)
    for argument in ({"where": "x > 0"}, {"filters": [("x", ">", 0)]}):
        with pytest.raises(ValueError, match="'x' by another name"):
            ParquetDataset(table, batch_size=2, **argument)


def test_names_of_files_that_were_added_as_they_are(catalog: Any, tmp_path: Path) -> None:
    data = numbers(0, 4, x=pa.array(range(4), pa.int32()))
    table = catalog.create_table("n.t", data.schema)
    pq.write_table(data, tmp_path / "plain.parquet")
    table.add_files([f"file://{tmp_path}/plain.parquet"])
    with table.update_schema() as update:
        update.rename_column("x", "y")
    assert rows_of(table) == [{"id": n, "y": n} for n in range(4)]


def test_a_limit_is_refused(catalog: Any) -> None:
    table = created(catalog, numbers(0, 4))
    with pytest.raises(ValueError, match="limit_steps"):
        ParquetDataset(table.scan(limit=2), batch_size=2)


def test_partitions_with_odd_names(catalog: Any) -> None:
    data = numbers(0, 6, key=["c/d", "e f", "%"] * 2)
    table = catalog.create_table("n.t", data.schema)
    with table.update_spec() as update:
        update.add_identity("key")
    table.append(data)
    assert sorted(row["id"] for row in rows_of(table, ["id"])) == list(range(6))
    assert sorted(row["id"] for row in rows_of(table.scan("key = 'c/d'"), ["id"])) == [0, 3]


def test_widened_columns(catalog: Any) -> None:
    data = numbers(0, 4, x=pa.array(range(4), pa.int32()), y=pa.array([0.5] * 4, pa.float32()))
    table = created(catalog, data)
    with table.update_schema() as update:
        update.update_column("x", _type("long"))
        update.update_column("y", _type("double"))
    table.append(numbers(4, 6, x=pa.array([2**40, 1]), y=pa.array([1e300, 2.0])))
    expected = table_rows(table.scan().to_arrow(), ["id", "x", "y"])
    assert sorted_rows(rows_of(table)) == sorted_rows(expected)


def test_partitions(catalog: Any) -> None:
    data = numbers(0, 12, key=pa.array([1, 2, 3] * 4, pa.int32()))
    table = catalog.create_table("n.t", data.schema)
    with table.update_spec() as update:
        update.add_identity("key")
    table.append(data)
    assert sorted_rows(rows_of(table)) == table_rows(data, ["id", "key"])
    chosen = rows_of(table.scan("key = 2 and id > 3"))
    assert sorted(row["id"] for row in chosen) == [4, 7, 10]


def test_a_scan_filters_rows(catalog: Any) -> None:
    table = created(catalog, numbers(0, 100))
    assert [row["id"] for row in rows_of(table.scan("id >= 90"))] == list(range(90, 100))
    found = rows_of(table.scan("id >= 90"), where="id < 95")
    assert [row["id"] for row in found] == list(range(90, 95))


def test_rows_deleted_by_position(catalog: Any) -> None:
    table = created(catalog, numbers(0, 40))
    (task,) = table.scan().plan_files()
    scan = _WithDeletes(table.scan(), {task.file.file_path: [3, 4, 39]})
    expected = [n for n in range(40) if n not in (3, 4, 39)]
    assert [row["id"] for row in rows_of(scan)] == expected
    with pytest.raises(OSError, match="deletes row 40"):
        rows_of(_WithDeletes(table.scan(), {task.file.file_path: [40]}))


def test_files_without_ids(catalog: Any, tmp_path: Path) -> None:
    table = created(catalog, numbers(0, 5))
    pq.write_table(numbers(5, 9), tmp_path / "plain.parquet")
    table.add_files([f"file://{tmp_path}/plain.parquet"])
    assert sorted(row["id"] for row in rows_of(table)) == list(range(9))


def test_states_name_both_snapshots(catalog: Any) -> None:
    table = created(catalog, numbers(0, 20))
    dataset = ParquetDataset(table, batch_size=5)
    next(iter(dataset))
    state = dataset.state_dict()
    table.append(numbers(20, 40))
    with pytest.raises(ValueError, match=r"snapshot .* in the state, snapshot .* here"):
        ParquetDataset(table, batch_size=5).load_state_dict(state)


def test_a_table_without_rows(catalog: Any) -> None:
    table = catalog.create_table("n.t", numbers(0, 1).schema)
    with pytest.raises(ValueError, match="no files"):
        ParquetDataset(table, batch_size=5)


def _type(name: str) -> Any:
    from pyiceberg.types import DoubleType, IntegerType, LongType

    return {"int": IntegerType(), "long": LongType(), "double": DoubleType()}[name]


class _WithDeletes:
    """A scan with deletes by position, which pyiceberg reads but does not write."""

    def __init__(self, scan: Any, positions: dict[str, list[int]]) -> None:
        self._scan = scan
        files = [file for file, rows in positions.items() for _ in rows]
        rows = [row for found in positions.values() for row in found]
        self._table = pa.table({"file_path": files, "pos": pa.array(rows, pa.int64())})

    def plan_files(self) -> list[Any]:
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        tasks = list(self._scan.plan_files())
        path = tasks[0].file.file_path + "-deletes.parquet"
        with self._scan.io.new_output(path).create(overwrite=True) as out:
            pq.write_table(self._table, out)
        deletes = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=len(self._table),
            file_size_in_bytes=1,
        )
        for task in tasks:
            task.delete_files = {deletes}
        return tasks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scan, name)


_WithDeletes.__name__ = "DataScan"
_WithDeletes.__module__ = "pyiceberg.table"
