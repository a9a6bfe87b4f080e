"""Delta tables: the rows of one version, and no others."""

from __future__ import annotations

import base64
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from tests.tables.reading import rows_of, sorted_rows, table_rows
from torchparquet import (
    Column,
    CorruptFileError,
    ParquetDataset,
    SchemaMismatchError,
)

deltalake = pytest.importorskip("deltalake")
DeltaTable, write_deltalake = deltalake.DeltaTable, deltalake.write_deltalake


def numbers(begin: int, end: int, **more: Any) -> pa.Table:
    return pa.table({"id": pa.array(range(begin, end), pa.int64())} | more)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "a table")


def test_a_version_and_the_next(folder: str) -> None:
    write_deltalake(folder, numbers(0, 50))
    write_deltalake(folder, numbers(50, 80), mode="append")
    DeltaTable(folder).delete("id % 3 = 0")
    for version, expected in enumerate([range(50), range(80), [n for n in range(80) if n % 3]]):
        table = DeltaTable(folder, version=version)
        assert sorted(row["id"] for row in rows_of(table)) == list(expected)


def test_partition_values_are_those_of_the_log(folder: str) -> None:
    keys = ["a b", "c/d=e", "x"] * 10
    data = numbers(0, 30, day=pa.array([7, 8, 9] * 10, pa.int32()), key=keys)
    write_deltalake(folder, data, partition_by=["day", "key"])
    columns = {"id": "id", "day": "day"}
    found = rows_of(DeltaTable(folder), columns)
    assert sorted_rows(found) == table_rows(data, ["id", "day"])
    assert {
        row["day"] for row in rows_of(DeltaTable(folder), columns, filters=[("day", "=", 8)])
    } == {8}
    chosen = rows_of(DeltaTable(folder), columns, filters="key = 'c/d=e' and id > 10")
    assert sorted(row["id"] for row in chosen) == [n for n in range(11, 30) if n % 3 == 1]


def test_columns_that_were_added_are_null_in_older_files(folder: str) -> None:
    write_deltalake(folder, numbers(0, 20))
    added = pa.array([n / 2 for n in range(15)], pa.float32())
    write_deltalake(folder, numbers(20, 35, x=added), mode="append", schema_mode="merge")
    table = DeltaTable(folder)
    expected = table_rows(pa.table(table.to_pyarrow_table()), ["id", "x"])
    assert sorted_rows(rows_of(table)) == sorted_rows(expected)
    # Whatever the policy is for nulls, it is that for rows before the column was.
    filled = ParquetDataset(table, batch_size=35, columns=["x"], nulls=-1.0)
    assert sum(batch["x"].eq(-1).sum().item() for batch in filled) == 20
    with pytest.raises(ValueError, match="'x'"):
        next(iter(ParquetDataset(table, batch_size=35, columns=["x"], nulls="error")))
    assert sorted(row["id"] for row in rows_of(table, filters="x is null")) == list(range(20))


def test_a_column_that_no_file_has_yet(folder: str) -> None:
    write_deltalake(folder, numbers(0, 20))
    table = DeltaTable(folder)
    table.alter.add_columns(deltalake.Field("x", "integer"))
    assert rows_of(DeltaTable(folder)) == [{"id": n, "x": None} for n in range(20)]


def test_widened_columns(folder: str) -> None:
    write_deltalake(folder, numbers(0, 5, x=pa.array(range(5), pa.int16())))
    _commit(folder, 1, lambda _, field: {"type": "long"} if field["name"] == "x" else {})
    wide = pa.array([2**40, 2**41], pa.int64())
    path = Path(folder) / "wide.parquet"
    pq.write_table(numbers(5, 7, x=wide), path)
    add = {"path": path.name, "size": path.stat().st_size, "modificationTime": 0}
    _write_log(folder, 2, {"add": add | {"partitionValues": {}, "dataChange": True}})
    found = sorted_rows(rows_of(DeltaTable(folder)))
    assert [row["x"] for row in found] == [0, 1, 2, 3, 4, 2**40, 2**41]
    batch = next(iter(ParquetDataset(DeltaTable(folder), batch_size=7)))
    assert str(batch["x"].dtype) == "torch.int64"


