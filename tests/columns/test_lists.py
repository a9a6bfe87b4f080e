"""Lists of every kind and depth: values, nulls and offsets as pyarrow has them, however stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader

from tests.fixtures.datasets import batches_of
from tests.fixtures.parquet_files import KINDS, random_array, same_bits, with_nulls, write
from tests.fixtures.pyarrow_release import MAJOR, needs_pyarrow
from tests.fixtures.thrift_bytes import PLAIN, RLE_DICTIONARY, pages
from tests.oracles.arrow_leaves import (
    assert_batches_are,
    assert_table_reads_as,
    flattened,
    parts_of,
    table_leaves,
)
from torchparquet import (
    CastError,
    Column,
    Jagged,
    NullValueError,
    ParquetDataset,
    SchemaMismatchError,
    UnsupportedColumnError,
)

FLOATS = ("float16", "float32", "float64")
FILLS = {"bool": True, "uint8": 255, "int8": -128, "uint64": 2**64 - 1, "int64": -(2**63)}
LAYOUTS: dict[str, Any] = {
    "dictionary": {"use_dictionary": True},
    "plain": {"use_dictionary": False},
    "tiny pages": {"data_page_size": 1, "write_batch_size": 7},
    "V2": {"data_page_version": "2.0", "data_page_size": 200, "write_batch_size": 20},
    "V2 zstd": {"data_page_version": "2.0", "compression": "zstd"},
}


def lists_of(
    items: Any, num_rows: int, rng: Any, null_share: float = 0.2, empty_share: float = 0.3
) -> pa.DataType:
    """The items cut to rows, some of which are empty and some null."""
    cuts = np.sort(rng.integers(0, len(items) + 1, num_rows - 1))
    lengths = np.diff(cuts, prepend=0, append=len(items))
    lengths[rng.random(num_rows) < empty_share] = 0
    null = rng.random(num_rows) < null_share
    lengths[null] = 0
    offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int32)
    kept = items.slice(0, int(offsets[-1]))
    return pa.ListArray.from_arrays(pa.array(offsets), kept, mask=pa.array(null))


def random_list_column(
    kind: Any, rng: Any, num_rows: int = 400, null_share: float = 0.2, distinct: Any = None
) -> Any:
    """Lists of a kind; as many of the values are null as of the lists."""
    items = random_array(kind, 4 * num_rows, rng, distinct)
    if null_share:
        items = with_nulls(items, rng.random(len(items)) < null_share)
    return lists_of(items, num_rows, rng, null_share)


def rows_of(batches: Any, name: str) -> Any:
    return [row for batch in batches for row in batch[name].to_list()]


def assert_rows(batch: Any, name: str, leaf: Any, fill: Any = 0) -> None:
    """One batch of all rows, read without masks."""
    offsets, values = parts_of(batch[name])
    expected = flattened(leaf, leaf.rows, fill)
    assert all(map(same_bits, offsets, expected.offsets))
    assert same_bits(values, expected.values)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_lists_of_every_kind(tmp_path: Path, kind: Any, layout: str) -> None:
    rng = np.random.default_rng(5)
    distinct = 20 if layout == "dictionary" else None
    table = pa.table(
        {
            "no null": random_list_column(kind, rng, null_share=0, distinct=distinct),
            "some null": random_list_column(kind, rng, distinct=distinct),
        }
    )
    path = write(tmp_path / "a.parquet", table, row_group_size=300, **LAYOUTS[layout])
    assert_table_reads_as(table, path, batch_size=77)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("num_bytes", [1, 3, 16])
def test_lists_of_binary_of_a_fixed_size(tmp_path: Path, num_bytes: int, layout: str) -> None:
    rng = np.random.default_rng(6)
    data = rng.integers(0, 256, 800 * num_bytes, dtype=np.uint8).tobytes()
    cells = [data[i : i + num_bytes] for i in range(0, len(data), num_bytes)]
    items = pa.array([None if i % 9 == 0 else cell for i, cell in enumerate(cells)])
    table = pa.table({"x": lists_of(items.cast(pa.binary(num_bytes)), 300, rng)})
    path = write(tmp_path / "a.parquet", table, **LAYOUTS[layout])
    assert_table_reads_as(table, path, batch_size=64)
    leaf = table_leaves(table)[0]
    (batch,) = batches_of(path, {"x": Column("x", nulls=7)}, batch_size=300)
    assert batch["x"].values.shape[1:] == (num_bytes,)
    assert_rows(batch, "x", leaf, fill=7)


@pytest.mark.parametrize("kind", KINDS)
def test_fill_in_lists_of_every_kind(tmp_path: Path, kind: Any) -> None:
    """A null element becomes the value, a null list becomes empty."""
    column = random_list_column(kind, np.random.default_rng(7))
    table = pa.table({"x": column})
    path = write(tmp_path / "a.parquet", table, data_page_size=100, write_batch_size=30)
    (leaf,) = table_leaves(table)
    fill = FILLS.get(kind, 7)
    (batch,) = batches_of(path, {"o": Column("x", nulls=fill)}, batch_size=400)
    assert set(batch) == {"o"}
    assert_rows(batch, "o", leaf, fill)


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("how", ["by default", "column", "data set"])
def test_nan_in_lists_of_floats(tmp_path: Path, kind: str, how: str) -> None:
    table = pa.table({"x": random_list_column(kind, np.random.default_rng(8))})
    path = write(tmp_path / "a.parquet", table)
    columns = {"o": Column("x", nulls="nan") if how == "column" else "x"}
    (batch,) = batches_of(path, columns, nulls="nan" if how == "data set" else None, batch_size=400)
    assert_rows(batch, "o", table_leaves(table)[0], np.nan)


def test_null_and_empty_lists_are_told_apart_by_the_mask(tmp_path: Path) -> None:
    table = pa.table(
        {
            "i": pa.array([[1, None], None, [], [None], [2]], pa.list_(pa.int16())),
            "s": [["a", None, ""], None, [], [None], ["bb"]],
            "n": pa.array([[[1], None, []], None, [], [None], [[None, 2]]]),
        }
    )
    path = write(tmp_path / "a.parquet", table)
    (batch,) = batches_of(path, None, nulls="mask")
    rows_valid = [True, False, True, True, True]
    assert batch["i"].to_list() == [[1, 0], [], [], [0], [2]]
    assert batch["i.valid"].tolist() == rows_valid
    assert batch["i.values.valid"].tolist() == [True, False, False, True]
    assert batch["s"].to_str() == [["a", "", ""], [], [], [""], ["bb"]]
    assert batch["s.valid"].tolist() == rows_valid
    assert batch["s.values.valid"].tolist() == [True, False, True, False, True]
    assert batch["n"].to_list() == [[[1], [], []], [], [], [[]], [[0, 2]]]
    assert batch["n.valid"].tolist() == rows_valid
    assert batch["n.values.valid"].tolist() == [True, False, True]
    order = [f"{name}{mask}" for name in "isn" for mask in ("", ".valid", ".values.valid")]
    assert list(batch) == order


@pytest.mark.parametrize("policy", ["empty", "mask"])
def test_lists_of_strings_take_empty(tmp_path: Path, policy: str) -> None:
    table = pa.table(
        {"s": [["a", None], None, [], [None]], "d": [[[None, "x"], None], None, [], []]}
    )
    path = write(tmp_path / "a.parquet", table)
    (batch,) = batches_of(path, None, nulls=policy)
    assert batch["s"].to_str() == [["a", ""], [], [], [""]]
    assert batch["d"].to_str() == [[["", "x"], []], [], [], []]
    assert ("s.values.valid" in batch) == (policy == "mask")


@pytest.mark.parametrize(
    ("kind", "policy", "message"),
    [
        (pa.string(), 0, 'nulls of strings must be "empty"'),
        (pa.string(), "nan", 'nulls of strings must be "empty"'),
        (pa.int32(), "empty", 'nulls="empty" is for strings'),
        (pa.int32(), "nan", "needs a float column"),
        (pa.int8(), 128, "representable"),
        (pa.bool_(), 2, "representable"),
    ],
    ids=str,
)
def test_policies_that_do_not_fit(
    tmp_path: Path, kind: pa.DataType, policy: int | str, message: str
) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"x": pa.array([[None]], pa.list_(kind))}))
    with pytest.raises(ValueError, match=message):
        ParquetDataset(path, batch_size=1, columns={"x": Column("x", nulls=policy)})  # type: ignore[arg-type]


NULL_PLACES = {
    "list": [[1], None],
    "element": [[1], [2, None]],
    "inner list": [[[1]], [[2], None]],
    "inner element": [[[1]], [[2], [3, None]]],
    "element alone": [[1], [None]],
    "string": [["a"], ["b", None, "c"]],
    "in a struct": [[{"f": 1}], [{"f": 2}, {"f": None}]],
    "struct": [[{"f": 1}], [None, {"f": 2}]],
}


@pytest.mark.parametrize("page_rows", [1, 10**6])
@pytest.mark.parametrize("batch_size", [1, 9, 1000])
@pytest.mark.parametrize("place", NULL_PLACES)
def test_a_null_is_an_error_that_names_its_row(
    tmp_path: Path, place: str, batch_size: int, page_rows: int
) -> None:
    """Wherever it stands: in row 41 of the second row group."""
    good, bad = NULL_PLACES[place]  # type: ignore[misc]
    rows = [good] * 141 + [bad] + [good] * 58  # type: ignore[has-type]
    table = pa.table({"x": rows})
    layout: dict[str, Any] = {
        "row_group_size": 100,
        "data_page_size": 1,
        "write_batch_size": page_rows,
    }
    path = write(tmp_path / "a.parquet", table, **layout)
    name = "x.f" if "struct" in place else "x"
    message = rf"column '{name}' .*row 41 of its row group: .*row group 1\b"
    dataset = ParquetDataset(
        path,
        columns={"o": Column(name, nulls="error")},
        batch_size=batch_size,
        rank=0,
        world_size=1,
    )
    iterator, before = iter(dataset), []  # type: ignore[var-annotated]
    with pytest.raises(NullValueError, match=message):
        before.extend(iterator)
    # Batches that are complete before it arrive.
    num_rows = [len(batch["o"]) for batch in before]
    assert sum(num_rows) == 141 // batch_size * batch_size
    with pytest.raises(NullValueError, match=message):
        next(iterator)


def test_an_empty_list_is_no_null(tmp_path: Path) -> None:
    table = pa.table({"x": [[], [1], [], [2, 3]], "n": [[], [[]], [[], [1]], []]})
    path = write(tmp_path / "a.parquet", table)
    (batch,) = batches_of(path, None, nulls="error")
    assert batch["x"].to_list() == table["x"].to_pylist()
    assert batch["n"].to_list() == table["n"].to_pylist()


def nested_column(depth: Any, rng: Any, leaf: Any = None, num_rows: int = 300) -> Any:
    items = leaf if leaf is not None else random_array("int32", 4000, rng)
    if leaf is None:
        items = with_nulls(items, rng.random(4000) < 0.1)
    for level in range(depth):
        count = num_rows if level == depth - 1 else 2000 // 2**level
        items = lists_of(items, count, rng)
    return items


@pytest.mark.mostly_long(every=4)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_nested_lists_of_numbers_and_strings(tmp_path: Path, depth: int, layout: str) -> None:
    rng = np.random.default_rng(depth)
    words = pa.array([None if i % 7 == 0 else "w" * (i % 5) + str(i) for i in range(4000)])
    table = pa.table({"i": nested_column(depth, rng), "s": nested_column(depth, rng, leaf=words)})
    path = write(tmp_path / "a.parquet", table, row_group_size=170, **LAYOUTS[layout])
    for batch_size in (1, 45, None):
        assert_table_reads_as(table, path, batch_size=batch_size)


def test_lists_in_structs_and_structs_in_lists(tmp_path: Path) -> None:
    row = pa.struct(
        [
            ("a", pa.list_(pa.struct([("x", pa.int8()), ("s", pa.string())]))),
            ("m", pa.map_(pa.string(), pa.list_(pa.float32()))),
        ]
    )
    rows: Any = [
        {"a": [{"x": 1, "s": "p"}, None, {"x": None, "s": ""}], "m": [("k", [0.5, None])]},
        None,
        {"a": [], "m": []},
        {"a": None, "m": None},
        {"a": [None], "m": [("k", []), ("l", None), ("", [1.0])]},
    ] * 30
    table = pa.table({"r": pa.array(rows, row)})
    for layout in LAYOUTS.values():
        path = write(tmp_path / "a.parquet", table, **layout)
        assert_table_reads_as(table, path, batch_size=7)
    names = [leaf.path for leaf in table_leaves(table)]
    assert names == ["r.a.x", "r.a.s", "r.m.key", "r.m.value"]
    with pytest.raises(
        ValueError, match=r"select the leaves of a nested column: 'r\.m' has 'r\.m\.key'"
    ):
        ParquetDataset(path, batch_size=1, columns=["r.m"])


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_page_for_each_row(tmp_path: Path, version: str) -> None:
    """Also for those that are longer than a page should be, and than a block of levels."""
    lengths = [0, 1000, 3, 0, 2500, 1, 4500]
    table = pa.table({"x": [list(range(n)) for n in lengths], "n": [[[n] * n] for n in lengths]})
    path = write(
        tmp_path / "a.parquet",
        table,
        data_page_version=version,
        data_page_size=1,
        write_batch_size=1,
        use_dictionary=False,
        row_group_size=4,
    )
    if MAJOR > 22:
        assert len(pages(path)) == 3  # the first row, which is empty, goes with the next
    for batch_size in (1, 2, 3, 7, None):
        for max_memory in ("1MiB", "1GiB"):
            assert_table_reads_as(table, path, batch_size=batch_size, max_memory=max_memory)


@needs_pyarrow(23, "cannot limit the rows of a page")
def test_a_list_of_a_hundred_thousand_elements(tmp_path: Path) -> None:
    """And the same as strings, between short rows."""
    long = np.arange(100_000) * 2**40
    rows = [[1], long.tolist(), [], long[::2].tolist(), [3]]
    table = pa.table({"x": rows, "s": [[f"{i:x}" for i in row] for row in rows]})
    path = write(tmp_path / "a.parquet", table, data_page_size=4000, max_rows_per_page=2)
    for batch_size in (1, 5):
        assert_table_reads_as(table, path, batch_size=batch_size)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_fallback_from_dictionary_to_plain_in_lists(tmp_path: Path, version: str) -> None:
    rng = np.random.default_rng(3)
    numbers = random_list_column("int64", rng, num_rows=1000, distinct=900)
    words = pa.array([f"word {i}" for i in rng.integers(0, 900, 4000).tolist()])
    table = pa.table({"x": numbers, "s": lists_of(words, 1000, rng)})
    path = write(
        tmp_path / "a.parquet",
        table,
        dictionary_pagesize_limit=1500,
        data_page_size=300,
        write_batch_size=100,
        data_page_version=version,
    )
    for column in range(2):
        encodings = {page.encoding for page in pages(path, column=column) if page.is_data}
        assert encodings == {RLE_DICTIONARY, PLAIN}
    assert_table_reads_as(table, path, batch_size=333)


@pytest.mark.parametrize(
    "encoding", ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "DELTA_BYTE_ARRAY", "RLE"]
)
def test_other_encodings_in_lists(tmp_path: Path, encoding: str) -> None:
    rng = np.random.default_rng(4)
    kinds = {
        "DELTA_BINARY_PACKED": ["int8", "int64", "timestamp[us]"],
        "BYTE_STREAM_SPLIT": ["float16", "float32", "int32", "decimal(38, 10)"],
        "DELTA_BYTE_ARRAY": ["decimal(38, 10)"],
        "RLE": ["bool"],
    }[encoding]
    table = pa.table({kind: random_list_column(kind, rng, num_rows=3000) for kind in kinds})
    chosen = {f"{kind}.list.element": encoding for kind in kinds}
    path = write(
        tmp_path / "a.parquet",
        table,
        use_dictionary=False,
        column_encoding=chosen,
        data_page_size=9000,
        write_batch_size=100,
    )
    assert_table_reads_as(table, path, batch_size=999)


def test_all_rows_empty_or_null(tmp_path: Path) -> None:
    """Batches without a value have tensors of the right dtype and shape all the same."""
    table = pa.table(
        {
            "e": pa.array([[]] * 20, pa.list_(pa.float32())),
            "n": pa.nulls(20, pa.list_(pa.int8())),
            "b": pa.array([[], None] * 10, pa.list_(pa.binary(3))),
            "s": pa.array([[], None] * 10, pa.list_(pa.string())),
            "d": pa.array([[], [[]], None, [None]] * 5, pa.list_(pa.list_(pa.bool_()))),
        }
    )
    path = write(tmp_path / "a.parquet", table, row_group_size=7)
    assert_table_reads_as(table, path, batch_size=3)
    batch = batches_of(path, None, nulls="mask", batch_size=3)[0]
    assert batch["e"].values.dtype == torch.float32
    assert batch["b"].values.shape == (0, 3)
    assert batch["s"].values.values.dtype == torch.uint8
    assert batch["s"].values.offsets.tolist() == [0]
    assert batch["d"].values.values.dtype == torch.bool
    assert batch["n.values.valid"].shape == (0,)


@pytest.mark.mostly_long(every=3)
@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_slices_in_little_memory(tmp_path: Path, layout: str, num_threads: int) -> None:
    """A row group is cut, so that reading goes on in a page, or over again from its begin."""
    rng = np.random.default_rng(11)
    distinct = 30 if layout == "dictionary" else None
    words = pa.array([f"{'w' * (i % 9)}{i % 50}" for i in range(6000)])
    table = pa.table(
        {
            "x": random_list_column("int64", rng, 3000, distinct=distinct),
            "s": lists_of(words, 3000, rng),
            "n": nested_column(2, rng, num_rows=3000),
        }
    )
    path = write(tmp_path / "a.parquet", table, row_group_size=2000, **LAYOUTS[layout])
    for max_memory in ("1MiB", 20_000):
        options = {"max_memory": max_memory, "num_threads": num_threads}
        assert_table_reads_as(table, path, batch_size=31, **options)


def mixed_table(num_rows: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng([seed, num_rows])
    words = pa.array([None if i % 11 == 0 else f"{i:x}" for i in range(4 * num_rows)])
    return pa.table(
        {
            "x": random_list_column("int32", rng, num_rows, distinct=40),
            "s": lists_of(words, num_rows, rng),
            "n": nested_column(3, rng, num_rows=num_rows),
        }
    )


@pytest.mark.parametrize("batch_size", [1, 7, None])
@pytest.mark.parametrize("world_size", [2, 3, 5])
def test_ranks_share_two_row_groups(
    tmp_path: Path, world_size: int, batch_size: int | None
) -> None:
    """Fewer row groups than ranks: they begin in the middle of one, and of a page."""
    table = mixed_table(101)
    path = write(tmp_path / "a.parquet", table, row_group_size=60, data_page_size=50)
    seen = []
    for rank in range(world_size):
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
        leaves = {leaf.path: leaf for leaf in table_leaves(table)}
        taken = {
            name: leaf._replace(rows=[leaf.rows[i] for i in ids]) for name, leaf in leaves.items()
        }
        assert_batches_are(batches, taken)
    assert set(seen) == set(range(101))
    assert len(seen) < 101 + world_size


def test_batches_cross_row_groups_and_files(tmp_path: Path) -> None:
    tables = [mixed_table(rows, seed=rows) for rows in (5, 2, 150, 77, 3)]
    for number, table in enumerate(tables):
        write(tmp_path / "data" / f"{number}.parquet", table, row_group_size=20)
    for batch_size in (1, 3, 76, 237, 1000, None):
        assert_table_reads_as(pa.concat_tables(tables), tmp_path / "data", batch_size=batch_size)


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_loader_workers(tmp_path: Path, num_workers: int) -> None:
    table = mixed_table(200)
    path = write(tmp_path / "a.parquet", table, row_group_size=30)
    dataset = ParquetDataset(
        path, batch_size=7, row_ids=True, nulls="mask", even="none", rank=0, world_size=1
    )
    leaves = {leaf.path: leaf for leaf in table_leaves(table)}
    seen = []
    for batch in DataLoader(dataset, batch_size=None, num_workers=num_workers):
        ids = batch.pop("row.id").tolist()
        seen += ids
        taken = {n: leaf._replace(rows=[leaf.rows[i] for i in ids]) for n, leaf in leaves.items()}
        assert_batches_are([batch], taken)
    assert sorted(seen) == list(range(200))


def test_shuffled_epochs(tmp_path: Path) -> None:
    table = mixed_table(200)
    path = write(tmp_path / "a.parquet", table, row_group_size=11)
    dataset = ParquetDataset(
        path, batch_size=16, row_ids=True, nulls="mask", shuffle=True, rank=0, world_size=1
    )
    leaves = {leaf.path: leaf for leaf in table_leaves(table)}
    orders = []
    for _ in range(2):
        batches = list(dataset)
        ids = [i for batch in batches for i in batch["row.id"].tolist()]
        orders.append(ids)
        taken = {n: leaf._replace(rows=[leaf.rows[i] for i in ids]) for n, leaf in leaves.items()}
        assert_batches_are(batches, taken)
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(200))


def test_files_may_name_elements_as_they_like(tmp_path: Path) -> None:
    """And take lists, large lists or lists of a fixed size: one column all the same."""
    rows = [[1, None], [3, 4]]
    kinds = (
        pa.list_(pa.field("element", pa.int32())),
        pa.list_(pa.field("item", pa.int32())),
        pa.list_(pa.field("array", pa.int32())),
        pa.large_list(pa.field("bag", pa.int32())),
        pa.list_(pa.int32(), 2),
    )
    for number, kind in enumerate(kinds):
        table = pa.table({"x": pa.array(rows, kind)})
        path = tmp_path / "data" / f"{number}.parquet"
        write(path, table, use_compliant_nested_type=False)
    batches = batches_of(
        tmp_path / "data", {"o": Column("x", nulls=-1, length="any")}, batch_size=3
    )
    assert rows_of(batches, "o") == [[1, -1], [3, 4]] * len(kinds)


def test_required_lists_of_required_elements(tmp_path: Path) -> None:
    """Definition levels of every height that makes an element."""
    rows = [[1, 2], [], [3]] * 50
    for list_nullable in (False, True):
        for nullable in (False, True):
            element = pa.field("element", pa.int32(), nullable=nullable)
            schema = pa.schema([pa.field("x", pa.list_(element), nullable=list_nullable)])
            table = pa.Table.from_arrays([pa.array(rows, pa.list_(element))], schema=schema)
            for layout in LAYOUTS.values():
                path = write(tmp_path / "a.parquet", table, **layout)
                assert_table_reads_as(table, path, batch_size=11)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("int32", "int8"),
        ("int64", "float32"),
        ("uint16", "int64"),
        ("float64", "bfloat16"),
        ("bool", "uint8"),
        ("decimal(5, 2)", "int64"),
        ("date", "int32"),
    ],
)
@pytest.mark.parametrize("layout", ["dictionary", "plain"])
def test_elements_are_cast(tmp_path: Path, kind: str, dtype: str, layout: str) -> None:
    """As rows of one value are cast, which other tests check."""
    rng = np.random.default_rng(2)
    items = pa.array(rng.integers(0, 2 if kind == "bool" else 100, 900))
    items = items.cast(pa.float64()) if kind.startswith("decimal") else items
    items = items.cast(pa.int32()) if kind == "date" else items
    items = items.cast(KINDS[kind])
    column = lists_of(with_nulls(items, rng.random(900) < 0.2), 300, rng)
    flat = pa.table({"x": column.flatten()})
    nested = write(tmp_path / "n.parquet", pa.table({"x": column}), **LAYOUTS[layout])
    single = write(tmp_path / "s.parquet", flat, **LAYOUTS[layout])
    for nulls in (1, "mask"):
        columns = {"o": Column("x", dtype=dtype, nulls=nulls)}
        (expected,) = batches_of(single, columns, batch_size=1000)
        (batch,) = batches_of(nested, columns, batch_size=1000)
        assert batch["o"].values.dtype == getattr(torch, dtype)
        assert torch.equal(batch["o"].values, expected["o"])
        if nulls == "mask":
            assert torch.equal(batch["o.values.valid"], expected["o.valid"])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_element_that_does_not_fit_names_its_place(tmp_path: Path, layout: str) -> None:
    rows = [[1, 2], [], None, [3]] * 50
    rows[130] = [4, 300, 5]
    table = pa.table({"x": pa.array(rows, pa.list_(pa.int64()))})
    path = write(tmp_path / "a.parquet", table, row_group_size=100, **LAYOUTS[layout])
    with pytest.raises(CastError, match=r"int8: 300: .*row group 1, column 'x'") as caught:
        batches_of(path, {"x": Column("x", dtype="int8", nulls=0)})
    assert path in str(caught.value)


def test_files_with_elements_of_different_kinds_agree_on_a_dtype(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    one = write(folder / "a.parquet", pa.table({"x": pa.array([[1], []], pa.list_(pa.int32()))}))
    two = write(folder / "b.parquet", pa.table({"x": pa.array([[2, 3]], pa.list_(pa.int64()))}))
    with pytest.raises(SchemaMismatchError, match=r"list<int32> in .*list<int64> in") as caught:
        ParquetDataset(folder, batch_size=1)
    assert one in str(caught.value)
    assert two in str(caught.value)
    batches = batches_of(folder, {"x": Column("x", dtype="float32")})
    assert rows_of(batches, "x") == [[1.0], [], [2.0, 3.0]]


@pytest.mark.parametrize("dtype", [None, "int64"])
@pytest.mark.parametrize("other", [[1], [[[1]]]], ids=str)
def test_lists_and_what_is_nested_otherwise_are_never_one_column(
    tmp_path: Path, other: list[Any], dtype: str | None
) -> None:
    folder = tmp_path / "data"
    write(folder / "a.parquet", pa.table({"x": [[1]]}))
    write(folder / "b.parquet", pa.table({"x": other}))
    with pytest.raises(SchemaMismatchError, match=r"list<int64> in .*int64>* in"):
        ParquetDataset(folder, batch_size=1, columns={"x": Column("x", dtype=dtype)})


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        (Column("x", default=0), ValueError, "default of a list is a list"),
        (Column(["x", "k"]), ValueError, "strings, lists .* cannot share a tensor"),
        (Column(["x"]), ValueError, "strings, lists .* cannot share a tensor"),
        (Column("x", dtype="bool"), UnsupportedColumnError, "cannot be read as bool"),
        (Column("x", vocab=["a"]), ValueError, "vocab is for strings; .*list<int64>"),
        (Column("z"), UnsupportedColumnError, r"list<null>"),
    ],
)
def test_what_lists_cannot_be(tmp_path: Path, column: Column, error: Any, message: str) -> None:
    table = pa.table({"x": [[1]], "k": [1], "z": pa.array([[]], pa.list_(pa.null()))})
    path = write(tmp_path / "a.parquet", table)
    with pytest.raises(error, match=message):
        ParquetDataset(path, batch_size=1, columns={"o": column})


def test_a_mask_of_values_may_not_take_a_columns_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"x": [[1]], "x.values.valid": [True]}))
    with pytest.raises(ValueError, match=r"another has that name: 'x\.values\.valid'"):
        ParquetDataset(path, batch_size=1, nulls="mask")


def test_leaves_of_one_path_keep_their_whole_names(tmp_path: Path) -> None:
    """A list of structs, and beside it a field with a dot in its name."""
    table = pa.table({"a": [[{"x": 1}, {"x": 2}]], "a.x": [7]})
    path = write(tmp_path / "a.parquet", table)
    (batch,) = batches_of(path, ["a.list.element.x", "a.x"])
    assert batch["a.list.element.x"].to_list() == [[1, 2]]
    assert batch["a.x"].tolist() == [7]


def test_flat_columns_beside_lists(tmp_path: Path) -> None:
    """In the order asked for, groups among them, none touched by the others."""
    table = pa.table({"x": [[i] * (i % 4) for i in range(100)], "i": range(100), "f": [0.5] * 100})
    path = write(tmp_path / "a.parquet", table, row_group_size=30)
    columns = {"l": "x", "g": Column(["i"]), "i": "i", "m": Column("x", nulls="mask"), "f": "f"}
    first = 0
    for batch in batches_of(path, columns, batch_size=32, row_ids=True):
        keys = ["l", "g", "i", "m", "m.valid", "m.values.valid", "f", "row.id"]
        assert list(batch) == keys
        assert isinstance(batch["l"], Jagged)
        ids = batch["row.id"].tolist()
        assert ids == list(range(first, first + len(ids)))
        first += len(ids)
        assert batch["i"].tolist() == batch["g"][:, 0].tolist() == ids
        assert batch["l"].to_list() == batch["m"].to_list() == [[i] * (i % 4) for i in ids]
