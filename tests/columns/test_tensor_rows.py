"""Rows that files declare as tensors: `[B, *shape]`, against pyarrow's own tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.pyarrow_release import needs_pyarrow
from torchparquet import (
    ByLength,
    Column,
    Jagged,
    NullValueError,
    ParquetDataset,
    SchemaMismatchError,
)


def batch_of(source: Any, batch_size: int = 99, **options: Any) -> Any:
    (batch,) = ParquetDataset(source, batch_size=batch_size, even="none", **options)
    return batch


def tensors(shape: tuple[int, ...], order: list[int] | None = None, rows: int = 5) -> Any:
    kind = pa.fixed_shape_tensor(pa.int32(), shape, permutation=order)
    size = int(np.prod(shape))
    values = pa.array(np.arange(rows * size, dtype=np.int32))
    storage = pa.FixedSizeListArray.from_arrays(values, size)
    return pa.ExtensionArray.from_storage(kind, storage)


@pytest.mark.parametrize(
    ("shape", "order"),
    [((2, 3), None), ((2, 3), [1, 0]), ((2, 3, 4), [2, 0, 1]), ((4, 1, 2), None), ((3,), None)],
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_tensors_of_a_fixed_shape(
    tmp_path: Path, shape: tuple[int, ...], order: list[int] | None, shuffle: bool
) -> None:
    column = tensors(shape, order)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"t": column, "i": range(5)}), path, row_group_size=2)
    batch = batch_of(path, shuffle=shuffle)
    stored = np.arange(5 * np.prod(shape)).reshape(5, *shape)
    expected = stored.transpose(0, *(at + 1 for at in order or range(len(shape))))
    if len(shape) < 3:  # pyarrow itself mixes up the dimensions of more
        assert expected.tolist() == column.to_numpy_ndarray().tolist()
    expected = expected[batch["i"].numpy()]
    assert batch["t"].shape == expected.shape
    assert batch["t"].numpy().tolist() == expected.tolist()


def test_lists_of_lists_of_one_shape(tmp_path: Path) -> None:
    kind = pa.list_(pa.list_(pa.float32(), 3), 2)
    values = np.arange(30, dtype=np.float32).reshape(5, 2, 3)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": pa.array(values.tolist(), kind), "i": range(5)}), path)
    for shuffle in (False, True):
        batch = batch_of(path, shuffle=shuffle)
        assert batch["x"].numpy().tolist() == values[batch["i"].numpy()].tolist()
    lists = batch_of(path, columns={"x": Column("x", length="any")})["x"]
    assert isinstance(lists, Jagged)


@needs_pyarrow(25, "does not write fixed-size lists with nulls")
def test_null_rows_are_filled_and_masked(tmp_path: Path) -> None:
    kind = pa.list_(pa.list_(pa.int64(), 2), 2)
    rows = [[[1, 2], [3, None]], None, [None, [5, 6]]]
    path = tmp_path / "a.parquet"
    table = pa.table({"x": pa.array(rows, kind), "t": tensors((2, 3), [1, 0], rows=3)})
    pq.write_table(table, path)
    filled = [[[1, 2], [3, -1]], [[-1, -1], [-1, -1]], [[-1, -1], [5, 6]]]
    assert batch_of(path, nulls=-1)["x"].tolist() == filled
    batch = batch_of(path, nulls="mask")
    assert batch["x.valid"].tolist() == [True, False, True]
    valid = [[[one != -1 for one in a] for a in b] for b in filled]
    assert batch["x.values.valid"].tolist() == valid
    assert batch["t"].shape == batch["t.valid"].shape == (3, 3, 2)
    with pytest.raises(NullValueError):
        batch_of(path, nulls="error")


def test_files_of_different_shapes_are_refused(tmp_path: Path) -> None:
    for name, shape in (("a", (2, 3)), ("b", (3, 2))):
        pq.write_table(pa.table({"t": tensors(shape)}), tmp_path / f"{name}.parquet")
    with pytest.raises(SchemaMismatchError, match=r'length="any"'):
        batch_of(tmp_path)
    assert batch_of(tmp_path, columns={"t": Column("t", length=6)})["t"].shape == (10, 6)


def test_a_shape_that_contradicts_its_list_is_no_shape(tmp_path: Path) -> None:
    storage = pa.list_(pa.int32(), 6)
    said = {"ARROW:extension:name": "arrow.fixed_shape_tensor", "ARROW:extension:metadata": "{"}
    for place, metadata in enumerate(("{", '{"shape":[4,4]}', '{"shape":"no"}', "[1]")):
        field = pa.field("t", storage, metadata=said | {"ARROW:extension:metadata": metadata})
        table = pa.table([pa.array([[0] * 6], storage)], pa.schema([field]))
        path = tmp_path / f"{place}.parquet"
        pq.write_table(table, path)
        assert batch_of(path)["t"].shape == (1, 6)


def test_rows_one_by_one_and_batches_by_length_have_the_shape(tmp_path: Path) -> None:
    kind = pa.list_(pa.list_(pa.int64(), 2), 2)
    path = tmp_path / "a.parquet"
    rows = [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    table = pa.table({"x": pa.array(rows, kind), "t": tensors((2, 3), rows=2), "l": [[1], [2, 3]]})
    pq.write_table(table, path)
    shapes = {"x": (2, 2), "t": (2, 3)}
    single = list(ParquetDataset(path, batch_size=2).unbatched())
    assert [{name: row[name].shape for name in shapes} for row in single] == [shapes] * 2
    assert [row["x"].tolist() for row in single] == rows
    by_length = ByLength("l", max_tokens=100)
    (batch,) = ParquetDataset(path, batch_size=by_length, even="none")
    assert {name: batch[name].shape[1:] for name in shapes} == shapes
    assert sorted(batch["x"].tolist()) == rows
