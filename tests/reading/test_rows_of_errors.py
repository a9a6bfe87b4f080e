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
BAD_ROW = 1651  # file 1, row group 2, row 151
NESTED = pa.list_(pa.list_(pa.int64()))
STRUCT = pa.struct([("f", pa.int64())])
# The type of a column, a value that fails, how the column is read, and the error.
CASES: dict[str, tuple[pa.DataType, Any, dict[str, Any], type[Exception], str]] = {
    "number": (pa.int64(), 300, {"dtype": "int8"}, CastError, "int8: 300"),
    "null": (pa.int64(), None, {}, NullValueError, "has a null"),
    "text": (pa.string(), None, {}, NullValueError, "has a null"),
    "null text in a list": (pa.list_(pa.string()), ["a", None], {}, NullValueError, "has a null"),
    "list": (pa.list_(pa.int64()), [5, 400, 6], {"dtype": "int8"}, CastError, "int8: 400"),
    "null list": (pa.list_(pa.int64()), None, {}, NullValueError, "has a null"),
    "null in a list": (pa.list_(pa.int64()), [5, None], {}, NullValueError, "has a null"),
    "nested": (NESTED, [[1], [2, 500]], {"dtype": "int8"}, CastError, "int8: 500"),
    "null in nested": (NESTED, [[1], None], {}, NullValueError, "has a null"),
    "struct": (pa.list_(STRUCT), [None, {"f": 2}], {"nulls": "error"}, NullValueError, "a null"),
    "pair": (pa.list_(pa.int64(), 2), [7, 600], {"dtype": "int8"}, CastError, "int8: 600"),
    "null in a pair": (pa.list_(pa.int64(), 2), [7, None], {}, NullValueError, "has a null"),
    "long": (pa.list_(pa.int64()), [1, 2, 3], {"length": 2}, ListLengthError, "list of 3"),
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
    kind = CASES[name][0]
    if pa.types.is_fixed_size_list(kind) or name == "long":
        return [row % 100, row % 7]
    if kind == NESTED:
        return [[row % 100] * (row % 2), [row % 9]] * (row % 3)
    if not pa.types.is_list(kind):
        return f"text {row % 5}" if name == "text" else row % 100
    item: Any = {"f": row % 100} if name == "struct" else row % 100
    return [str(item) if "text" in name else item] * (row % 4)


@pytest.fixture(scope="module", params=["plain", "dictionary"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for file in range(NUM_FILES):
        rows = range(file * FILE_ROWS, (file + 1) * FILE_ROWS)
        columns = {
            name: pa.array([bad if row == BAD_ROW else good(name, row) for row in rows], kind)
            for name, (kind, bad, *_) in CASES.items()
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
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_the_error_names_the_row(data: Path, name: str, selection: str) -> None:
    _, _, how, error, text = CASES[name]
    source = "struct.f" if name == "struct" else name
    options = {"batch_size": 64, "row_ids": True} | SELECTIONS[selection]
    # The row id of the bad row, by its key.
    ids = {
        int(key): int(row)
        for batch in ParquetDataset(data, columns=["key"], **options)
        for key, row in zip(batch["key"], batch["row.id"], strict=True)
    }
    with pytest.raises(error) as caught:
        list(ParquetDataset(data, columns={"o": Column(source, **how)}, **options))
    message = str(caught.value)
    assert text in message
    assert f"file '{data / '1.parquet'}', row group 2" in message
    assert f"column '{source}'" in message
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


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BINARY_PACKED", "dictionary"])
@pytest.mark.parametrize("where", [None, "key % 3 = 1", "key % 50 = 27"])
@pytest.mark.parametrize("name", ["number", "nulls", "list", "pair"])
def test_a_value_far_within_a_page(tmp_path: Path, encoding: str, where: Any, name: str) -> None:
    """Its row is counted over blocks of values, nulls between them, and rows that nobody reads."""
    num_rows, bad_row = 9000, 7777
    values: dict[str, list[Any]] = {
        "number": [row % 100 for row in range(num_rows)],
        "nulls": [None if row % 5 == 0 else row % 100 for row in range(num_rows)],
        "list": [[None, row % 100, 3][: row % 4] for row in range(num_rows)],
        "pair": [[row % 100, None if row % 9 == 0 else 4] for row in range(num_rows)],
    }
    bad = [5, 700] if name in ("list", "pair") else 700
    values[name][bad_row] = bad
    kind = {"list": pa.list_(pa.int64()), "pair": pa.list_(pa.int64(), 2)}.get(name, pa.int64())
    leaf = f"{name}.list.element" if name in ("list", "pair") else name
    pq.write_table(
        pa.table({"key": np.arange(num_rows), name: pa.array(values[name], kind)}),
        tmp_path / "a.parquet",
        use_dictionary=[leaf] if encoding == "dictionary" else False,
        column_encoding=None if encoding == "dictionary" else {leaf: encoding, "key": "PLAIN"},
    )
    columns = {"o": Column(name, dtype="int8", nulls=0)}
    with pytest.raises(CastError, match=rf"row {bad_row} of its row group, row\.id {bad_row}$"):
        list(ParquetDataset(tmp_path, columns=columns, filters=where, batch_size=3000))


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