def test_mapped_names(folder: str) -> None:
    write_deltalake(folder, pa.table({"col-1": [1, 2, 3], "col-2": [4.0, 5.0, 6.0]}))
    names = {"col-1": "id", "col-2": "id 2"}

    def mapped(number: int, field: dict[str, Any]) -> dict[str, Any]:
        keys = {"id": number, "physicalName": field["name"]}
        metadata = {f"delta.columnMapping.{key}": value for key, value in keys.items()}
        return {"name": names[field["name"]], "metadata": metadata}

    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    configuration = {"delta.columnMapping.mode": "name"}
    _commit(folder, 1, mapped, protocol=protocol, configuration=configuration)
    table = DeltaTable(folder)
    assert rows_of(table) == [{"id": n, "id 2": n + 3.0} for n in (1, 2, 3)]
    assert [row["id"] for row in rows_of(table, filters='id > 1 and "id 2" < 6')] == [2]
    with pytest.raises(ValueError, match="no such column: 'col-1'"):
        ParquetDataset(table, batch_size=1, columns=["col-1"])


def test_rows_in_a_deletion_vector(tmp_path: Path) -> None:
    """The log has the vector itself, as Spark writes it for a few rows."""
    folder = str(tmp_path / "a table%")
    write_deltalake(folder, numbers(0, 40))
    entry = _log_entry(folder, "add")
    remove = {"path": entry["add"]["path"], "deletionTimestamp": 0, "dataChange": True}
    entry["add"]["deletionVector"] = _inline_vector([0, 7, 39])
    features = {"minReaderVersion": 3, "minWriterVersion": 7}
    names = ["deletionVectors"]
    protocol = {**features, "readerFeatures": names, "writerFeatures": names}
    _write_log(folder, 1, {"protocol": protocol}, {"remove": remove}, entry)
    expected = [n for n in range(40) if n not in (0, 7, 39)]
    assert [row["id"] for row in rows_of(DeltaTable(folder))] == expected


def test_partitions_of_text_stay_text(folder: str) -> None:
    data = numbers(0, 6, zip=["007", "07", "7"] * 2)
    write_deltalake(folder, data, partition_by=["zip"])
    found = rows_of(DeltaTable(folder), ["id"], filters="zip = '07'")
    assert sorted(row["id"] for row in found) == [1, 4]
    words = {"zip": Column("zip", vocab=["7", "07", "007"])}
    found = rows_of(DeltaTable(folder), {"id": "id", **words})
    assert [row["zip"] for row in sorted_rows(found)] == [2, 1, 0] * 2


def test_times_of_another_unit_are_refused(folder: str) -> None:
    when = pa.array([1_000_000, 2_000_000], pa.timestamp("us"))
    write_deltalake(folder, numbers(0, 2, when=when))
    (path,) = Path(folder).glob("*.parquet")
    pq.write_table(numbers(0, 2, when=when), path, use_deprecated_int96_timestamps=True)
    with pytest.raises(SchemaMismatchError, match="'when'"):
        ParquetDataset(DeltaTable(folder), batch_size=2)
    columns = {"when": Column("when", dtype=torch.int64)}
    found = rows_of(DeltaTable(folder), columns)
    assert [row["when"] for row in found] == [1_000_000_000, 2_000_000_000]


def test_deleted_rows(folder: str) -> None:
    """A deletion vector leaves rows in their file."""
    write_deltalake(folder, numbers(0, 40))
    table = _WithDeletions(DeltaTable(folder), {3, 4, 17, 39})
    expected = [n for n in range(40) if n not in {3, 4, 17, 39}]
    assert [row["id"] for row in rows_of(table)] == expected
    assert [row["id"] for row in rows_of(table, filters="id < 18")] == expected[:15]
    shares = [rows_of(table, even="split") for _ in range(2)]
    assert shares[0] == shares[1]
    with pytest.raises(CorruptFileError, match="deletions are of 41 rows, the file has 40"):
        ParquetDataset(_WithDeletions(DeltaTable(folder), {40}, num_rows=41), batch_size=4)
    with pytest.raises(ValueError, match="no row of 40 is left by the table's deletions"):
        ParquetDataset(_WithDeletions(DeltaTable(folder), set(range(40))), batch_size=4)


