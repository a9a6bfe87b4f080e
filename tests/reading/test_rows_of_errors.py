"""Errors about a value name its row: within its row group, and by the number of `row_ids`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from torchparquet import (
    CastError,
    Column,
    ListLengthError,
    NullValueError,
    Pack,
    ParquetDataset,
)

NUM_FILES, FILE_ROWS, GROUP_ROWS = 3, 1000, 250
NUM_ROWS = NUM_FILES * FILE_ROWS
BAD_ROW = 1651  # file 1, row group 2, row 151
BAD = {
    "number": 300,
    "null": None,
    "text": None,
    "list": [5, 400, 6],
    "null in a list": [5, None],
    "nested": [[1], [2, 500]],
    "pair": [7, 600],
    "null in a pair": [7, None],
    "long": [1, 2, 3],
}
TYPES = {
    "number": pa.int64(),
    "null": pa.int64(),
    "text": pa.string(),
    "list": pa.list_(pa.int64()),
    "null in a list": pa.list_(pa.int64()),
    "nested": pa.list_(pa.list_(pa.int64())),
    "pair": pa.list_(pa.int64(), 2),
    "null in a pair": pa.list_(pa.int64(), 2),
    "long": pa.list_(pa.int64()),
}
READ: dict[str, tuple[Any, type[Exception], str]] = {
    "number": (Column("number", dtype="int8"), CastError, "int8: 300"),
    "null": (Column("null"), NullValueError, "has a null"),
    "text": (Column("text"), NullValueError, "has a null"),
    "list": (Column("list", dtype="int8"), CastError, "int8: 400"),
    "null in a list": (Column("null in a list"), NullValueError, "has a null"),
    "nested": (Column("nested", dtype="int8"), CastError, "int8: 500"),
    "pair": (Column("pair", dtype="int8"), CastError, "int8: 600"),
    "null in a pair": (Column("null in a pair"), NullValueError, "has a null"),
    "long": (Column("long", length=2), ListLengthError, "list of 3"),
}
SELECTIONS: dict[str, dict[str, Any]] = {
    "all": {},
    "filters": {"filters": "key % 7 = 6 or key % 50 = 1"},
    "few": {"filters": f"key = {BAD_ROW}"},
    "shuffled": {"shuffle": True},
    "shuffled where": {"shuffle": True, "filters": "key % 3 = 1"},
    "one per chunk": {"batch_size": None},
    "little memory": {"max_memory": "64KiB"},
}


def good(name: str, row: int) -> Any:
    """A value that is read without an error."""
    if pa.types.is_fixed_size_list(TYPES[name]) or name == "long":
        return [row % 100, row % 7]
    if name == "nested":
        return [[row % 100] * (row % 2), [row % 9]] * (row % 3)
    if pa.types.is_list(TYPES[name]):
        return [row % 100] * (row % 4)
    return f"text {row % 5}" if name == "text" else row % 100


@pytest.fixture(scope="module", params=["plain", "dictionary"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for file in range(NUM_FILES):
        rows = range(file * FILE_ROWS, (file + 1) * FILE_ROWS)
        columns = {
            name: pa.array([BAD[name] if row == BAD_ROW else good(name, row) for row in rows], kind)
            for name, kind in TYPES.items()
        }
        pq.write_table(
            pa.table({"key": np.array(rows), **columns}),
            folder / f"{file}.parquet",
            row_group_size=GROUP_ROWS,
            use_dictionary=request.param == "dictionary",
            data_page_size=256,
            write_batch_size=16,
        )
    return folder


@pytest.mark.mostly_long(every=4)
@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_the_error_names_the_row(data: Path, name: str, selection: str) -> None:
    column, error, text = READ[name]
    options = {"batch_size": 64, "row_ids": True} | SELECTIONS[selection]
    # The row id of the bad row, by its key.
    ids = {
        int(key): int(row)
        for batch in ParquetDataset(data, columns=["key"], **options)
        for key, row in zip(batch["key"], batch["row.id"], strict=True)
    }
    with pytest.raises(error) as caught:
        list(ParquetDataset(data, columns={name: column}, **options))
    message = str(caught.value)
    assert text in message
    assert f"file '{data / '1.parquet'}', row group 2" in message
    assert f"column '{name}'" in message
    assert f"row {BAD_ROW % GROUP_ROWS} of its row group" in message
    assert re.findall(r"row\.id (\d+)", message) == [str(ids[BAD_ROW])]


@pytest.mark.parametrize("shuffle", [False, True])
def test_files_in_a_store(data: Path, shuffle: bool) -> None:
    """The row is found although its bytes were fetched for the first try."""
    memory = pytest.importorskip("fsspec").filesystem("memory")
    for path in data.iterdir():
        memory.pipe(f"rows/{path.name}", path.read_bytes())
    columns = {"list": Column("list", dtype="int8")}
    dataset = ParquetDataset("memory://rows", batch_size=64, columns=columns, shuffle=shuffle)
    with pytest.raises(CastError, match=rf"row 151 of its row group, row\.id {BAD_ROW}$"):
        list(dataset)


def test_a_column_of_a_group(data: Path) -> None:
    columns = {"both": Column(["key", "number"], dtype="int8")}
    with pytest.raises(CastError, match=r"column 'key', row 128 of its row group, row\.id 128$"):
        list(ParquetDataset(data, batch_size=64, columns=columns))


@pytest.mark.parametrize("where", [None, "key % 5 = 1"])
def test_a_document_that_is_packed_is_named_in_its_row_group(data: Path, where: Any) -> None:
    """The ids of rows are those of sequences then."""
    columns = {"list": Column("list", dtype="int8")}
    pack = Pack("list", length=16)
    with pytest.raises(CastError, match="int8: 400") as caught:
        list(ParquetDataset(data, batch_size=4, columns=columns, pack=pack, filters=where))
    message = str(caught.value)
    assert f"row {BAD_ROW % GROUP_ROWS} of its row group" in message
    assert "row.id" not in message
