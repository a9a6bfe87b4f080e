"""Values: every covered kind, nullability, encoding, codec and page shape, bit by bit."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.forked_programs import ran
from tests.fixtures.parquet_files import (
    CODECS,
    FALLBACK,
    KINDS,
    assert_reads_as,
    first_difference,
    kinds_table,
    random_array,
    read_all,
    same_bits,
    stored_values,
    validity,
    with_nulls,
    write,
)
from tests.fixtures.thrift_bytes import PLAIN, RLE_DICTIONARY, pages
from tests.oracles.arrow_leaves import assert_table_reads_as
from torchparquet import Column

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
TEMPORAL = tuple(kind for kind in KINDS if kind.startswith(("date", "time")))
DECIMALS = tuple(kind for kind in KINDS if kind.startswith("decimal"))


def data_page_encodings(path: Any, column: Any) -> Any:
    return {page.encoding for page in pages(path, column=column) if page.is_data}


DICTIONARY: dict[str, Any] = {"use_dictionary": True, "row_group_size": 700}
FEW = {"data_page_size": 64, "write_batch_size": 9}
WAYS: list[dict[str, Any]] = [
    *(DICTIONARY | {"compression": codec} for codec in CODECS),
    *(
        {"use_dictionary": False, "write_page_checksum": True, "row_group_size": 1100}
        | {"compression": codec, **sizes}
        for codec, sizes in itertools.product(("none", "zstd"), ({}, FEW))
    ),
]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("options", WAYS, ids=str)
def test_every_kind_and_nullability(tmp_path: Path, options: Any, version: str) -> None:
    """Dictionaries of a few values by each codec, and plain pages of many values and of few."""
    has_dictionary = options["use_dictionary"]
    table = kinds_table(1201, distinct=37 if has_dictionary else None)
    path = write(tmp_path / "a.parquet", table, data_page_version=version, **options)
    assert pq.read_metadata(path).row_group(0).column(5).has_dictionary_page == has_dictionary
    assert_reads_as(table, path, batch_size=333)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_fallback_from_dictionary_to_plain_within_a_column_chunk(
    tmp_path: Path, version: str
) -> None:
    """Numbers, strings, words and lists of these."""
    kinds = [kind for kind in KINDS if KINDS[kind].bit_width >= 16]
    numbers = kinds_table(4000, kinds, ["required", "some null"], distinct=3000)
    path = write(tmp_path / "a.parquet", numbers, **FALLBACK, data_page_version=version)
    assert_falls_back(path, numbers)
    assert_reads_as(numbers, path, batch_size=777)
    drawn = np.random.default_rng(3).integers(0, 2500, 12_000).tolist()
    texts = [f"{n:x}" * (n % 7) for n in drawn]
    cut = range(0, 12_001, 3)
    table = pa.table(
        {
            "s": texts[:4000],
            "null": [None if n % 4 == 0 else text for n, text in enumerate(texts[:4000])],
            "l": [drawn[i:j] if i % 2 else None for i, j in itertools.pairwise(cut)],
            "w": [texts[i:j] if i % 5 else [] for i, j in itertools.pairwise(cut)],
        }
    )
    path = write(tmp_path / "b.parquet", table, **FALLBACK, data_page_version=version)
    assert_falls_back(path, table)
    assert_table_reads_as(table, path, batch_size=777)
    vocab = list(dict.fromkeys(texts))[::3]
    codes = {word: number for number, word in enumerate(vocab)}
    for options in ({}, {"max_memory": 5000, "batch_size": 40}):
        read = read_all(path, columns={"s": Column("s", vocab=vocab)}, **options)
        assert read["s"].tolist() == [codes.get(text, -1) for text in texts[:4000]]


def assert_falls_back(path: str, table: pa.Table) -> None:
    for column in range(table.num_columns):
        assert data_page_encodings(path, column) == {RLE_DICTIONARY, PLAIN}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize(
    ("encoding", "kinds"),
    [
        ("DELTA_BINARY_PACKED", (*INTEGERS, *TEMPORAL)),
        ("BYTE_STREAM_SPLIT", (*INTEGERS, *FLOATS, *TEMPORAL, *DECIMALS)),
        ("DELTA_BYTE_ARRAY", (*DECIMALS, "float16")),
        ("RLE", ("bool",)),
    ],
)
@pytest.mark.mostly_long(every=3)
def test_encodings_of_the_fallback(tmp_path: Path, encoding: str, kinds: Any, version: str) -> None:
    # More than a decoder's block of values in a page, and several pages.
    table = kinds_table(11_000, kinds, ["required", "some null", "all null"])
    options: Any = {"data_page_size": 40_000, "write_batch_size": 100, "row_group_size": 9000}
    options |= {"column_encoding": dict.fromkeys(table.column_names, encoding)}
    options |= {"use_dictionary": False, "data_page_version": version}
    path = write(tmp_path / "a.parquet", table, **options)
    assert encoding in pq.read_metadata(path).row_group(0).column(0).encodings
    assert_reads_as(table, path, batch_size=2500, num_threads=2)


def test_groups_of_every_kind(tmp_path: Path) -> None:
    """[B, F] tensors interleave columns; nulls and masks keep their places."""
    rng = np.random.default_rng(5)
    names, arrays = [], []
    for kind in KINDS:
        for number in range(3):
            array = random_array(kind, 5001, rng, distinct=[None, 20, None][number])
            null = rng.random(5001) < (0, 0.2, 0.9)[number]
            names.append(f"{kind} {number}")
            arrays.append(with_nulls(array, null) if number else array)
    table = pa.table(arrays, names)
    path = write(tmp_path / "a.parquet", table, row_group_size=2600)
    columns = {kind: [f"{kind} {n}" for n in (2, 0, 1)] for kind in KINDS}
    read = read_all(path, columns=columns, nulls="mask", batch_size=2222)
    for kind, sources in columns.items():
        expected = np.stack([stored_values(table[s]) for s in sources], axis=1)
        assert same_bits(read[kind], expected), first_difference(read[kind], expected)
        expected = np.stack([validity(table[s]) for s in sources], axis=1)
        assert same_bits(read[f"{kind}.valid"], expected), kind


DUCKDB_SELECT = """
    select i % 2 = 0 as b, (i % 100)::tinyint as i8, (i % 9000)::smallint as i16,
      (i * 7919 % 40000)::integer as i32, i * 1000003 as i64, (i % 200)::utinyint as u8,
      (i % 60000)::usmallint as u16, (i * 104729)::uinteger as u32, (i * 15485863)::ubigint as u64,
      (i / 3.0)::float as f32, i / 7.0::double as f64, 42::integer as one,
      date '1969-12-25' + (i % 5000)::integer as d, time '00:00:01' + to_seconds(i % 80000) as t,
      timestamp '2020-01-01' + to_seconds(i) as ts, (timestamp '2020-01-01')::timestamp_ns as ns,
      (timestamp '2020-01-01' + to_seconds(i))::timestamp_ms as ms,
      (timestamp '2020-01-01' + to_seconds(i))::timestamptz as tz,
      (i / 20 - 500)::decimal(4, 1) as d4, (i / 7 - 500)::decimal(9, 3) as d9,
      (i * 1e9 - 5e12)::decimal(18, 4) as d18, (i * 1e20 - 5e23)::decimal(38, 9) as d38,
      case when i % 3 = 0 then null else i end as some_null, null::integer as all_null,
      case when (i // 700) % 2 = 0 then null else i::double end as runs
    from range(12000) t(i)
"""


@pytest.mark.parametrize("is_installed", [True, False])
def test_gzip_pages_with_and_without_the_package_deflate(
    tmp_path: Path, is_installed: bool
) -> None:
    """Its wheel must hold a libdeflate that can be called, else pages are read slowly."""
    if is_installed:
        pytest.importorskip("deflate", reason="there is no wheel of deflate for this processor")
    path = tmp_path / "a.parquet"
    values = np.arange(50_000) ** 2 % 1009
    pq.write_table(pa.table({"x": values}), path, compression="gzip", use_dictionary=False)
    program = f"""
import sys
from pathlib import Path
if not {is_installed}:
    sys.modules["deflate"] = None
from torchparquet import ParquetDataset
batches = ParquetDataset({str(path)!r}, batch_size=1000)
print(sum(int((batch["x"] * (i + 1)).sum()) for i, batch in enumerate(batches)))
print("/deflate/_deflate" in Path("/proc/self/maps").read_text())
"""
    expected = int((values.reshape(-1, 1000).sum(1) * (np.arange(50) + 1)).sum())
    done = ran(program)
    assert done.stdout.split() == [str(expected), str(is_installed)], done.stderr


@pytest.mark.mostly_long(every=3)
@pytest.mark.parametrize("version", ["V1", "V2"])
@pytest.mark.parametrize("codec", ["uncompressed", "snappy", "zstd", "gzip", "lz4_raw"])
def test_files_written_by_duckdb(tmp_path: Path, codec: str, version: str) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    path = str(tmp_path / "a.parquet")
    with duckdb.connect() as connection:
        connection.execute(
            f"copy ({DUCKDB_SELECT}) to '{path}' (format parquet, codec '{codec}', "
            f"parquet_version '{version}', row_group_size 5000)"
        )
    assert_reads_as(pq.read_table(path), path, batch_size=1024)
