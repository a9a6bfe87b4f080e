"""Iceberg tables: the rows of one snapshot, by the ids of fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.tables.reading import rows_of, sorted_rows, table_rows
from torchparquet import Column, NullValueError, ParquetDataset, Split

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


CONDITIONS_ON_RENAMED = [
    "a > 12",
    "b < 5",
    "b < 5 and a > 11 or id = 10",
    "new is null",
    "new > 40 and gone < 2",
    "gone is not null",
    "not (a > 12)",
    "id >= 7",
]


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
    for where in CONDITIONS_ON_RENAMED:
        wanted = table_rows(table.scan(row_filter=where).to_arrow(), columns)
        assert sorted_rows(rows_of(table, columns, filters=where)) == sorted_rows(wanted)
    split = [
        row["id"]
        for name in ("one", "other")
        for row in rows_of(
            table, ["id"], split=Split(name, {"one": 0.5, "other": 0.5}, seed=3, by="b")
        )
    ]
    assert sorted(split) == list(range(11))
    everything = ParquetDataset(table, batch_size=4, nulls="mask")
    assert [name for name in next(iter(everything)) if "." not in name] == [
        field.name for field in table.schema().fields
    ]


NESTED: dict[str, Any] = {
    "struct": pa.array([{"f": number} for number in range(6)]),
    "map": pa.array([[("a", 1)]] * 6, pa.map_(pa.string(), pa.int64())),
    "list": pa.array([[{"f": 1}]] * 6),
}


@pytest.mark.parametrize("kind", NESTED)
def test_conditions_on_renamed_nested_columns_are_refused(catalog: Any, kind: str) -> None:
    """Lists of numbers are one leaf, whose name is theirs."""
    numbers_too = {"s": NESTED[kind], "l": [[1, 2]] * 6}
    table = created(catalog, numbers(0, 6, **numbers_too))
    with table.update_schema() as update:
        update.rename_column("s", "t")
        update.rename_column("l", "m")
    options: dict[str, Any] = {"batch_size": 4, "columns": ["id"]}
    with pytest.raises(ValueError, match="rows cannot be filtered by column 't'"):
        ParquetDataset(table, filters=pc.field("t").is_valid(), **options)
    dataset = ParquetDataset(table, filters="m is not null and id > 3", **options)
    assert [value for batch in dataset for value in batch["id"].tolist()] == [4, 5]


def test_a_name_with_a_dot_is_no_field(catalog: Any) -> None:
    data = pa.table({"a": [13, 14], "a.b": [1, 2]})
    table = created(catalog, data)
    dataset = ParquetDataset(table, batch_size=2, columns=["a"], filters="a = 13")
    assert next(iter(dataset))["a"].tolist() == [13]


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
    assert [row["x"] for row in rows_of(table, filters="x > 0")] == list(range(4, 6 + number))
    assert [row["id"] for row in rows_of(table, filters="x is null")] == list(range(4))
    with pytest.raises(ValueError, match="is left by filters"):
        ParquetDataset(table, batch_size=2, filters="x >= 100")


def with_defaults(table: Any, defaults: dict[str, Any]) -> Any:
    """Return the table with initial defaults, which pyiceberg reads but does not write."""
    from pyiceberg.table import StaticTable

    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text()) | {"format-version": 3, "next-row-id": 0}
    for schema in metadata["schemas"]:
        for field in schema["fields"]:
            if field["name"] in defaults:
                field["initial-default"] = defaults[field["name"]]
    other = path.with_name("00009-defaults.metadata.json")
    other.write_text(json.dumps(metadata))
    return StaticTable.from_metadata(str(other))


def test_defaults_of_columns_that_files_lack(catalog: Any) -> None:
    table = created(catalog, numbers(0, 4))
    with table.update_schema() as update:
        update.add_column("x", _type("int"))
        update.add_column("text", _type("string"))
    later = {"x": pa.array(range(3), pa.int32()), "text": ["a", None, "b"]}
    table.append(numbers(4, 7, **later))
    table = with_defaults(table, {"x": 7, "text": "none yet"})
    expected = table.scan().to_arrow().sort_by("id")
    column = Column("text", vocab="auto", nulls="mask")
    (field,) = ParquetDataset(table, batch_size=1, columns=[column]).fields
    different = set(expected["text"].to_pylist()) - {None}
    assert field.words == tuple(sorted(text.encode() for text in different))
    for where in (None, "x = 7", "x < 7", "text = 'none yet'", "text >= 'b' and x > 1"):
        left = expected
        if where is not None:
            with duckdb.connect() as connection:
                connection.register("expected", expected)
                left = connection.sql(f"select * from expected where {where}").to_arrow_table()
        columns = ["id", "x", "text"]
        found = rows_of(table, columns, filters=where)
        assert sorted_rows(found) == table_rows(left.sort_by("id"), columns)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.list_(pa.int64()), pa.list_(pa.string())], ids=str
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_added_strings_and_lists_are_null(catalog: Any, kind: pa.DataType, shuffle: bool) -> None:
    table = created(catalog, numbers(0, 10))
    values: dict[pa.DataType, list[Any]] = {
        pa.string(): ["a", None, "", "bcd"],
        pa.list_(pa.int64()): [[1, 2], None, [], [3]],
        pa.list_(pa.string()): [["a", "bc"], None, [], [""]],
    }
    data = numbers(10, 14, text=pa.array(values[kind], kind))
    with table.update_schema() as update:
        update.union_by_name(data.schema)
    table.append(data)
    rows = [*dict.fromkeys(range(10)).items(), *enumerate(values[kind], 10)]
    expected = [{"id": number, "text": text} for number, text in rows]
    for where, keeps in (
        (None, lambda row: True),
        ("id % 3 <> 1", lambda row: row["id"] % 3 != 1),
        ("text is null", lambda row: row["text"] is None),
    ):
        found = rows_of(table, ["id", "text"], filters=where, shuffle=shuffle, seed=3)
        assert sorted(found, key=lambda row: row["id"]) == list(filter(keeps, expected))
    with pytest.raises(NullValueError, match="text"):
        list(ParquetDataset(table, batch_size=3, nulls="error"))


def test_files_that_were_added_as_they_are(catalog: Any, tmp_path: Path) -> None:
    """They have no ids of fields."""
    table = created(catalog, numbers(0, 5, x=pa.array(range(5), pa.int32())))
    data = numbers(5, 9, x=pa.array(range(5, 9), pa.int32()))
    pq.write_table(data, tmp_path / "plain.parquet")
    table.add_files([f"file://{tmp_path}/plain.parquet"])
    with table.update_schema() as update:
        update.rename_column("x", "y")
    assert sorted_rows(rows_of(table)) == [{"id": n, "y": n} for n in range(9)]


def test_a_limit_is_refused(catalog: Any) -> None:
    table = created(catalog, numbers(0, 4))
    with pytest.raises(ValueError, match="limit_steps"):
        ParquetDataset(table.scan(limit=2), batch_size=2)


@pytest.mark.parametrize(
    ("keys", "where", "expected"),
    [
        (["c/d", "e f", "%"] * 2, "key = 'c/d'", [0, 3]),
        (pa.array([1, 2, 3] * 2, pa.int32()), "key = 2 and id > 1", [4]),
    ],
    ids=["odd names", "numbers"],
)
def test_partitions(catalog: Any, keys: Any, where: str, expected: list[int]) -> None:
    data = numbers(0, 6, key=keys)
    table = catalog.create_table("n.t", data.schema)
    with table.update_spec() as update:
        update.add_identity("key")
    table.append(data)
    assert sorted_rows(rows_of(table)) == table_rows(data, ["id", "key"])
    assert sorted(row["id"] for row in rows_of(table.scan(where), ["id"])) == expected


def test_widened_columns(catalog: Any) -> None:
    data = numbers(0, 4, x=pa.array(range(4), pa.int32()), y=pa.array([0.5] * 4, pa.float32()))
    table = created(catalog, data)
    with table.update_schema() as update:
        update.update_column("x", _type("long"))
        update.update_column("y", _type("double"))
    table.append(numbers(4, 6, x=pa.array([2**40, 1]), y=pa.array([1e300, 2.0])))
    expected = table_rows(table.scan().to_arrow(), ["id", "x", "y"])
    assert sorted_rows(rows_of(table)) == sorted_rows(expected)


def test_a_scan_filters_rows(catalog: Any) -> None:
    table = created(catalog, numbers(0, 100))
    assert [row["id"] for row in rows_of(table.scan("id >= 90"))] == list(range(90, 100))
    found = rows_of(table.scan("id >= 90"), filters="id < 95")
    assert [row["id"] for row in found] == list(range(90, 95))


def test_rows_deleted_by_position(catalog: Any) -> None:
    table = created(catalog, numbers(0, 40))
    (task,) = table.scan().plan_files()
    scan = _WithDeletes(table.scan(), {task.file.file_path: [3, 4, 39]})
    expected = [n for n in range(40) if n not in (3, 4, 39)]
    assert [row["id"] for row in rows_of(scan)] == expected
    with pytest.raises(OSError, match="deletes row 40"):
        rows_of(_WithDeletes(table.scan(), {task.file.file_path: [40]}))


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
    from pyiceberg.types import DoubleType, IntegerType, LongType, StringType

    kinds = {"int": IntegerType(), "long": LongType(), "double": DoubleType()}
    return (kinds | {"string": StringType()})[name]


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
