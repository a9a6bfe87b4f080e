"""Tables of every covered kind, files made of them, and pyarrow's reading as the oracle."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from torchparquet import ParquetDataset

# Every kind that is covered: what the reader calls it, how pyarrow spells it.
KINDS: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date": pa.date32(),
    "time[ms]": pa.time32("ms"),
    "time[us]": pa.time64("us"),
    "time[ns]": pa.time64("ns"),
    "timestamp[ms]": pa.timestamp("ms"),
    "timestamp[us]": pa.timestamp("us"),
    "timestamp[ns]": pa.timestamp("ns"),
    "timestamp[ms, UTC]": pa.timestamp("ms", "UTC"),
    "timestamp[us, UTC]": pa.timestamp("us", "UTC"),
    "timestamp[ns, UTC]": pa.timestamp("ns", "UTC"),
    "decimal(5, 2)": pa.decimal128(5, 2),
    "decimal(18, 0)": pa.decimal128(18, 0),
    "decimal(38, 10)": pa.decimal128(38, 10),
}
NULLABILITIES = ("required", "no null", "some null", "long runs", "all null")
CODECS = ("none", "snappy", "lz4", "zstd", "gzip", "brotli")
_DAY = {"time[ms]": 86_400 * 10**3, "time[us]": 86_400 * 10**6, "time[ns]": 86_400 * 10**9}


def random_array(
    kind: str, num_rows: int, rng: np.random.Generator, distinct: int | None = None
) -> pa.Array:
    """Values of any bit pattern that the kind allows, without null; few `distinct` ones."""
    count = num_rows if distinct is None else distinct
    width = KINDS[kind].bit_width
    if pa.types.is_decimal(KINDS[kind]):
        decimals = decimal_array(KINDS[kind], random_unscaled(KINDS[kind].precision, count, rng))
        if distinct is None:
            return decimals
        return decimals.take(pa.array(rng.integers(0, distinct, num_rows)))
    if kind == "bool":
        # True leads, so that one distinct value is the one a zeroed batch does not hold.
        values = np.where(np.arange(count) % 3 == 0, True, rng.random(count) < 0.5)
    else:
        values = rng.integers(0, 256, count * width // 8, dtype=np.uint8).view(f"u{width // 8}")
    if kind in _DAY:
        values = (values % _DAY[kind]).astype(values.dtype)
    if distinct is not None:
        values = values[rng.integers(0, distinct, num_rows)]
    return from_bits(kind, values)


def random_unscaled(precision: int, count: int, rng: np.random.Generator) -> list[int]:
    """Integers of any number of digits up to `precision`, the limits among them."""
    limit = 10**precision - 1
    digits = rng.integers(1, precision + 1, count).tolist()
    words = [int.from_bytes(rng.bytes(17), "little") for _ in range(count)]
    values = [
        (word >> 1) % 10**length * (1 if word & 1 else -1)
        for word, length in zip(words, digits, strict=True)
    ]
    for place in range(1, count, 97):
        values[place] = limit if place % 2 else -limit
    return values


def decimal_array(kind: pa.DataType, unscaled: Iterable[int | None]) -> pa.Array:
    """Decimals of the type `kind`, in units of their last digit; None is null."""
    values = list(unscaled)
    stored = [(value or 0).to_bytes(kind.byte_width, "little", signed=True) for value in values]
    data = pa.py_buffer(b"".join(stored))
    validity = pa.array([value is not None for value in values], pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(kind, len(values), [validity if None in values else None, data])


def from_bits(kind: str, values: np.ndarray) -> pa.Array:
    """An array whose values have the bit patterns `values`."""
    if kind == "bool":
        return pa.array(values)
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(KINDS[kind], len(values), [None, data])


def with_nulls(array: pa.Array, null: np.ndarray) -> pa.Array:
    """`array` with nulls where the mask is True."""
    validity = pa.array(~null).buffers()[1]
    return pa.Array.from_buffers(array.type, len(array), [validity, array.buffers()[1]])


def _nulls(nullability: str, num_rows: int, rng: np.random.Generator) -> np.ndarray:
    if nullability == "all null":
        return np.ones(num_rows, bool)
    if nullability == "some null":
        return rng.random(num_rows) < 0.3
    if nullability == "long runs":
        return (np.arange(num_rows) // 173) % 2 == 1
    return np.zeros(num_rows, bool)


def kinds_table(
    num_rows: int,
    kinds: Iterable[str] = KINDS,
    nullabilities: Iterable[str] = NULLABILITIES,
    distinct: int | None = None,
    seed: int = 0,
) -> pa.Table:
    """One column for each kind and nullability, named "<kind> <nullability>"."""
    rng = np.random.default_rng([seed, num_rows])
    fields, arrays = [], []
    for kind in kinds:
        for nullability in nullabilities:
            required = nullability == "required"
            fields.append(pa.field(f"{kind} {nullability}", KINDS[kind], nullable=not required))
            array = random_array(kind, num_rows, rng, distinct)
            null = _nulls(nullability, num_rows, rng)
            arrays.append(with_nulls(array, null) if null.any() else array)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def write(path: Path, table: pa.Table, **options: Any) -> str:
    """Write a table by pyarrow."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return str(path)


def id_files(folder: Path, *files: list[int]) -> str:
    """Files of row groups with the given numbers of rows; "id" counts over all of them.

    "x" is float32 of the id, "even" a nullable int32 that is null where the id is odd.
    """
    folder.mkdir(parents=True, exist_ok=True)
    first = 0
    for number, row_groups in enumerate(files):
        path = folder / f"{number:03}.parquet"
        with pq.ParquetWriter(path, id_table(0, 0).schema, compression="none") as writer:
            for num_rows in row_groups:
                writer.write_table(id_table(first, num_rows))
                first += num_rows
        assert row_group_rows(path) == row_groups
    return str(folder)


