"""The leaf columns of Arrow tables as rows of Python values, and what tensors hold of such rows.

Nothing here looks at a file or at the package's own conversions: pyarrow's buffers are the oracle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tests.fixtures.parquet_files import first_difference, same_bits, stored_values
from torchparquet import Jagged, ParquetDataset

BYTES = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


class LeafRows(NamedTuple):
    """The rows of a leaf column.

    ``rows`` are values: bytes for strings, numbers as they are stored otherwise, None for a null,
    also one of a struct around the value; within ``num_lists`` lists. ``no_value`` stands for a
    null number, and has the dtype and, for binary of a fixed size, the shape of all.
    """

    path: str
    num_lists: int
    no_value: np.generic | np.ndarray | None
    rows: list[Any]

    @property
    def is_bytes(self) -> bool:
        return self.no_value is None


def table_leaves(table: pa.Table) -> list[LeafRows]:
    """The leaves of all columns, in the order of a file."""
    return [
        leaf
        for name in table.column_names
        for leaf in leaves_of(pa.concat_arrays(table.column(name).chunks), name)
    ]


def leaves_of(array: pa.Array, path: str) -> Iterator[LeafRows]:
    """The leaves of an array: a list adds nothing to a path, a map "key" and "value"."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        yield from leaves_of(array.storage, path)
    elif pa.types.is_struct(kind):
        valid = array.is_valid().to_pylist()
        for index in range(kind.num_fields):
            for leaf in leaves_of(array.field(index), f"{path}.{kind.field(index).name}"):
                shown = zip(leaf.rows, valid, strict=True)
                yield leaf._replace(rows=[row if is_valid else None for row, is_valid in shown])
    elif pa.types.is_map(kind):
        for name, items in (("key", array.keys), ("value", array.items)):
            for leaf in leaves_of(items, f"{path}.{name}"):
                yield _in_lists(array, leaf)
    elif any(is_one(kind) for is_one in LISTS):
        for leaf in leaves_of(array.values, path):
            yield _in_lists(array, leaf)
    else:
        yield LeafRows(path, 0, _no_value(kind), _values(array))


def _in_lists(array: pa.Array, leaf: LeafRows) -> LeafRows:
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        offsets = [(array.offset + row) * size for row in range(len(array) + 1)]
    else:
        offsets = array.offsets.to_pylist()
    rows = [
        leaf.rows[offsets[row] : offsets[row + 1]] if is_valid else None
        for row, is_valid in enumerate(array.is_valid().to_pylist())
    ]
    return leaf._replace(num_lists=leaf.num_lists + 1, rows=rows)


def _no_value(kind: pa.DataType) -> Any:
    if kind in BYTES:
        return None
    if pa.types.is_null(kind):
        return np.int32(0)
    return stored_values(pa.nulls(1, kind))[0]


def _values(array: pa.Array) -> Any:
    if array.type in BYTES:
        is_large = array.type in (pa.large_string(), pa.large_binary())
        return array.view(pa.large_binary() if is_large else pa.binary()).to_pylist()
    if pa.types.is_null(array.type):
        return [None] * len(array)
    # As NumPy's numbers, which keep all their bits.
    stored = zip(stored_values(array), array.is_valid().to_pylist(), strict=True)
    return [value if is_valid else None for value, is_valid in stored]


class Flat(NamedTuple):
    """Rows as tensors hold them: offsets, the outermost first, values and masks."""

    offsets: list[np.ndarray]
    values: np.ndarray
    rows_valid: np.ndarray
    values_valid: np.ndarray


def flattened(leaf: LeafRows, rows: list[Any], fill: Any = 0) -> Flat:
    """Some rows of the leaf; null lists and strings are empty, null numbers are ``fill``."""
    rows_valid = np.array([row is not None for row in rows], bool)
    offsets = []
    for _ in range(leaf.num_lists):
        rows = [[] if row is None else row for row in rows]
        offsets.append(_offsets(rows))
        rows = list(chain.from_iterable(rows))
    values_valid = np.array([row is not None for row in rows], bool)
    if leaf.is_bytes:
        strings = [row or b"" for row in rows]
        offsets.append(_offsets(strings))
        values = np.frombuffer(b"".join(strings), np.uint8)
    else:
        filled = np.full_like(leaf.no_value, fill)
        values = np.empty((len(rows), *filled.shape), filled.dtype)
        for place, row in enumerate(rows):
            values[place] = filled if row is None else row
    return Flat(offsets, values, rows_valid, values_valid)


def _offsets(rows: list[Any]) -> np.ndarray:
    return np.cumsum([0, *map(len, rows)], dtype=np.int64)


def parts_of(value: Any) -> tuple[list[np.ndarray], np.ndarray]:
    """The offsets of a tensor of a batch, the outermost first, and its innermost values."""
    offsets = []
    while isinstance(value, Jagged):
        offsets.append(value.offsets.numpy())
        value = value.values
    return offsets, value.numpy()


def difference(batch: Mapping[str, Any], name: str, leaf: LeafRows, rows: list[Any]) -> str:
    """The faults of the field ``name``, read with masks, in a batch of these rows."""
    expected = flattened(leaf, rows)
    offsets, values = parts_of(batch[name])
    if len(offsets) != len(expected.offsets):
        return f"{name}: {len(offsets)} levels of offsets instead of {len(expected.offsets)}"
    pairs = {
        **{f"offsets {i}": pair for i, pair in enumerate(zip(offsets, expected.offsets))},  # noqa: B905
        "values": (values, expected.values),
        "valid": (batch[f"{name}.valid"].numpy(), expected.rows_valid),
    }
    has_lists = leaf.num_lists > 0
    if (f"{name}.values.valid" in batch) != has_lists:
        return f"{name}: a mask of values, or none, against expectation"
    if has_lists:
        pairs["values.valid"] = (batch[f"{name}.values.valid"].numpy(), expected.values_valid)
    wrong = [
        f"{name} {part}: {first_difference(*pair)}"
        for part, pair in pairs.items()
        if not same_bits(*pair)
    ]
    return "; ".join(wrong)


def assert_batches_are(
    batches: Iterable[Mapping[str, Any]], leaves: Mapping[str, LeafRows]
) -> None:
    """Each batch, read with masks, must hold the rows that follow those of the one before."""
    first, wrong = 0, []
    for batch in batches:
        num_rows = len(next(value for name, value in batch.items() if name.endswith(".valid")))
        for name, leaf in leaves.items():
            problem = difference(batch, name, leaf, leaf.rows[first : first + num_rows])
            wrong += [f"row {first}: {problem}"] if problem else []
        first += num_rows
    assert not wrong, wrong[:5]
    assert all(len(leaf.rows) == first for leaf in leaves.values())


def assert_table_reads_as(table: pa.Table, paths: Any, **options: Any) -> None:
    """Read with masks; every leaf must be that of the table, batch by batch."""
    options = {"batch_size": 100, "rank": 0, "world_size": 1, "nulls": "mask", **options}
    leaves = {leaf.path: leaf for leaf in table_leaves(table)}
    dataset = ParquetDataset(paths, columns=list(leaves), **options)
    assert_batches_are(dataset, leaves)
