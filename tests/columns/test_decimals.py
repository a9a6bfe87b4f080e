"""Decimals in their four stored forms, and timestamps in the old form of 96 bits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.fixtures.datasets import open_alone
from tests.fixtures.parquet_files import (
    assert_reads_as,
    decimal_array,
    random_unscaled,
    read_all,
    same_bits,
    stored_values,
    validity,
    write,
)
from tests.fixtures.thrift_bytes import (
    pages,
)
from torchparquet import (
    CastError,
    Column,
    NullValueError,
    ParquetDataset,
    UnsupportedColumnError,
)

SHAPES = [
    *[(1, 0), (2, 2), (4, 1), (5, 5), (9, 2), (11, 0), (14, 3), (16, 16), (18, 4), (19, 0)],
    *[(21, 20), (23, 22), (24, 23), (28, 7), (31, 30), (33, 1), (36, 18), (38, 0), (38, 10)],
    (38, 38),
]
FORMS = ("fixed bytes", "integers")
FLOATS = ("float16", "bfloat16", "float32", "float64")
INT64 = (-(2**63), 2**63 - 1)
ROWS = 1200


def stored_as(form: Any, **options: Any) -> dict[str, Any]:
    return {"store_decimal_as_integer": form == "integers", **options}


def decimals(
    precision: Any, scale: Any, num_rows: int = ROWS, distinct: Any = None, null_share: float = 0.0
) -> Any:
    """Decimals of every number of digits, and their unscaled values."""
    rng = np.random.default_rng([precision, scale])
    values = random_unscaled(precision, distinct or num_rows, rng)
    if distinct:
        values = [values[i] for i in rng.integers(0, distinct, num_rows)]
    values = [
        None if null else value  # type: ignore[misc]
        for value, null in zip(values, rng.random(num_rows) < null_share, strict=True)
    ]
    return decimal_array(pa.decimal128(precision, scale), values), values


def layouts_of(precision: int, form: str) -> Iterator[dict[str, Any]]:
    """Pages of few values, by each encoding of a form."""
    pages_of_few = {"row_group_size": 700, "data_page_size": 900, "write_batch_size": 60}
    yield stored_as(form, use_dictionary=True, compression="zstd", **pages_of_few)
    is_integer = form == "integers" and precision <= 18
    other = "DELTA_BINARY_PACKED" if is_integer else "DELTA_BYTE_ARRAY"
    for encoding in ("PLAIN", "BYTE_STREAM_SPLIT", other):
        options = {"use_dictionary": False, "compression": "none", "column_encoding": encoding}
        yield stored_as(form, **options, **pages_of_few)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("precision", "scale"), SHAPES)
@pytest.mark.mostly_long(every=3)
def test_every_precision_is_the_nearest_double(
    tmp_path: Path, precision: int, scale: int, form: str
) -> None:
    """Or as torch casts that one, or with int64 the unscaled value."""
    array, _ = decimals(precision, scale, null_share=0.3)
    unscaled = random_unscaled(min(precision, 18), ROWS, np.random.default_rng(1))
    if precision >= 19:
        unscaled[:4] = [*INT64, 0, -1]
    table = pa.table(
        {
            "many": decimals(precision, scale)[0],
            "few": decimals(precision, scale, distinct=min(60, 10**precision))[0],
            "null": array,
            "int64": decimal_array(pa.decimal128(precision, scale), unscaled),
        }
    )
    physical = {"integers": "INT32" if precision < 10 else "INT64"}.get(form)
    columns = {dtype: Column("null", dtype=dtype, nulls="mask") for dtype in FLOATS}
    for options in layouts_of(precision, form):
        path = write(tmp_path / "a.parquet", table, **options)
        chunk = pq.read_metadata(path).row_group(0).column(0)
        assert options.get("column_encoding", "RLE_DICTIONARY") in chunk.encodings
        assert physical is None or precision > 18 or chunk.physical_type == physical
        assert_reads_as(table, path, batch_size=333)
        (batch,) = open_alone(path, batch_size=ROWS, columns=columns)
        for dtype in FLOATS:
            expected = torch.from_numpy(stored_values(array)).to(getattr(torch, dtype))
            assert batch[dtype].dtype == expected.dtype
            assert torch.equal(batch[dtype].view(torch.uint8), expected.view(torch.uint8))
        read = read_all(path, columns={"o": Column("int64", dtype="int64")})["o"]
        assert same_bits(read, np.array(unscaled, np.int64))


def test_nulls(tmp_path: Path) -> None:
    array, values = decimals(9, 2, null_share=0.3)
    for form in FORMS:
        path = write(tmp_path / f"{form}.parquet", pa.table({"x": array}), **stored_as(form))
        columns = {
            "f": Column("x", nulls=0.1),
            "m": Column("x", nulls="mask", dtype="int64"),
            "g": Column(["x"], nulls=-7, dtype="int64"),
        }
        read = read_all(path, columns=columns)
        assert same_bits(read["f"], stored_values(array, 0.1))
        assert read["m"].tolist() == [value or 0 for value in values]
        assert same_bits(read["m.valid"], validity(array))
        filled = [-7 if value is None else value for value in values]
        assert same_bits(read["g"], np.array(filled, np.int64)[:, None])
        with pytest.raises(NullValueError, match="'x'"):
            read_all(path, columns={"o": Column("x", dtype="int64")})


# Decimals of varying length, which pyarrow does not write


def corpus_file(name: str) -> Any:
    folder = os.environ.get("PARQUET_TEST_DATA", "")
    path = Path(folder) / name
    if not folder or not path.exists():
        pytest.skip("PARQUET_TEST_DATA names no directory of parquet-testing files")
    return path


def byte_array_file(path: Path, *stored: Any) -> None:
    """24 decimals(4, 2) of varying length, 1.00 to 24.00, or of those stored: 47 bytes in all.

    Each stands after its length, in one page with 6 bytes of levels.
    """
    content = corpus_file("byte_array_decimal.parquet").read_bytes()
    path.write_bytes(content)
    (page,) = pages(path)
    if not stored:
        return
    body = b"".join(len(value).to_bytes(4, "little") + value for value in stored)
    assert len(body) == page.end - page.begin - 6
    path.write_bytes(content[: page.begin + 6] + body + content[page.end :])


def test_varying_length_of_every_sign_and_padding(tmp_path: Path) -> None:
    """Also of no bytes, which are 0."""
    path = tmp_path / "a.parquet"
    numbers = [-1, 9999, *range(-11, 11)]
    sizes = [16, 9, *[1] * 22]
    stored = [n.to_bytes(size, "big", signed=True) for n, size in zip(numbers, sizes, strict=True)]
    short = [b"", b"\xff", bytes(16), bytes(14), *[b"\1"] * 16, *[b""] * 4]
    for cells in ([], stored, stored[::-1], short):
        byte_array_file(path, *cells)
        expected = np.array([int.from_bytes(cell, "big", signed=True) for cell in cells])
        expected = expected if cells else np.arange(100, 2500, 100)
        column = {"o": Column("value", dtype="int64"), "f": Column("value", dtype="float32")}
        assert same_bits(read_all(str(path))["value"], expected / 100)
        for batch_size in (1, 5, 100):
            read = read_all(str(path), columns=column, batch_size=batch_size)
            assert same_bits(read["o"], expected)
            assert same_bits(read["f"], (expected / 100).astype("float32"))


# Timestamps of 96 bits

FIRST, LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
MOMENTS = [
    *[0, -1, 1, 1_700_000_000_123_456_789, -(86_400 * 10**9), 86_400 * 10**9 - 1, LAST],
    *[FIRST + 1, FIRST + 86_400 * 10**9],
    int(np.datetime64("1677-09-22T00:00:00", "ns").astype(np.int64)),
    int(np.datetime64("2262-04-11T23:47:16", "ns").astype(np.int64)),
]


@pytest.mark.parametrize("dictionary", [False, True])
def test_int96_as_int64_nanoseconds(tmp_path: Path, dictionary: bool) -> None:
    rng = np.random.default_rng(2)
    values = np.array(MOMENTS + rng.integers(FIRST, LAST, 2000 - len(MOMENTS)).tolist())
    null = rng.random(2000) < 0.2
    arrays = {"x": pa.array(values), "null": pa.array(values, mask=null)}
    table = pa.table({name: array.cast(pa.timestamp("ns")) for name, array in arrays.items()})
    options = {"use_deprecated_int96_timestamps": True, "use_dictionary": dictionary}
    layout = {"row_group_size": 1500, "data_page_size": 900, "write_batch_size": 70}
    path = write(tmp_path / "a.parquet", table, **options, **layout)
    assert pq.read_metadata(path).schema.column(0).physical_type == "INT96"
    assert_reads_as(pq.read_table(path), path, batch_size=333)
    assert same_bits(read_all(path, columns=["x"])["x"], values)
    for dtype in ("float32", "float64", "bfloat16"):
        columns = {"o": Column("x", dtype=dtype)}
        (batch,) = open_alone(path, batch_size=2000, columns=columns)
        expected = torch.from_numpy(values).to(getattr(torch, dtype))
        assert torch.equal(batch["o"].view(torch.uint8), expected.view(torch.uint8))
    for dtype in ("int32", "uint64", "bool"):
        with pytest.raises(UnsupportedColumnError, match=r"timestamp\[int96\]"):
            ParquetDataset(path, batch_size=1, columns={"o": Column("x", dtype=dtype)})


@pytest.mark.parametrize("year", [1, 1677, 2263, 9999])
@pytest.mark.parametrize("dictionary", [False, True])
def test_int96_beyond_int64_nanoseconds(tmp_path: Path, year: int, dictionary: bool) -> None:
    moments = [datetime(2020, 1, 2), datetime(year, 1, 2), datetime(2020, 1, 2)]
    path = write(
        tmp_path / "a.parquet",
        pa.table({"x": pa.array(moments, pa.timestamp("us"))}),
        use_deprecated_int96_timestamps=True,
        use_dictionary=dictionary,
    )
    with pytest.raises(CastError, match=r"nanoseconds.*float64.*row group 0, column 'x'") as caught:
        read_all(path)
    julian_day = (datetime(year, 1, 2) - datetime(1, 1, 1)).days + 1_721_426
    assert str(julian_day) in str(caught.value)
    assert path in str(caught.value)
    seconds = [(moment - datetime(1970, 1, 1)).days * 86_400 for moment in moments]
    for dtype in ("float64", "float32"):
        read = read_all(path, columns={"o": Column("x", dtype=dtype)})["o"]
        assert same_bits(read, np.array([s * 10**9 for s in seconds], object).astype(dtype))