def test_states_name_both_versions(folder: str) -> None:
    write_deltalake(folder, numbers(0, 20))
    dataset = ParquetDataset(DeltaTable(folder), batch_size=5)
    next(iter(dataset))
    state = json.loads(json.dumps(dataset.state_dict()))
    write_deltalake(folder, numbers(20, 40), mode="append")
    newer = ParquetDataset(DeltaTable(folder), batch_size=5)
    with pytest.raises(ValueError, match=r"version 0 of the Delta table .* version 1 of the Delta"):
        newer.load_state_dict(state)
    pinned = ParquetDataset(DeltaTable(folder, version=0), batch_size=5)
    pinned.load_state_dict(state)
    assert sum(len(batch["id"]) for batch in pinned) == 15


@pytest.mark.parametrize("num_batches", [0, 2, 4])
def test_a_state_of_another_version_leads_to_the_next_epoch(  # noqa: PLR0915
    folder: str, num_batches: int
) -> None:
    """Or to its own epoch, if no batch of that was read."""
    days = pa.array([1, 2] * 10)
    write_deltalake(folder, numbers(0, 20, day=days), partition_by=["day"])
    columns = {"id": Column("id"), "day": Column("day")}
    options: dict[str, Any] = {"batch_size": 5, "shuffle": True, "seed": 3, "columns": columns}
    dataset = ParquetDataset(DeltaTable(folder), **options)
    dataset.set_epoch(6)
    iterator = iter(dataset)
    for _ in range(num_batches):
        next(iterator)
    state = json.loads(json.dumps(iterator.state_dict()))
    newer_rows = numbers(20, 40, day=pa.array([3] * 20), more=pa.array(["x"] * 20))
    write_deltalake(folder, newer_rows, mode="append", schema_mode="merge")

    def ids(source: Any) -> list[int]:
        return [value for batch in source for value in batch["id"].tolist()]

    epoch = 7 if num_batches else 6
    expected = []
    for number in (epoch, epoch + 1):
        whole = ParquetDataset(DeltaTable(folder), **options)
        whole.set_epoch(number)
        expected.append(ids(whole))
    newer = ParquetDataset(DeltaTable(folder), **options)
    newer.load_state_dict(state, other_data="next_epoch")
    assert newer.epoch == epoch
    assert [ids(newer), ids(newer)] == expected
    live = iter(newer)
    next(live)
    newer.load_state_dict(state, other_data="next_epoch")
    assert ids(live) == expected[0]
    live = iter(newer)
    next(live)
    live.load_state_dict(state, other_data="next_epoch")
    assert ids(live) == expected[0]
    of_workers = []
    for loaded in (True, False):
        other = ParquetDataset(DeltaTable(folder), num_epochs=1, **options)
        if loaded:
            other.load_state_dict(state, other_data="next_epoch")
        else:
            other.set_epoch(epoch)
        of_workers.append(ids(DataLoader(other, batch_size=None, num_workers=2)))
    assert of_workers[0] == of_workers[1]
    newer.load_state_dict(state, other_data="next_epoch")
    assert newer.state_dict()["epoch"] == epoch
    with pytest.raises(ValueError, match="shuffle is True in the state, False here"):
        ParquetDataset(
            DeltaTable(folder), columns=["id"], batch_size=5, shuffle=False
        ).load_state_dict(state, other_data="next_epoch")
    with pytest.raises(ValueError, match=r"version 0 .* version 1 "):
        newer.load_state_dict(state)
    with pytest.raises(ValueError, match='other_data must be "error" or "next_epoch"'):
        newer.load_state_dict(state, other_data="same")  # type: ignore[arg-type]
    # The state of the same data resumes where it stands.
    again = ParquetDataset(DeltaTable(folder), **options)
    again.set_epoch(epoch)
    iterator = iter(again)
    next(iterator)
    newer.load_state_dict(iterator.state_dict(), other_data="next_epoch")
    assert ids(newer) == expected[0][5:]


