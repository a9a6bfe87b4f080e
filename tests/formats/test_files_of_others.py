"""What old writers and those of other languages store otherwise than pyarrow, read all the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.datasets import batches_of
from tests.fixtures.generated_pages import (
    BIT_PACKED,
    RLE,
    Entry,
    Levels,
    list_entries,
    page,
    write_pages,
)
from tests.fixtures.parquet_files import read_all, write
from tests.fixtures.thrift_bytes import (
    META_CODEC,
    META_COMPRESSED_BYTES,
    META_DICTIONARY_OFFSET,
    META_UNCOMPRESSED_BYTES,
    column_metadata,
    encoded_struct,
    footer_begin,
    pages,
    pages_of,
    replaced,
    varint,
    zigzag,
)
from tests.oracles.arrow_leaves import assert_batches_are, assert_table_reads_as, table_leaves
from torchparquet import Column, CorruptFileError, ParquetDataset

REQUIRED = Levels(0, 0)


def small_table(num_rows: int = 3000) -> pa.Table:
    """Numbers, strings and lists, which compress."""
    rng = np.random.default_rng(num_rows)
    lists = [None if n % 7 == 0 else rng.integers(0, 9, n % 5).tolist() for n in range(num_rows)]
    return pa.table(
        {
            "i": pa.array(np.arange(num_rows) // 3),
            "s": pa.array([None if n % 5 == 0 else f"text {n % 40}" for n in range(num_rows)]),
            "l": pa.array(lists, pa.list_(pa.int64())),
            "w": pa.array([["a", None, "bc"][: n % 4] for n in range(num_rows)]),
        }
    )


def with_footer(content: bytes, old: bytes, new: bytes) -> bytes:
    """`content` with other bytes in its footer, and the footer's length set right."""
    begin = footer_begin(content)
    assert content[begin:].count(old) == 1
    changed = content[begin:-8].replace(old, new)
    return content[:begin] + changed + len(changed).to_bytes(4, "little") + b"PAR1"


def rows_of(path: Any, name: str, **options: Any) -> list[Any]:
    """All rows of a column of lists or of strings."""
    given: dict[str, Any] = {"batch_size": 2, "rank": 0, "world_size": 1, "columns": [name]}
    return [
        row for batch in ParquetDataset(path, **given | options) for row in batch[name].to_list()
    ]


# Sizes


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "gzip", "lz4", "brotli"])
@pytest.mark.parametrize("told", ["nothing", "compressed"])
def test_the_footers_size_of_decompressed_pages_is_no_bound(
    tmp_path: Path, codec: str, told: str
) -> None:
    """DuckDB before 0.6 told 0, parquet.js the compressed size; each page's header is right."""
    table = small_table()
    path = tmp_path / "a.parquet"
    write(path, table, compression=codec, row_group_size=2000, data_page_size=900)
    content = path.read_bytes()
    for group, column in itertools.product(range(2), range(table.num_columns)):
        metadata = column_metadata(content, group, column)
        size = metadata[META_COMPRESSED_BYTES].value if told == "compressed" else 0
        content = replaced(content, metadata[META_UNCOMPRESSED_BYTES], size)
    path.write_bytes(content)
    assert pq.read_table(path) == table
    assert_table_reads_as(table, path, batch_size=300)
    assert_table_reads_as(table, path, batch_size=300, max_memory="64KiB", num_threads=2)


def created_by(path: Path, name: bytes) -> None:
    """Put another writer's name into a file."""
    own = pq.read_metadata(path).created_by.encode()
    old, new = (varint(len(text)) + text for text in (own, name))
    path.write_bytes(with_footer(path.read_bytes(), old, new))


OLD_WRITERS = [
    b"parquet-mr",
    b"parquet-mr version 1.2.5 (build abc)",
    b"parquet-mr version 1.2.8",
]


