"""Strings and binary: every way to store them, every policy for nulls, however they are read."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from tests.fixtures.datasets import batches_of
from tests.fixtures.parquet_files import CODECS, write
from tests.fixtures.thrift_bytes import PLAIN, RLE_DICTIONARY, pages
from tests.oracles.arrow_leaves import assert_table_reads_as
from torchparquet import (
    Column,
    ParquetDataset,
    SchemaMismatchError,
)

ENCODINGS = {
    "PLAIN": PLAIN,
    "dictionary": RLE_DICTIONARY,
    "DELTA_LENGTH_BYTE_ARRAY": 6,
    "DELTA_BYTE_ARRAY": 7,
}
SPECIAL = ["", "\0", "a\0b", "\0\0", "é", "日本語", "x" * 31, "y" * 32, "z" * 33, "", "q" * 3000]


def words(num_rows: int, distinct: int = 10**6, seed: int = 0) -> Any:
    """Strings of 0 to 41 bytes that often begin as the one before does."""
    rng = np.random.default_rng(seed)
    numbers = np.sort(rng.integers(0, distinct, num_rows))
    return [f"{n:x}" * (n % 7) + SPECIAL[n % 10] * (n % 3 == 0) for n in numbers.tolist()]


def nulled(values: Any, null: Any) -> Any:
    return [None if is_null else value for value, is_null in zip(values, null, strict=True)]


def strings_table(
    num_rows: int, distinct: int = 10**6, kind: Any = None, seed: int = 0
) -> pa.Table:
    """A column for each way that nulls may lie in it."""
    rng = np.random.default_rng([seed, num_rows])
    kind = kind or pa.string()
    values = words(num_rows, distinct, seed)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        values = [b"\xff\xfe" + value.encode() for value in values]
    null = {
        "no null": np.zeros(num_rows, bool),
        "some null": rng.random(num_rows) < 0.3,
        "long runs": (np.arange(num_rows) // 173) % 2 == 1,
        "all null": np.ones(num_rows, bool),
    }
    arrays = {"required": values} | {name: nulled(values, null[name]) for name in null}
    fields = [pa.field(name, kind, nullable=name != "required") for name in arrays]
    return pa.table([pa.array(a, kind) for a in arrays.values()], schema=pa.schema(fields))


def encoded(
    encoding: Any, names: Any = ("required", "no null", "some null", "long runs", "all null")
) -> dict[str, Any]:
    """Options of the writer for all columns."""
    if encoding == "dictionary":
        return {"use_dictionary": True}
    return {"use_dictionary": False, "column_encoding": dict.fromkeys(names, encoding)}


def rows_of(batches: Any, name: str) -> Any:
    return [row for batch in batches for row in batch[name].to_bytes()]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_page_version_and_codec(
    tmp_path: Path, encoding: str, codec: Any, version: str
) -> None:
    table = strings_table(1201, distinct=40 if encoding == "dictionary" else 10**6)
    options = {"compression": codec, "data_page_version": version, "row_group_size": 700}
    path = write(tmp_path / "a.parquet", table, **options, **encoded(encoding))
    assert {page.encoding for page in pages(path) if page.is_data} == {ENCODINGS[encoding]}
    assert_table_reads_as(table, path, batch_size=500)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_strings_of_every_length(tmp_path: Path, encoding: str) -> None:
    """Around the lengths that are copied in one piece; NUL bytes and none; a mebibyte."""
    long = "".join(map(chr, range(32, 127))) * (2**20 // 95 + 1)
    values = [*SPECIAL, *("n" * n for n in range(70)), long, "", long[1:], "end"]
    table = pa.table({"s": values, "b": [value.encode() + b"\xff" for value in values]})
    path = write(tmp_path / "a.parquet", table, **encoded(encoding, ("s", "b")))
    for batch_size in (1, 7, 1000):
        assert_table_reads_as(table, path, batch_size=batch_size)


@pytest.mark.parametrize(
    "kinds",
    [
        [pa.string(), pa.large_string(), pa.string_view()],
        [pa.binary(), pa.large_binary(), pa.binary()],
    ],
    ids=str,
)
def test_arrow_types_of_strings_are_one(tmp_path: Path, kinds: list[pa.DataType]) -> None:
    """Each alone, and all in one data set."""
    tables = [strings_table(150, kind=kinds[0], seed=seed) for seed in range(3)]
    for number, (table, kind) in enumerate(zip(tables, kinds, strict=True)):
        schema = pa.schema([field.with_type(kind) for field in table.schema])
        path = write(tmp_path / f"{number}.parquet", table.cast(schema), row_group_size=40)
        assert_table_reads_as(table, path)
    assert_table_reads_as(pa.concat_tables(tables), tmp_path, batch_size=37)


def test_categories_are_their_strings(tmp_path: Path) -> None:
    table = strings_table(500, distinct=20)
    arrays = [column.combine_chunks().dictionary_encode() for column in table.columns]
    path = write(tmp_path / "a.parquet", pa.table(arrays, names=table.column_names))
    assert_table_reads_as(table, path)


@pytest.mark.parametrize("policy", ["empty", "mask"])
def test_null_strings_are_empty(tmp_path: Path, policy: Any) -> None:
    """And told from empty ones by the mask alone."""
    path = write(tmp_path / "a.parquet", pa.table({"s": ["a", None, "", "bb", None]}))
    for column, nulls in ((Column("s", nulls=policy), None), ("s", policy)):
        (batch,) = batches_of(path, {"o": column}, nulls=nulls)
        assert batch["o"].to_str() == ["a", "", "", "bb", ""]
        assert batch["o"].offsets.tolist() == [0, 1, 1, 1, 3, 3]
        assert set(batch) == {"o", *(["o.valid"] if policy == "mask" else [])}
        if policy == "mask":
            assert batch["o.valid"].tolist() == [True, False, True, True, False]


@pytest.mark.parametrize("default", ["", "x", "ü" * 40, b"\xff\0"])
@pytest.mark.parametrize("order", [{}, {"shuffle": True, "shuffle_window": 2}])
def test_a_default_for_files_that_lack_the_column(
    tmp_path: Path, default: str | bytes, order: Any
) -> None:
    """The first file of a window may lack it."""
    for number in range(4):
        ids = pa.array(range(10 * number, 10 * number + 10))
        table = pa.table({"i": ids})
        if number % 2:
            table = table.append_column("s", pa.array([f"s{i}" for i in ids.to_pylist()]))
        write(tmp_path / f"{number}.parquet", table, row_group_size=4)
    columns: Any = {"i": "i", "s": Column("s", default=default, nulls="mask")}
    text = default.encode() if isinstance(default, str) else default
    found: dict[int, bytes] = {}
    for batch in ParquetDataset(tmp_path, batch_size=3, columns=columns, **order):
        assert batch["s.valid"].all()
        found |= dict(zip(batch["i"].tolist(), batch["s"].to_bytes(), strict=True))
    assert found == {i: f"s{i}".encode() if i // 10 % 2 else text for i in range(40)}


def test_strings_and_binary_are_one_only_as_bytes(tmp_path: Path) -> None:
    one = write(tmp_path / "data" / "a.parquet", pa.table({"s": ["a"]}))
    two = write(tmp_path / "data" / "b.parquet", pa.table({"s": [b"\xff"]}))
    with pytest.raises(SchemaMismatchError, match=r"string in .*binary in") as caught:
        ParquetDataset(tmp_path / "data", batch_size=1)
    assert one in str(caught.value)
    assert two in str(caught.value)
    batches = batches_of(tmp_path / "data", {"s": Column("s", dtype=torch.uint8)})
    assert rows_of(batches, "s") == [b"a", b"\xff"]


def test_a_batch_that_outgrows_the_memory_is_an_error_of_its_column(tmp_path: Path) -> None:
    """In one row group, and joined from several; it tells what helps."""
    table = pa.table({"s": [bytes(range(256)) * 2**9] * 20, "i": range(20)})
    for row_group_size in (1, 20):
        layout = {"row_group_size": row_group_size, "use_dictionary": False}
        path = write(tmp_path / f"{row_group_size}.parquet", table, **layout)
        iterator = iter(
            ParquetDataset(path, batch_size=20, max_memory="1MiB", rank=0, world_size=1)
        )
        for _ in range(2):
            with pytest.raises(MemoryError, match=r"smaller batch_size.*column 's'"):
                next(iterator)
        assert_table_reads_as(table, path, batch_size=2, max_memory="1MiB")


BATCH_ROWS = 64


def skewed(draws: random.Random, num_batches: int) -> list[str]:
    """Every third batch is of long ones: threads wait, but never for good."""
    rows = []
    for _ in range(num_batches):
        least, most = (2000, 6000) if draws.random() < 0.3 else (0, 20)
        rows += ["x" * draws.randint(least, most) for _ in range(BATCH_ROWS)]
    return rows


@pytest.mark.timeout(90)
@pytest.mark.parametrize("num_threads", [2, 3])
@pytest.mark.long
def test_every_string_comes_however_the_threads_wait(tmp_path: Path, num_threads: int) -> None:
    draws = random.Random(num_threads)
    for _ in range(10):
        batches_per_group = draws.choice([2, 4, 7])
        rows = skewed(draws, 8 * batches_per_group)
        layout = {"row_group_size": BATCH_ROWS * batches_per_group, "use_dictionary": False}
        path = write(tmp_path / "a.parquet", pa.table({"s": rows}), **layout)
        for max_memory in ("512KiB", "1MiB", "2MiB"):
            dataset = ParquetDataset(
                path, batch_size=BATCH_ROWS, num_threads=num_threads, max_memory=max_memory
            )
            for _ in range(15):
                found: list[int] = []
                for batch in dataset:
                    found += batch["s"].offsets.diff().tolist()
                assert found == list(map(len, rows))