def test_a_file_that_is_gone(folder: str) -> None:
    write_deltalake(folder, numbers(0, 20))
    table = DeltaTable(folder)
    for path in Path(folder).glob("*.parquet"):
        path.unlink()
    with pytest.raises(FileNotFoundError, match="parquet"):
        ParquetDataset(table, batch_size=5)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_history(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """After any writes and deletes, every rank's rows together are those of the table."""
    folder = str(tmp_path_factory.mktemp("delta"))
    next_id = 0
    for step in range(data.draw(st.integers(1, 5))):
        count = data.draw(st.integers(1, 40))
        values = pa.array(np.random.default_rng(step).integers(0, 5, count), pa.int8())
        write_deltalake(folder, numbers(next_id, next_id + count, v=values), mode="append")
        next_id += count
        if data.draw(st.booleans()):
            DeltaTable(folder).delete(f"v = {data.draw(st.integers(0, 4))}")
    table = DeltaTable(folder)
    expected = sorted(pa.table(table.to_pyarrow_table())["id"].to_pylist())
    world = data.draw(st.integers(1, 4))
    if not expected:
        return
    found = []
    for rank in range(world):
        dataset = ParquetDataset(table, batch_size=3, even="none", rank=rank, world_size=world)
        found += [value for batch in dataset for value in batch["id"].tolist()]
    assert sorted(found) == expected
    shutil.rmtree(folder)


class _WithDeletions:
    """A table whose only file has a deletion vector, which deltalake reads but does not write."""

    def __init__(self, table: Any, deleted: set[int], num_rows: int = 40) -> None:
        self._table = table
        keep = [row not in deleted for row in range(num_rows)]
        (path,) = table.file_uris()
        self._vectors = pa.table({"filepath": [path], "selection_vector": [keep]})

    def deletion_vectors(self) -> pa.RecordBatchReader:
        return self._vectors.to_reader()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


_WithDeletions.__name__ = "DeltaTable"
_WithDeletions.__module__ = "deltalake.table"


def _inline_vector(rows: list[int]) -> dict[str, Any]:
    """Return a deletion vector as the log has it: a bitmap of Roaring in Z85."""
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16)
    bitmap += struct.pack(f"<{len(rows)}H", *rows)
    content = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    content += b"\0" * (-len(content) % 4)
    b85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    text = base64.b85encode(content).decode().translate(str.maketrans(b85, z85))
    sizes = {"sizeInBytes": len(content), "cardinality": len(rows)}
    return {"storageType": "i", "pathOrInlineDv": text} | sizes


def _log_entry(folder: str, kind: str) -> dict[str, Any]:
    for line in (Path(folder) / "_delta_log" / f"{0:020}.json").read_text().splitlines():
        entry: dict[str, Any] = json.loads(line)
        if kind in entry:
            return entry
    raise AssertionError(kind)


def _commit(
    folder: str, version: int, change: Callable[[int, dict[str, Any]], Any], **others: Any
) -> None:
    """Write a version whose columns a function has changed, with other entries."""
    entry = _log_entry(folder, "metaData")
    schema = json.loads(entry["metaData"]["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        field |= change(number, field)
    entry["metaData"]["schemaString"] = json.dumps(schema)
    entry["metaData"]["configuration"] = others.pop("configuration", {})
    _write_log(folder, version, *({kind: other} for kind, other in others.items()), entry)


def _write_log(folder: str, version: int, *entries: dict[str, Any]) -> None:
    log = Path(folder) / "_delta_log" / f"{version:020}.json"
    log.write_text("\n".join(map(json.dumps, entries)))