@pytest.mark.parametrize("writer", OLD_WRITERS)
@pytest.mark.parametrize("is_short", [False, True])
def test_old_parquet_mr(tmp_path: Path, writer: bytes, is_short: bool) -> None:
    """It left the header of a dictionary page out of a column chunk's size."""
    table = small_table(700)
    path = tmp_path / "a.parquet"
    options = {"compression": "none", "data_page_size": 500, "write_statistics": False}
    write(path, table, row_group_size=400, use_dictionary=is_short, **options)
    content = path.read_bytes()
    for group, column in itertools.product(range(2), range(table.num_columns if is_short else 0)):
        metadata = column_metadata(content, group, column)
        header_bytes = pages_of(content, metadata)[0].begin - metadata[META_DICTIONARY_OFFSET].value
        size = metadata[META_COMPRESSED_BYTES]
        content = replaced(content, size, size.value - header_bytes)
    path.write_bytes(content)
    created_by(path, writer)
    assert pq.read_table(path) == table
    assert_table_reads_as(table, path, batch_size=90)
    for name in table.column_names:
        assert_table_reads_as(table.select([name]), path, batch_size=90)


def hadoop_page(path: Path, framed: bytes, num_values: int) -> str:
    """A file of one page of int64, in the codec LZ4."""
    details = encoded_struct({1: num_values, 2: 0, 3: 3, 4: 3})
    header = encoded_struct({1: 0, 2: 8 * num_values, 3: len(framed), 5: details})
    field = pa.field("x", pa.int64(), nullable=False)
    write_pages(path, field, num_values, [header + framed], num_values)
    content = path.read_bytes()
    path.write_bytes(replaced(content, column_metadata(content, 0, 0)[META_CODEC], 5))
    return str(path)


@pytest.mark.parametrize("parts", [[8000], [4000, 4000], [1000] * 8, [3000, 1, 0, 4999]])
@pytest.mark.parametrize("num_blocks", [1, 2])
def test_lz4_of_hadoop(tmp_path: Path, parts: list[int], num_blocks: int) -> None:
    """Blocks, each its content's size and then several parts, each after its size."""
    values = np.random.default_rng(1).integers(0, 50, 1000 * num_blocks)
    body = values.astype("<i8").tobytes()
    framed, at = b"", 0
    for _ in range(num_blocks):
        framed += (8000).to_bytes(4, "big")
        for size in parts:
            part = pa.compress(body[at : at + size], codec="lz4_raw", asbytes=True)
            framed += len(part).to_bytes(4, "big") + part
            at += size
    path = tmp_path / "a.parquet"
    assert read_all(hadoop_page(path, framed, len(values)))["x"].tolist() == values.tolist()
    for damaged in (framed[:-3], framed[:4] + b"\xff" + framed[5:]):
        with pytest.raises(CorruptFileError, match="decompress"):
            read_all(hadoop_page(path, damaged, len(values)))


# Values


@pytest.mark.parametrize(
    ("kind", "stored", "expected"),
    [
        (pa.uint8(), [0, 1, 127, -128, -1, 128, 255], [0, 1, 127, 128, 255, 128, 255]),
        (pa.uint16(), [0, 32767, -32768, -1, 65535], [0, 32767, 32768, 65535, 65535]),
        (pa.int8(), [0, 127, -128, -1, 128, 255], [0, 127, -128, -1, -128, -1]),
        (pa.int16(), [32767, -32768, 32768, 65535], [32767, -32768, -32768, -1]),
    ],
)
def test_small_integers_are_extended_with_their_sign_or_without(
    tmp_path: Path, kind: Any, stored: list[int], expected: list[int]
) -> None:
    field = pa.field("x", kind, nullable=False)
    made = page([Entry(0, 0, value) for value in stored], REQUIRED)
    path = write_pages(tmp_path / "a.parquet", field, len(stored), [made], len(stored))
    assert pq.read_table(path)["x"].to_pylist() == expected
    assert read_all(path)["x"].tolist() == expected
    wide = read_all(path, columns={"o": Column("x", dtype="int64")})
    assert wide["o"].tolist() == expected
    for wrong in (2**kind.bit_width, -(2 ** (kind.bit_width - 1)) - 1):
        made = page([Entry(0, 0, wrong)], REQUIRED)
        path = write_pages(tmp_path / "a.parquet", field, 1, [made], 1)
        with pytest.raises(CorruptFileError, match="stored value does not fit"):
            read_all(path)


