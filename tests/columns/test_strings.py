"""Strings and binary: every way to store them, every policy for nulls, however they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader

from tests.fixtures.datasets import batches_of
from tests.fixtures.parquet_files import CODECS, write
from tests.fixtures.thrift_bytes import PLAIN, RLE_DICTIONARY, pages
from tests.oracles.arrow_leaves import assert_batches_are, assert_table_reads_as, table_leaves
from torchparquet import (
    Column,
    Jagged,
    NullValueError,
    ParquetDataset,
    SchemaMismatchError,
    UnsupportedColumnError,
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
) -> pa.DataType:
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
    fields = [pa.field("required", kind, nullable=False), *(pa.field(name, kind) for name in null)]
    arrays = [values, *(nulled(values, of_column) for of_column in null.values())]
    return pa.Table.from_arrays(
        [pa.array(array, kind) for array in arrays], schema=pa.schema(fields)
    )


def encoded(
    encoding: Any, names: Any = ("required", "no null", "some null", "long runs", "all null")
) -> dict[str, Any]:
    """Options of the writer for all columns."""
    if encoding == "dictionary":
        return {"use_dictionary": True}
    return {"use_dictionary": False, "column_encoding": dict.fromkeys(names, encoding)}


def rows_of(batches: Any, name: str) -> Any:
    return [row for batch in batches for row in batch[name].to_bytes()]


def as_bytes(values: Any) -> Any:
    return [value if value is None else value.encode() for value in values]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_page_version_and_codec(
    tmp_path: Path, encoding: str, codec: Any, version: str
) -> None:
    table = strings_table(1201, distinct=40 if encoding == "dictionary" else 10**6)
    path = write(
        tmp_path / "a.parquet",
        table,
        compression=codec,
        data_page_version=version,
        row_group_size=700,
        **encoded(encoding),
    )
    assert {page.encoding for page in pages(path) if page.is_data} == {ENCODINGS[encoding]}
    assert_table_reads_as(table, path, batch_size=500)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_pages_of_few_values(tmp_path: Path, encoding: str, version: str) -> None:
    """Batches begin and end within pages and blocks, pages within batches."""
    table = strings_table(700, distinct=150)
    path = write(
        tmp_path / "a.parquet",
        table,
        data_page_version=version,
        data_page_size=64,
        write_batch_size=9,
        row_group_size=500,
        write_page_checksum=True,
        **encoded(encoding),
    )
    assert len(pages(path)) > 40
    for batch_size in (1, 333, None):
        assert_table_reads_as(table, path, batch_size=batch_size)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_fallback_from_dictionary_to_plain_within_a_column_chunk(
    tmp_path: Path, version: str
) -> None:
    table = strings_table(3000, distinct=2500)
    path = write(
        tmp_path / "a.parquet",
        table,
        dictionary_pagesize_limit=1500,
        data_page_size=300,
        write_batch_size=100,
        data_page_version=version,
    )
    for column in range(4):
        encodings = {page.encoding for page in pages(path, column=column) if page.is_data}
        assert encodings == {RLE_DICTIONARY, PLAIN}
    assert_table_reads_as(table, path, batch_size=777)


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
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()],
    ids=str,
)
def test_arrow_types_of_strings_are_one_in_a_file(tmp_path: Path, kind: pa.DataType) -> None:
    plain = pa.binary() if "binary" in str(kind) else pa.string()
    table = strings_table(200, kind=plain)
    schema = pa.schema([field.with_type(kind) for field in table.schema])
    path = write(tmp_path / "a.parquet", table.cast(schema), store_schema=False)
    assert_table_reads_as(table, path)


def test_categories_are_their_strings(tmp_path: Path) -> None:
    table = strings_table(500, distinct=20)
    arrays = [column.combine_chunks().dictionary_encode() for column in table.columns]
    path = write(tmp_path / "a.parquet", pa.table(arrays, names=table.column_names))
    assert_table_reads_as(table, path)


@pytest.mark.parametrize("policy", ["empty", "mask"])
@pytest.mark.parametrize("how", ["column", "data set"])
def test_null_strings_are_empty(tmp_path: Path, policy: str, how: str) -> None:
    """And told from empty ones by the mask alone."""
    path = write(tmp_path / "a.parquet", pa.table({"s": ["a", None, "", "bb", None]}))
    columns = {"o": Column("s", nulls=policy)} if how == "column" else {"o": "s"}  # type: ignore[arg-type]
    (batch,) = batches_of(path, columns, nulls=None if how == "column" else policy)
    assert batch["o"].to_str() == ["a", "", "", "bb", ""]
    assert batch["o"].offsets.tolist() == [0, 1, 1, 1, 3, 3]
    assert set(batch) == {"o", *(["o.valid"] if policy == "mask" else [])}
    if policy == "mask":
        assert batch["o.valid"].tolist() == [True, False, True, True, False]
        assert batch["o.valid"].dtype == torch.bool


@pytest.mark.parametrize("policy", [None, "error"])
@pytest.mark.parametrize("batch_size", [1, 64, 10**5])
@pytest.mark.parametrize("page_rows", [50, 10**6])
def test_a_null_string_is_an_error_that_names_its_row(
    tmp_path: Path, policy: str | None, batch_size: int, page_rows: int
) -> None:
    ids = [str(i) for i in range(6000)]
    ids[4321] = ids[5000] = None  # type: ignore[call-overload]
    table = pa.table({"s": ids})
    layout = {"row_group_size": 3000, "data_page_size": 1, "write_batch_size": page_rows}
    path = write(tmp_path / "a.parquet", table, **layout)
    dataset = ParquetDataset(path, nulls=policy, batch_size=batch_size, rank=0, world_size=1)  # type: ignore[arg-type]
    with pytest.raises(NullValueError, match=r"column 's' .*\"empty\".*row 1321\b.*group 1\b"):
        list(dataset)


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


@pytest.mark.parametrize("policy", ["nan", 0, 7, True, 0.5])
def test_strings_take_no_fill_value(tmp_path: Path, policy: bool | float | str) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"s": ["a", None]}))
    with pytest.raises(ValueError, match=r'nulls of strings must be "empty", .*: .o. is strings'):
        ParquetDataset(path, batch_size=1, columns={"o": Column("s", nulls=policy)})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        (Column("s", default=0), ValueError, "that of a string a str or bytes"),
        (Column("i", default="x"), ValueError, "a default of text is for strings: 'o' has 'x'"),
        (Column("l", default="x"), ValueError, "a default of text is for strings"),
        (Column(["s", "t"]), ValueError, "strings, lists .* cannot share a tensor"),
        (Column(["s"]), ValueError, "strings, lists .* cannot share a tensor"),
        (Column("s", length=3), ValueError, "length is for lists of numbers"),
        (Column("s", dtype="int64"), UnsupportedColumnError, "cannot be read as int64"),
    ],
)
def test_what_strings_cannot_be(tmp_path: Path, column: Column, error: Any, message: str) -> None:
    columns = {"s": ["a"], "t": ["b"], "i": [1], "l": [["a"]]}
    path = write(tmp_path / "a.parquet", pa.table(columns))
    with pytest.raises(error, match=message):
        ParquetDataset(path, batch_size=1, columns={"o": column})


def test_files_may_call_them_strings_or_large_strings(tmp_path: Path) -> None:
    tables = [strings_table(150, seed=seed) for seed in range(3)]
    kinds = (pa.string(), pa.large_string(), pa.string_view())
    for number, (table, kind) in enumerate(zip(tables, kinds, strict=True)):
        schema = pa.schema([field.with_type(kind) for field in table.schema])
        write(tmp_path / "data" / f"{number}.parquet", table.cast(schema), row_group_size=40)
    assert_table_reads_as(pa.concat_tables(tables), tmp_path / "data", batch_size=37)


def test_strings_and_binary_are_one_only_as_bytes(tmp_path: Path) -> None:
    one = write(tmp_path / "data" / "a.parquet", pa.table({"s": ["a"]}))
    two = write(tmp_path / "data" / "b.parquet", pa.table({"s": [b"\xff"]}))
    with pytest.raises(SchemaMismatchError, match=r"string in .*binary in") as caught:
        ParquetDataset(tmp_path / "data", batch_size=1)
    assert one in str(caught.value)
    assert two in str(caught.value)
    batches = batches_of(tmp_path / "data", {"s": Column("s", dtype=torch.uint8)})
    assert rows_of(batches, "s") == [b"a", b"\xff"]


def test_batches_cross_row_groups_and_files(tmp_path: Path) -> None:
    """Row groups of one row and of none, several of them in a batch."""
    tables = [strings_table(rows, seed=rows) for rows in (5, 1, 300, 77, 1, 1)]
    schema = tables[0].schema
    for number, files in enumerate((tables[:3], [], tables[3:])):
        path = tmp_path / "data" / f"{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        with pq.ParquetWriter(path, schema) as writer:
            for table in files:
                writer.write_table(table)
                writer.write_table(schema.empty_table())
    expected = pa.concat_tables(tables)
    for batch_size in (1, 3, 76, 385, 1000, None):
        assert_table_reads_as(expected, tmp_path / "data", batch_size=batch_size)


@pytest.mark.mostly_long(every=3)
@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_slices_in_little_memory(tmp_path: Path, encoding: str, num_threads: int) -> None:
    """A row group is cut, so that reading goes on within a page, and over again from it."""
    table = strings_table(20_000, distinct=400 if encoding == "dictionary" else 10**6)
    path = write(tmp_path / "a.parquet", table, data_page_size=9000, **encoded(encoding))
    for max_memory in ("1MiB", 40_000):
        options = {"max_memory": max_memory, "num_threads": num_threads}
        assert_table_reads_as(table, path, batch_size=100, **options)


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


@pytest.mark.parametrize("batch_size", [1, 7, None])
@pytest.mark.parametrize("world_size", [2, 3, 5])
def test_ranks_share_two_row_groups(
    tmp_path: Path, world_size: int, batch_size: int | None
) -> None:
    """Fewer row groups than ranks: they begin in the middle of one, and of a page."""
    table = strings_table(101, distinct=30)
    path = write(tmp_path / "a.parquet", table, row_group_size=60, data_page_size=100)
    seen = []
    for rank in range(world_size):
        leaves = table_leaves(table)
        batches = batches_of(
            path,
            None,
            nulls="mask",
            row_ids=True,
            batch_size=batch_size,
            rank=rank,
            world_size=world_size,
        )
        ids = [i for batch in batches for i in batch["row.id"].tolist()]
        seen += ids
        taken = {leaf.path: leaf._replace(rows=[leaf.rows[i] for i in ids]) for leaf in leaves}
        assert_batches_are(batches, taken)
    assert set(seen) == set(range(101))
    assert len(seen) < 101 + world_size


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_loader_workers(tmp_path: Path, num_workers: int) -> None:
    """Through pipes and shared memory, a Jagged arrives as one."""
    values = nulled(words(500), np.arange(500) % 3 == 0)
    path = write(tmp_path / "a.parquet", pa.table({"s": values}), row_group_size=50)
    dataset = ParquetDataset(
        path, batch_size=7, row_ids=True, nulls="mask", even="none", rank=0, world_size=1
    )
    seen = []
    for batch in DataLoader(dataset, batch_size=None, num_workers=num_workers):
        assert isinstance(batch["s"], Jagged)
        ids = batch["row.id"].tolist()
        seen += ids
        assert batch["s"].to_str() == [values[i] or "" for i in ids]
        assert batch["s.valid"].tolist() == [values[i] is not None for i in ids]
    assert sorted(seen) == list(range(500))


def test_batches_stay_as_they_were_while_others_are_read(tmp_path: Path) -> None:
    """Memory that is recycled belongs to no batch that is still there."""
    values = words(3000)
    path = write(tmp_path / "a.parquet", pa.table({"s": values}), row_group_size=100)
    dataset = ParquetDataset(path, batch_size=50, rank=0, world_size=1)
    kept = [batch for _ in range(2) for batch in dataset]
    assert rows_of(kept, "s") == as_bytes(values) * 2


def test_the_same_column_twice(tmp_path: Path) -> None:
    values = nulled(words(300), np.arange(300) % 5 == 0)
    path = write(tmp_path / "a.parquet", pa.table({"s": values, "i": range(300)}))
    columns = {"e": Column("s", nulls="empty"), "i": "i", "m": Column("s", nulls="mask")}
    batches = batches_of(path, columns, batch_size=64)
    assert list(batches[0]) == ["e", "i", "m", "m.valid"]
    expected = [value or b"" for value in as_bytes(values)]
    assert rows_of(batches, "e") == rows_of(batches, "m") == expected


def test_no_bytes_at_all(tmp_path: Path) -> None:
    """All strings empty or null: values of no length, of the right dtype."""
    table = pa.table({"s": ["", None] * 20, "n": pa.nulls(40, pa.string())})
    path = write(tmp_path / "a.parquet", table)
    assert_table_reads_as(table, path, batch_size=3)
    for batch in batches_of(path, None, nulls="empty", batch_size=3):
        assert batch["s"].values.shape == batch["n"].values.shape == (0,)
        assert batch["s"].values.dtype == torch.uint8
