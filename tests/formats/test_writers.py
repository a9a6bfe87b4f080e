"""One table by several writers, each in the ways that it has: the same tensors from all files."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import duckdb
import fastparquet
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.fixtures.parquet_files import row_group_rows, write
from tests.oracles.arrow_leaves import assert_table_reads_as
from torchparquet import Column, ParquetDataset

NUM_ROWS = 5000
WORDS = ("", "a", "é", "word", "\0", "a longer word than can be kept in one register, that is")


def flat_table() -> pa.Table:
    """Numbers, bools, strings and moments, most of them with nulls."""
    rng = np.random.default_rng(0)
    words = [WORDS[i % 6] * (i % 3) for i in rng.integers(0, 60, NUM_ROWS).tolist()]
    columns = {
        "n": pa.array(rng.integers(0, 200, NUM_ROWS), pa.int32()),
        "f": pa.array(rng.standard_normal(NUM_ROWS)),
        "b": pa.array(rng.random(NUM_ROWS) < 0.3),
        "s": pa.array(words),
        "y": pa.array([word.encode() + b"\xff" for word in words]),
        "t": pa.array(rng.integers(0, 2**50, NUM_ROWS)).cast(pa.timestamp("us")),
    }
    with_nulls = {
        name: pc.if_else(pa.array(rng.random(NUM_ROWS) < 0.1), None, column)
        for name, column in columns.items()
    }
    return pa.table({"i": rng.integers(-(2**62), 2**62, NUM_ROWS)} | with_nulls)


def nested_table() -> pa.Table:
    """Lists of numbers and strings, lists of lists, a struct with a list."""
    rng = np.random.default_rng(1)

    def lists(draw: Any, null_share: float = 0.1) -> Any:
        lengths = rng.integers(0, 5, NUM_ROWS).tolist()
        null = rng.random(NUM_ROWS) < null_share
        return [None if is_null else draw(n) for is_null, n in zip(null, lengths, strict=True)]

    def numbers(count: Any) -> Any:
        return [None if v % 7 == 0 else v for v in rng.integers(0, 300, count).tolist()]

    def strings(count: Any) -> Any:
        return [WORDS[i] if i else None for i in rng.integers(0, 6, count).tolist()]

    structs = [
        {"a": value, "l": row} for value, row in zip(numbers(NUM_ROWS), lists(numbers), strict=True)
    ]
    kind = pa.struct([("a", pa.int64()), ("l", pa.list_(pa.int64()))])
    return pa.table(
        {
            "l": pa.array(lists(numbers), pa.list_(pa.int64())),
            "w": pa.array(lists(strings), pa.list_(pa.string())),
            "d": pa.array(
                lists(lambda n: [numbers(i) if i else None for i in range(n)]),
                pa.list_(pa.list_(pa.int64())),
            ),
            "r": pa.array(structs, kind),
        }
    )


@pytest.fixture(scope="module")
def flat() -> Any:
    return flat_table()


@pytest.fixture(scope="module")
def nested() -> Any:
    return nested_table()


def by_pyarrow(path: Path, table: pa.Table, **options: Any) -> Any:
    return write(path, table, row_group_size=2100, write_batch_size=50, **options)


def by_duckdb(path: Path, table: pa.Table, **options: Any) -> str:
    settings = {"format": "parquet", "row_group_size": 2048, **options}
    text = ", ".join(f"{name} '{value}'" for name, value in settings.items())
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("given", table)
        connection.execute(f"COPY given TO '{path}' ({text})")
    return str(path)


def by_polars(path: Path, table: pa.Table, **options: Any) -> str:
    frame = pl.from_arrow(table)
    frame.write_parquet(path, row_group_size=2100, **options)  # type: ignore[union-attr]
    return str(path)


def by_fastparquet(
    path: Path, table: pa.Table, version: int = 1, page_values: Any = None, **options: Any
) -> str:
    """Flat columns alone: it has no lists."""
    frame = table.to_pandas().astype({"n": "Int32", "b": "boolean", "t": "datetime64[us]"})
    options |= {"row_group_offsets": [0, 2100, 4200], "write_index": False}
    with pytest.MonkeyPatch.context() as patch:
        # It takes these from its environment when it is imported.
        patch.setattr(fastparquet.writer, "DATAPAGE_VERSION", version)
        if page_values is not None:
            patch.setattr(fastparquet.writer, "MAX_PAGE_SIZE", page_values * 8)
        encoding = {"s": "utf8", "y": "bytes"}
        fastparquet.write(str(path), frame, object_encoding=encoding, **options)
    return str(path)


product = itertools.product
OPTIONS: dict[Any, tuple[tuple[str, ...], tuple[Any, ...]]] = {
    by_pyarrow: (
        ("data_page_version", "compression", "use_dictionary", "data_page_size"),
        (*product(("1.0", "2.0"), ("none", "zstd"), (True, False), (200, 2**20)),),
    ),
    by_duckdb: (
        ("parquet_version", "compression", "dictionary_size_limit"),
        (
            *product(("V1", "V2"), ("uncompressed", "zstd"), (1, 10**6)),
            *product(("V2",), ("snappy", "gzip", "lz4_raw", "brotli"), (10**6,)),
        ),
    ),
    by_polars: (
        ("compression", "data_page_size"),
        (
            *product(("uncompressed", "zstd"), (500, 2**20)),
            *product(("snappy", "gzip", "lz4", "brotli"), (500,)),
        ),
    ),
    by_fastparquet: (
        ("version", "compression", "page_values"),
        (
            *product((1, 2), ("UNCOMPRESSED", "ZSTD"), (None, 100)),
            *product((1,), ("SNAPPY", "GZIP"), (100,)),
        ),
    ),
}
WAYS = [
    pytest.param(writer, dict(zip(names, of_way, strict=True)), id=f"{writer.__name__} {of_way}")
    for writer, (names, ways) in OPTIONS.items()
    for of_way in ways
]


@pytest.mark.parametrize(("writer", "options"), WAYS)
@pytest.mark.mostly_long(every=9)
def test_flat_columns(tmp_path: Path, flat: Any, writer: Any, options: Any) -> None:
    path = writer(tmp_path / "a.parquet", flat, **options)
    assert len(row_group_rows(path)) == 3
    assert_table_reads_as(flat, path, batch_size=1024)


@pytest.mark.parametrize(("writer", "options"), [w for w in WAYS if w.values[0] != by_fastparquet])
@pytest.mark.mostly_long(every=9)
def test_nested_columns(tmp_path: Path, nested: Any, writer: Any, options: Any) -> None:
    path = writer(tmp_path / "a.parquet", nested, **options)
    assert len(row_group_rows(path)) == 3
    assert_table_reads_as(nested, path, batch_size=1024)


def test_files_of_all_writers_are_one_data_set(tmp_path: Path, flat: Any, nested: Any) -> None:
    """Batches go from one writer's rows to the next one's."""
    names = flat.column_names + nested.column_names
    both = pa.table(flat.columns + nested.columns, names)
    for number, writer in enumerate((by_pyarrow, by_duckdb, by_polars)):
        writer(tmp_path / f"{number}.parquet", both)
    expected = pa.concat_tables([both] * 3)
    for batch_size in (999, 7001):
        assert_table_reads_as(expected, tmp_path, batch_size=batch_size, num_threads=3)


def test_fixed_size_arrays(tmp_path: Path) -> None:
    """DuckDB's and Polars' arrays are lists of one length, as pyarrow's are."""
    rows = np.random.default_rng(4).standard_normal((3000, 6))
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 6)})
    columns = {"x": Column("x", length=6, nulls="error")}
    for number, writer in enumerate((by_pyarrow, by_duckdb, by_polars)):
        path = writer(tmp_path / f"{number}.parquet", table)
        dataset = ParquetDataset(path, columns=columns, batch_size=701, rank=0, world_size=1)
        read = np.concatenate([batch["x"].numpy() for batch in dataset])
        assert (read == rows).all()
