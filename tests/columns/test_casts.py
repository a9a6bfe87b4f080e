"""Dtypes that are asked for: values as torch casts them, or an error that names the place."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from tests.fixtures.parquet_files import (
    KINDS,
    kinds_table,
    random_array,
    stored_values,
    validity,
    with_nulls,
    write,
)
from tests.fixtures.thrift_bytes import RLE_DICTIONARY, pages
from torchparquet import (
    CastError,
    Column,
    ParquetDataset,
    SchemaMismatchError,
    UnsupportedColumnError,
)

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
DTYPES = ("bool", *INTEGERS, *FLOATS)
PLAIN_KINDS = tuple(kind for kind in KINDS if not kind.startswith("decimal"))
DECIMALS = tuple(kind for kind in KINDS if kind.startswith("decimal"))
NUM_ROWS = 1500


def dtypes_of(kind: Any) -> Any:
    """The dtypes that values of a kind may be cast to."""
    if kind in FLOATS:
        return FLOATS
    if kind in DECIMALS:
        return ("int64", *FLOATS)
    return DTYPES if kind == "bool" else (*INTEGERS, *FLOATS)


def limits_of(dtype: str) -> Any:
    info = torch.iinfo(getattr(torch, dtype))
    return info.min, info.max


def cast(values: Any, dtype: str, fill: Any = None, valid: Any = None) -> Any:
    """The values by torch, and `fill` where they are not valid."""
    tensor = torch.from_numpy(np.ascontiguousarray(values)).to(getattr(torch, dtype))
    if valid is not None and not valid.all():
        # By their bits: torch does not fill all its unsigned types.
        as_bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.itemsize]
        stored = torch.tensor([fill], dtype=tensor.dtype).view(as_bits)
        tensor.view(as_bits)[torch.from_numpy(~valid)] = stored
    return tensor


def bits_of(tensor: Any) -> Any:
    """Bit patterns, of which all NaNs have the same one."""
    if tensor.is_floating_point():
        tensor = torch.where(tensor.isnan(), torch.full_like(tensor, torch.nan), tensor)
    return tensor.contiguous().view(torch.uint8)


def assert_same(actual: Any, expected: Any, place: Any = "") -> None:
    assert actual.dtype == expected.dtype, place
    assert actual.shape == expected.shape, place
    assert torch.equal(bits_of(actual), bits_of(expected)), place


def read_tensors(paths: Any, columns: Any, **options: Any) -> Any:
    options = {"batch_size": 400, "rank": 0, "world_size": 1, **options}
    batches = list(ParquetDataset(paths, columns=columns, **options))
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}


def in_range(
    kind: Any, dtype: str, num_rows: int = NUM_ROWS, distinct: Any = None, seed: int = 0
) -> Any:
    """An array of a kind, without null, whose every value a dtype holds; its limits are there."""
    rng = np.random.default_rng([seed, num_rows])
    array = random_array(kind, num_rows, rng, distinct)
    if dtype not in INTEGERS or kind == "bool" or kind in DECIMALS:
        return array
    low, high = limits_of(dtype)
    width = KINDS[kind].bit_width
    if kind.startswith("u"):
        low, high = max(low, 0), min(high, 2**width - 1)
    else:
        low, high = max(low, -(2 ** (width - 1))), min(high, 2 ** (width - 1) - 1)
    if kind.startswith("time["):
        low, high = max(low, 0), min(high, 80_000_000)
    words = rng.integers(0, 2**63, num_rows).tolist()
    values = [low + word % (high - low + 1) for word in words]
    if distinct is not None:
        values = [values[word % distinct] for word in words]
    values[:2] = [low, high]
    storage = pa.uint64() if kind == "uint64" else pa.int64()
    plain = pa.array(values, storage)
    if pa.types.is_temporal(KINDS[kind]):
        plain = plain.cast(pa.int32()) if width == 32 else plain
    return plain.cast(KINDS[kind])


def encodings_of(kind: Any) -> Iterator[Any]:
    """How values may be stored, as options of the writer."""
    plain = {"use_dictionary": False}
    yield "plain", plain
    if kind == "bool":
        yield "runs", {**plain, "column_encoding": {"x": "RLE"}}
        return
    yield "dictionary", {"use_dictionary": True}
    if not kind.startswith("float"):
        yield "delta", {**plain, "column_encoding": {"x": "DELTA_BINARY_PACKED"}}
    yield "split", {**plain, "column_encoding": {"x": "BYTE_STREAM_SPLIT"}}


PAIRS = [(kind, dtype) for kind in PLAIN_KINDS for dtype in dtypes_of(kind)]


@pytest.mark.parametrize(("kind", "dtype"), PAIRS)
@pytest.mark.mostly_long(every=12)
def test_every_cast_of_every_encoding(tmp_path: Path, kind: Any, dtype: Any) -> None:
    """As torch casts what is read without a dtype, whose own values other tests check."""
    null = np.random.default_rng(3).random(NUM_ROWS) < 0.2
    layout = {"row_group_size": 1100, "data_page_size": 600, "write_batch_size": 60}
    one = True if dtype == "bool" else 1
    fills: dict[Any, Any] = {"mask": 0, one: one}
    fills |= {None: torch.nan, "nan": torch.nan, 0.1: 0.1} if dtype in FLOATS else {}
    columns = {str(nulls): Column("x", dtype=dtype, nulls=nulls) for nulls in fills}
    for name, options in encodings_of(kind):
        array = in_range(kind, dtype, distinct=50 if name == "dictionary" else None)
        for column in (array, with_nulls(array, null)):
            path = write(tmp_path / "a.parquet", pa.table({"x": column}), **layout, **options)
            if name == "dictionary":
                assert RLE_DICTIONARY in {page.encoding for page in pages(path) if page.is_data}
            read = read_tensors(path, columns)
            for nulls, fill in fills.items():
                expected = cast(stored_values(column), dtype, fill, validity(column))
                assert_same(read[str(nulls)], expected, (name, nulls))
            assert torch.equal(read["mask.valid"], torch.from_numpy(validity(column)))


NARROWER = [
    (kind, dtype)
    for kind, dtype in itertools.product(INTEGERS, INTEGERS)
    if limits_of(kind)[0] < limits_of(dtype)[0] or limits_of(kind)[1] > limits_of(dtype)[1]
]


@pytest.mark.parametrize(("kind", "dtype"), NARROWER)
def test_the_first_beyond_the_limits_names_value_and_place(
    tmp_path: Path, kind: Any, dtype: Any
) -> None:
    (low, high), (least, greatest) = limits_of(dtype), limits_of(kind)
    limits = sorted({max(low - 1, least), min(high + 1, greatest), least, greatest})
    beyond = [n for n in limits if not low <= n <= high]
    for dictionary, wrong in itertools.product((False, True), beyond):
        values = [max(low, least)] * 250
        values[170], values[180] = wrong, beyond[0]
        table = pa.table({"s": pa.StructArray.from_arrays([pa.array(values, kind)], ["x"])})
        path = write(tmp_path / "a.parquet", table, row_group_size=100, use_dictionary=dictionary)
        with pytest.raises(CastError) as caught:
            read_tensors(path, {"o": Column("s.x", dtype=dtype)})
        message = str(caught.value)
        for part in (dtype, f": {wrong}:", path, "row group 1", "'s.x'"):
            assert part in message, part
        assert isinstance(caught.value, ValueError)


def test_values_of_other_rows_need_not_fit(tmp_path: Path) -> None:
    """Those that are null here, or in a row group of another rank."""
    ids = np.arange(400)
    values = np.where(ids < 100, ids % 7, 1000)
    mask = (ids >= 100) & (ids < 200)
    path = write(
        tmp_path / "a.parquet", pa.table({"x": pa.array(values, mask=mask)}), row_group_size=200
    )
    columns = {"o": Column("x", dtype="int8", nulls=-1)}
    read = read_tensors(path, columns, world_size=2)["o"]
    assert read.tolist() == [*(ids[:100] % 7).tolist(), *[-1] * 100]
    with pytest.raises(CastError, match="int8: 1000"):
        read_tensors(path, columns, rank=1, world_size=2)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bool"])
def test_refused_casts_fail_at_construction(tmp_path: Path, kind: Any) -> None:
    path = write(tmp_path / "a.parquet", kinds_table(5, [kind, "bool"], ["required"]))
    refused = [dtype for dtype in DTYPES if dtype not in dtypes_of(kind)]
    assert "bool" in refused
    for dtype in refused:
        for source in (f"{kind} required", [f"{kind} required"]):
            with pytest.raises(UnsupportedColumnError) as caught:
                ParquetDataset(path, batch_size=1, columns={"o": Column(source, dtype=dtype)})
            message = str(caught.value)
            for part in (repr(f"{kind} required"), kind, f"as {dtype}", path, *dtypes_of(kind)):
                assert part in message, part


# Files that hold a column in different kinds


def files_of(folder: Any, kinds: Any, num_rows: int = 300) -> Any:
    """One file for each kind; the column "x" counts on from file to file, in steps of 1."""
    paths = []
    for number, kind in enumerate(kinds):
        first = number * num_rows
        array = pa.array(np.arange(first, first + num_rows))
        if pa.types.is_decimal(kind):
            array = array.cast(pa.decimal128(38, kind.scale))
        array = array.cast(kind)
        paths.append(
            write(folder / f"{number}.parquet", pa.table({"x": array}), row_group_size=200)
        )
    return paths


DRIFT = [
    (pa.int32(), pa.int64(), pa.uint16()),
    (pa.int64(), pa.int32()),
    (pa.float32(), pa.float64(), pa.int64()),
    (pa.decimal128(9, 2), pa.decimal128(30, 5), pa.int32(), pa.float32()),
]


@pytest.mark.parametrize("kinds", DRIFT, ids=str)
@pytest.mark.parametrize("num_threads", [1, 3])
def test_kinds_that_drift_are_read_as_one_dtype(
    tmp_path: Path, kinds: Any, num_threads: int
) -> None:
    paths = files_of(tmp_path, kinds)
    expected = np.arange(300 * len(kinds))
    whole = all(pa.types.is_integer(kind) for kind in kinds)
    for dtype in ("float64", "float32", *(("int64", "uint16") if whole else ())):
        for columns in ({"o": Column("x", dtype=dtype)}, {"o": Column(["x"], dtype=dtype)}):
            read = read_tensors(paths, columns, num_threads=num_threads, batch_size=77)["o"]
            assert_same(read.flatten(), cast(expected, dtype))
    for columns in (None, ["x"], {"o": "x"}, {"o": Column("x", nulls=0)}):  # type: ignore[assignment]
        with pytest.raises(SchemaMismatchError, match="dtype=") as caught:
            ParquetDataset(paths, batch_size=1, columns=columns)
        for part in (paths[0], paths[1], "'x'"):
            assert part in str(caught.value)


def test_cast_error_of_a_drifted_file_names_that_file(tmp_path: Path) -> None:
    paths = files_of(tmp_path, [pa.int32(), pa.int64()])
    with pytest.raises(CastError, match="uint8: 256") as caught:
        read_tensors(paths, {"o": Column("x", dtype="uint8")})
    assert paths[0] in str(caught.value)
    more = write(tmp_path / "2.parquet", pa.table({"x": pa.array([40000], pa.uint16())}))
    with pytest.raises(CastError, match="int16: 40000") as caught:
        read_tensors([*paths, more], {"o": Column("x", dtype="int16")})
    assert more in str(caught.value)


def scaled(values: list[int], scale: int) -> pa.Array:
    return pa.array(list(map(Decimal, values)), pa.decimal128(9, scale))


FILES = {
    "ms": pa.array([1, 2], pa.timestamp("ms")),
    "us": pa.array([1000, 2000], pa.timestamp("us")),
    "utc": pa.array([3, 4], pa.timestamp("ms", "UTC")),
    "date": pa.array([1, 2], pa.date32()),
    "int": pa.array([5, 6], pa.int64()),
    "float": pa.array([5, 6], pa.float32()),
    "string": pa.array(["5", "6"]),
    **{f"scale {scale}": scaled([5, 6], scale) for scale in (0, 2, 3)},
}


@pytest.mark.parametrize(
    ("first", "second", "dtype", "values"),
    [
        ("ms", "us", "int32", 'unit="us"'),
        ("ms", "utc", "int64", [1, 2, 3, 4]),
        *((one, "int", "int64", "'x' in what its values mean") for one in ("date", "ms")),
        *(("scale 2", o, "int64", "'x' in what its values mean") for o in ("int", "scale 3")),
        ("int", "scale 0", "int64", [5, 6, 5, 6]),
        ("scale 2", "scale 3", "float64", [5, 6, 5, 6]),
        ("int", "scale 2", "float32", [5, 6, 5, 6]),
        *(("int", "float", dtype, text) for dtype, text in (("int64", "float32"),)),
        *(("string", "int", dtype, "string") for dtype in ("int64", "float32")),
    ],
)
def test_files_that_mean_different_things_are_not_mixed(
    tmp_path: Path, first: str, second: str, dtype: str, values: list[int] | str
) -> None:
    columns = {"x": Column("x", dtype=dtype)}
    for names in ((first, second), (second, first)):
        paths = [write(tmp_path / f"{n}.parquet", pa.table({"x": FILES[n]})) for n in names]
        if isinstance(values, str):
            with pytest.raises((SchemaMismatchError, UnsupportedColumnError), match=values):
                ParquetDataset(paths, batch_size=4, columns=columns)
        else:
            (batch,) = ParquetDataset(paths, batch_size=4, columns=columns)
            assert sorted(batch["x"].tolist()) == sorted(values)