def id_table(first: int, num_rows: int) -> pa.Table:
    """The rows from `first` on of what `id_files` writes."""
    ids = np.arange(first, first + num_rows)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "x": pa.array(ids.astype(np.float32)),
            "even": pa.array(ids.astype(np.int32), mask=ids % 2 == 1),
        }
    )


def row_group_rows(path: Path | str) -> list[int]:
    """Rows of each row group, by pyarrow."""
    metadata = pq.read_metadata(path)
    return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]


def stored_values(column: pa.Array | pa.ChunkedArray, fill: Any = 0) -> np.ndarray:
    """What a tensor of the column holds, bit by bit; `fill` where it is null."""
    array = _one_array(column)
    if pa.types.is_boolean(array.type):
        values = array.fill_null(bool(fill)).to_numpy(zero_copy_only=False)
        return values.astype(bool)
    if pa.types.is_decimal(array.type):
        # float() of a Decimal is the nearest double.
        decimals = array.to_pylist()
        return np.array([fill if d is None else float(d) for d in decimals], np.float64)
    if pa.types.is_fixed_size_binary(array.type):
        return _fixed_bytes(array, fill)
    dtype = _storage_dtype(array.type)
    if len(array) == 0 or array.buffers()[1] is None:
        values = np.zeros(len(array), dtype)
    else:
        values = np.frombuffer(array.buffers()[1], dtype)[array.offset :][: len(array)].copy()
    values[~validity(array)] = fill
    return values.astype(np.int64) if pa.types.is_temporal(array.type) else values


def _fixed_bytes(array: pa.Array, fill: int) -> np.ndarray:
    """Uint8 `[rows, bytes]` of binary of a fixed size."""
    size = array.type.byte_width
    cells = [bytes([fill]) * size if cell is None else cell for cell in array.to_pylist()]
    return np.frombuffer(b"".join(cells), np.uint8).reshape(-1, size)


def validity(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Bool `[rows]`: False where the column is null."""
    return _one_array(column).is_valid().to_numpy(zero_copy_only=False).astype(bool)


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _storage_dtype(kind: pa.DataType) -> np.dtype[Any]:
    if pa.types.is_temporal(kind):
        return np.dtype(f"i{kind.bit_width // 8}")
    return np.dtype(kind.to_pandas_dtype())


def column_at(table: pa.Table, path: str) -> pa.Array:
    """The leaf at a dotted path; null also where a struct around it is."""
    if path in table.column_names:
        return _one_array(table.column(path))
    outer, *inner = path.split(".")
    array = _one_array(table.column(outer))
    for name in inner:
        array = array.flatten()[array.type.get_field_index(name)]
    return array


def gathered(batches: Iterable[dict[str, Any]]) -> dict[str, np.ndarray]:
    """All rows of some batches, which stay alive together until the last one is read."""
    kept = list(batches)
    return {name: np.concatenate([batch[name].numpy() for batch in kept]) for name in kept[0]}


def read_all(paths: Any, **options: Any) -> dict[str, np.ndarray]:
    """All rows of one epoch, by the package, as a single rank."""
    options = {"batch_size": 1000, "rank": 0, "world_size": 1, **options}
    return gathered(ParquetDataset(paths, **options))


def ids_of(dataset: ParquetDataset) -> list[int]:
    """The "id" of every row of one epoch, in order."""
    return [row for batch in dataset for row in batch["id"].tolist()]


def same_bits(actual: np.ndarray, expected: np.ndarray) -> bool:
    """Whether two arrays have the same dtype, shape and bytes, NaN payloads among them."""
    return (
        actual.dtype == expected.dtype
        and actual.shape == expected.shape
        and np.ascontiguousarray(actual).tobytes() == np.ascontiguousarray(expected).tobytes()
    )


def assert_reads_as(table: pa.Table, path: Any, **options: Any) -> None:
    """Read with masks; every column and mask must be bit by bit that of the table."""
    read = read_all(path, nulls="mask", **options)
    wrong = []
    for name in table.column_names:
        column = table.column(name)
        if not same_bits(read[name], stored_values(column)):
            wrong.append(f"{name}: {first_difference(read[name], stored_values(column))}")
        if not same_bits(read[f"{name}.valid"], validity(column)):
            wrong.append(
                f"{name}.valid: {first_difference(read[name + '.valid'], validity(column))}"
            )
    assert not wrong
    assert set(read) == {f"{n}{s}" for n in table.column_names for s in ("", ".valid")}


def first_difference(actual: np.ndarray, expected: np.ndarray) -> str:
    """Where two arrays begin to differ, in words."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"{actual.dtype}{actual.shape} instead of {expected.dtype}{expected.shape}"
    width = actual.dtype.itemsize
    bits = [np.ascontiguousarray(a).view(f"u{width}").ravel() for a in (actual, expected)]
    rows = np.flatnonzero(bits[0] != bits[1])
    if not rows.size:
        return "no difference"
    row = int(rows[0])
    return (
        f"{rows.size} of {len(bits[0])} differ, first at {row}: "
        f"{bits[0][row]:#x} instead of {bits[1][row]:#x}"
    )


def batch_lengths(num_rows: int, batch_size: int, drop_last: bool = False) -> list[int]:
    """Rows of each batch of a share of `num_rows` rows."""
    borders = [*range(0, num_rows, batch_size), num_rows]
    lengths = [end - begin for begin, end in pairwise(borders)]
    return [n for n in lengths if n == batch_size] if drop_last else lengths
