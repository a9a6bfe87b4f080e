"""Lists of every kind and depth: values, nulls and offsets as pyarrow has them, however stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from tests.fixtures.datasets import batch_of, batches_of
from tests.fixtures.parquet_files import (
    KINDS,
    LAYOUTS,
    random_array,
    same_bits,
    with_nulls,
    write,
)
from tests.oracles.arrow_leaves import (
    assert_table_reads_as,
    flattened,
    parts_of,
    table_leaves,
)
from torchparquet import (
    CastError,
    Column,
    ParquetDataset,
    SchemaMismatchError,
)

FILLS = {"bool": True, "uint8": 255, "int8": -128, "uint64": 2**64 - 1, "int64": -(2**63)}


def lists_of(items: Any, num_rows: int, rng: Any, null_share: float = 0.2) -> Any:
    """The items cut to rows, some of which are empty and some null."""
    cuts = np.sort(rng.integers(0, len(items) + 1, num_rows - 1))
    lengths = np.diff(cuts, prepend=0, append=len(items))
    lengths[rng.random(num_rows) < 0.3] = 0
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


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", [*KINDS, 1, 3, 16])
def test_lists_of_every_kind(tmp_path: Path, kind: Any, layout: str) -> None:
    """Or of binary of a fixed size; a null element becomes the fill, or NaN in floats."""
    rng = np.random.default_rng(5)
    if isinstance(kind, int):
        data = rng.integers(0, 256, 800 * kind, dtype=np.uint8).tobytes()
        cells = [None if i % 9 == 0 else data[i * kind :][:kind] for i in range(800)]
        table = {"some null": lists_of(pa.array(cells, pa.binary(kind)), 300, rng)}
    else:
        shares = {"no null": 0, "some null": 0.2}
        distinct = 20 if layout == "dictionary" else None
        table = {n: random_list_column(kind, rng, 400, s, distinct) for n, s in shares.items()}
    path = write(tmp_path / "a.parquet", pa.table(table), row_group_size=300, **LAYOUTS[layout])
    assert_table_reads_as(pa.table(table), path, batch_size=77)
    fill, leaf = FILLS.get(kind, 7), table_leaves(pa.table(table))[-1]
    policies = {fill: fill} | ({None: np.nan} if str(kind).startswith("float") else {})
    batch = batch_of(path, {str(p): Column("some null", nulls=p) for p in policies})
    for policy, value in policies.items():
        offsets, values = parts_of(batch[str(policy)])
        expected = flattened(leaf, leaf.rows, value)
        assert all(map(same_bits, offsets, expected.offsets))
        assert same_bits(values, expected.values)


def test_null_and_empty_lists_are_told_apart_by_the_mask(tmp_path: Path) -> None:
    table = pa.table(
        {
            "i": pa.array([[1, None], None, [], [None], [2]], pa.list_(pa.int16())),
            "s": [["a", None, ""], None, [], [None], ["bb"]],
            "n": pa.array([[[1], None, []], None, [], [None], [[None, 2]]]),
        }
    )
    path = write(tmp_path / "a.parquet", table)
    batch = batch_of(path, nulls="mask")
    order = [f"{name}{mask}" for name in "isn" for mask in ("", ".valid", ".values.valid")]
    assert list(batch) == order
    assert_table_reads_as(table, path)
    # Null items are 0 or empty, null lists empty.
    assert batch["i"].to_list() == [[1, 0], [], [], [0], [2]]
    assert batch["s"].to_str() == [["a", "", ""], [], [], [""], ["bb"]]
    assert batch["n"].to_list() == [[[1], [], []], [], [], [[]], [[0, 2]]]
    empty = pa.table({"x": [[], [1], [], [2, 3]], "n": [[], [[]], [[], [1]], []]})
    batch = batch_of(write(tmp_path / "b.parquet", empty), nulls="error")
    assert {name: batch[name].to_list() for name in batch} == empty.to_pydict()


def nested_column(items: pa.Array, depth: int, rng: Any) -> Any:
    for level in range(depth):
        items = lists_of(items, 300 if level == depth - 1 else 2000 // 2**level, rng)
    return items


@pytest.mark.mostly_long(every=4)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_nested_lists_of_numbers_and_strings(tmp_path: Path, depth: int, layout: str) -> None:
    rng = np.random.default_rng(depth)
    leaves = {
        "i": with_nulls(random_array("int32", 4000, rng), rng.random(4000) < 0.1),
        "s": pa.array([None if i % 7 == 0 else "w" * (i % 5) + str(i) for i in range(4000)]),
    }
    table = pa.table({name: nested_column(items, depth, rng) for name, items in leaves.items()})
    path = write(tmp_path / "a.parquet", table, row_group_size=170, **LAYOUTS[layout])
    for batch_size in (1, 45, None):
        assert_table_reads_as(table, path, batch_size=batch_size)


def test_lists_in_structs_and_structs_in_lists(tmp_path: Path) -> None:
    row = pa.struct(
        [
            ("a", pa.list_(pa.struct([("x", pa.int8()), ("s", pa.string())]))),
            ("m", pa.map_(pa.string(), pa.list_(pa.float32()))),
            ("q", pa.struct([("x", pa.int64()), ("y", pa.string())])),
        ]
    )
    rows: Any = [
        {"a": [{"x": 1, "s": "p"}, None, {"x": None, "s": ""}], "m": [("k", [0.5, None])]},
        None,
        {"a": [], "m": [], "q": {"x": 7, "y": None}},
        {"a": None, "m": None, "q": {"x": None, "y": "z"}},
        {"a": [None], "m": [("k", []), ("l", None), ("", [1.0])]},
    ] * 30
    table = pa.table({"r": pa.array(rows, row)})
    for layout in LAYOUTS.values():
        path = write(tmp_path / "a.parquet", table, **layout)
        assert_table_reads_as(table, path, batch_size=7)
    names = [leaf.path for leaf in table_leaves(table)]
    assert names == ["r.a.x", "r.a.s", "r.m.key", "r.m.value", "r.q.x", "r.q.y"]
    with pytest.raises(
        ValueError, match=r"select the leaves of a nested column: 'r\.m' has 'r\.m\.key'"
    ):
        ParquetDataset(path, batch_size=1, columns=["r.m"])


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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_element_that_does_not_fit_names_its_place(tmp_path: Path, layout: str) -> None:
    rows = [[1, 2], [], None, [3]] * 50
    rows[130] = [4, 300, 5]
    table = pa.table({"x": pa.array(rows, pa.list_(pa.int64()))})
    path = write(tmp_path / "a.parquet", table, row_group_size=100, **LAYOUTS[layout])
    with pytest.raises(CastError, match=r"int8: 300: .*row group 1, column 'x'") as caught:
        batches_of(path, {"x": Column("x", dtype="int8", nulls=0)})
    assert path in str(caught.value)


@pytest.mark.parametrize("other", [[1], [[[1]]], pa.array([[1]], pa.list_(pa.int32()))], ids=str)
def test_lists_that_files_nest_otherwise_or_have_of_other_kinds(tmp_path: Path, other: Any) -> None:
    """The kinds of items may differ where a dtype is given, the nesting never."""
    one = write(tmp_path / "a.parquet", pa.table({"x": [[1]]}))
    two = write(tmp_path / "b.parquet", pa.table({"x": other}))
    for dtype in (None, "int64"):
        columns = {"x": Column("x", dtype=dtype)}
        if dtype is not None and isinstance(other, pa.Array):
            assert rows_of(batches_of(tmp_path, columns), "x") == [[1], [1]]
            continue
        with pytest.raises(SchemaMismatchError, match=r"list<int64> in .*int(32|64)>* in") as found:
            ParquetDataset(tmp_path, batch_size=1, columns=columns)
        assert one in str(found.value)
        assert two in str(found.value)


def test_leaves_of_one_path_keep_their_whole_names(tmp_path: Path) -> None:
    """A list of structs, and beside it a field with a dot in its name."""
    table = pa.table({"a": [[{"x": 1}, {"x": 2}]], "a.x": [7]})
    path = write(tmp_path / "a.parquet", table)
    batch = batch_of(path, ["a.list.element.x", "a.x"])
    assert batch["a.list.element.x"].to_list() == [[1, 2]]
    assert batch["a.x"].tolist() == [7]