def test_uint32_by_duckdb(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    query = "SELECT ((i * 2654435761) % 4294967296)::UINTEGER AS x FROM range(5000) t(i)"
    duckdb.sql(f"COPY ({query}) TO '{path}' (FORMAT parquet, PARQUET_VERSION V2)")
    assert pages(path)[-1].encoding == 5
    expected = [i * 2654435761 % 2**32 for i in range(5000)]
    assert read_all(path)["x"].tolist() == expected


# A null in each place where arrays of a fixed length may have one, as SQL, and the rows.
ARRAYS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "array": (
        "CASE WHEN i % 3 = 1 THEN NULL ELSE [i, NULL, i + 2]::INTEGER[3] END",
        lambda i: None if i % 3 == 1 else [i, None, i + 2],
    ),
    "array of strings": (
        "CASE WHEN i % 3 = 1 THEN NULL ELSE ['a' || i, NULL]::VARCHAR[2] END",
        lambda i: None if i % 3 == 1 else [f"a{i}", None],
    ),
    "list of arrays": (
        "CASE WHEN i % 4 = 1 THEN NULL ELSE [[i, 1, 2], NULL, [i, 3, 4]]::INTEGER[3][] END",
        lambda i: None if i % 4 == 1 else [[i, 1, 2], None, [i, 3, 4]],
    ),
    "array of arrays": (
        "CASE WHEN i % 4 = 1 THEN NULL WHEN i % 4 = 2 THEN [NULL, NULL]"
        " ELSE [[i, 1, 2], NULL] END::INTEGER[3][2]",
        lambda i: None if i % 4 == 1 else [[i, 1, 2] if i % 4 != 2 else None, None],
    ),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("batch_size", [pytest.param(1, marks=pytest.mark.long), 7, 1000])
def test_null_arrays_by_duckdb(tmp_path: Path, name: str, batch_size: int) -> None:
    """It fills a null up with as many entries as the array is long."""
    path = tmp_path / "a.parquet"
    query, row = ARRAYS[name]
    duckdb.sql(f"COPY (SELECT {query} AS x FROM range(3000) t(i)) TO '{path}' (FORMAT parquet)")
    rows = [row(i) for i in range(3000)]
    items = {"array": pa.int32(), "array of strings": pa.string()}
    kind = pa.list_(items.get(name, pa.list_(pa.int32())))
    with duckdb.connect() as connection:
        assert connection.execute(f"FROM '{path}' LIMIT 9").fetchall()[1] == (None,)
    assert_table_reads_as(pa.table({"x": pa.array(rows, kind)}), path, batch_size=batch_size)
    for selected in (range(1, 3000, 3), range(0, 3000, 17)):
        found = rows_of(path, "x", nulls="mask", rows=list(selected))
        assert [len(row) for row in found] == [len(rows[i] or []) for i in selected]
    if name == "array":
        columns = {"x": Column("x", length=3, nulls=-7)}
        expected = [[-7 if v is None else v for v in row or [None] * 3] for row in rows]
        read = read_all(path, columns=columns, batch_size=batch_size)
        assert read["x"].tolist() == expected


# Types


def typed(path: Path, logical: bytes) -> None:
    """Give the first column, of strings, another logical type."""
    old = b"\x25\0\x4c\x1c\0\0"  # converted type UTF8, logical type STRING
    path.write_bytes(with_footer(path.read_bytes(), old, b"\x6c" + logical))


@pytest.mark.parametrize("number", [17, 18, 40])
def test_logical_types_that_tensors_do_not_have_are_bytes(tmp_path: Path, number: int) -> None:
    """GEOMETRY, GEOGRAPHY and a type of the future; other files have plain binary."""
    rows = [b"\1\2", None, b"", b"\3" * 40]
    texts = pa.array([None if row is None else row.decode() for row in rows])
    path = tmp_path / "a.parquet"
    write(path, pa.table({"g": texts}), store_schema=False, write_statistics=False)
    typed(path, b"\x0c" + zigzag(number) + b"\0\0")
    write(tmp_path / "b.parquet", pa.table({"g": pa.array(rows, pa.binary())}))
    for paths, count in ((path, 1), (tmp_path, 2)):
        found = rows_of(paths, "g", nulls="empty")
        assert [bytes(row) for row in found] == [row or b"" for row in rows] * count


def test_geometry_by_duckdb(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    duckdb.sql(
        "COPY (SELECT i AS id, ('POINT(' || i || ' 2)')::GEOMETRY AS g FROM range(30) t(i))"
        f" TO '{path}' (FORMAT parquet, GEOPARQUET_VERSION 'V2')"
    )
    assert "Geometry" in str(pq.ParquetFile(path).schema)
    expected = pq.ParquetFile(path, arrow_extensions_enabled=False).read()["g"].to_pylist()
    assert [bytes(row) for row in rows_of(path, "g")] == expected


# Levels


def random_lists(num_rows: int, longest: int, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    rows: list[Any] = []
    for length in rng.integers(-2, longest + 1, num_rows).tolist():
        values = rng.integers(-(2**31), 2**31, max(length, 0)).tolist()
        values = [None if rng.random() < 0.2 else value for value in values]
        rows.append(None if length == -2 else values)
    return rows


@pytest.mark.parametrize("encoding", [RLE, BIT_PACKED])
@pytest.mark.parametrize("page_entries", [1, 2, 7, 100, 1000])
def test_rows_over_several_pages(tmp_path: Path, page_entries: int, encoding: int) -> None:
    """Short rows and long ones; batches, ranks and slices begin in the middle of pages."""
    rows = [*random_lists(40, 5, 2), list(range(600)), [], *random_lists(10, 30, 3)]
    kind, entries = pa.list_(pa.int32()), list_entries(rows)
    parts = [entries[i : i + page_entries] for i in range(0, len(entries), page_entries)]
    made = [page(part, Levels(1, 3), encoding) for part in parts]
    field = pa.field("x", kind)
    path = write_pages(tmp_path / "a.parquet", field, len(rows), made, len(entries))
    table = pa.table({"x": pa.array(rows, kind)})
    for batch_size, max_memory in ((1, "4KiB"), (7, "4KiB"), (7, "1GiB"), (None, "1GiB")):
        options = {"max_memory": max_memory, "num_threads": 2}
        assert_table_reads_as(table, path, batch_size=batch_size, **options)
    for rank in range(3):
        options = {"row_ids": True, "nulls": "mask", "rank": rank, "world_size": 3}
        batches = batches_of(path, ["x"], batch_size=10, **options)
        seen = [i for batch in batches for i in batch["row.id"].tolist()]
        (leaf,) = table_leaves(table.take(seen))
        assert_batches_are(batches, {"x": leaf})


def test_fewer_values_than_levels_say(tmp_path: Path) -> None:
    entries = [Entry(0, 3, 7), Entry(1, 3, 8), Entry(0, 3, 9)]
    made = page(entries, Levels(1, 3), missing_bytes=1)
    path = write_pages(tmp_path / "a.parquet", pa.field("x", pa.list_(pa.int32())), 2, [made], 3)
    with pytest.raises(CorruptFileError, match=r"fewer values.*a\.parquet"):
        batches_of(path, ["x"])


# Summaries


def test_a_summary_says_what_it_is(tmp_path: Path) -> None:
    parts: list[pq.FileMetaData] = []
    table = pa.table({"x": list(range(100))})
    pq.write_to_dataset(table, tmp_path / "data", metadata_collector=parts)
    summary = tmp_path / "data" / "_metadata"
    pq.write_metadata(table.schema, summary, metadata_collector=parts)
    assert parts[0].row_group(0).column(0).file_path
    common = tmp_path / "data" / "_common_metadata"
    pq.write_metadata(table.schema, common)
    for path in (summary, common):
        with pytest.raises(ValueError, match=rf"stored in other files.*directory.*{path.name}"):
            ParquetDataset(path, batch_size=10)
    assert sorted(read_all(tmp_path / "data")["x"].tolist()) == list(range(100))


@pytest.mark.parametrize("named", ["../elsewhere.parquet", "a.parquet/b", "b.parquet", "é"])
def test_pages_in_another_file_are_not_read_from_this_one(tmp_path: Path, named: str) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"x": list(range(100)), "y": list(range(100))})
    for name in (named, "a.parquet"):
        collected: list[pq.FileMetaData] = []
        write(path, table, metadata_collector=collected)
        collected[0].set_file_path(name)
        pq.write_metadata(table.schema, tmp_path / "footer", metadata_collector=collected)
        content = path.read_bytes()
        foot = (tmp_path / "footer").read_bytes()[4:]
        path.write_bytes(content[: footer_begin(content)] + foot)
        if name == named:
            with pytest.raises(ValueError, match="stored in another file") as caught:
                ParquetDataset(path, batch_size=10)
            assert str(path) in str(caught.value)
        else:  # a file may name itself
            assert read_all(path)["x"].tolist() == list(range(100))
