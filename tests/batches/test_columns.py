"""Choosing columns: what a batch holds, in which order, and what cannot be chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.parquet_files import column_at, read_all, same_bits, stored_values, write
from torchparquet import Column, ParquetDataset, SchemaMismatchError

NUM_ROWS = 500


def dataset(paths: Any, columns: Any = None, **options: Any) -> ParquetDataset:
    options = {"batch_size": 64, "rank": 0, "world_size": 1, **options}
    return ParquetDataset(paths, columns=columns, **options)


@pytest.mark.parametrize(
    ("columns", "nulls", "names"),
    [
        (["*", Column("age", nulls=0)], None, ["x", "s.t", "s.u", "age"]),
        ([Column("age", nulls=0), "*"], None, ["age", "x", "s.t", "s.u"]),
        ({"age": Column(nulls=0), "*": "*"}, None, ["age", "x", "s.t", "s.u"]),
        ({"years": Column("age", nulls=0), "*": "*"}, None, ["years", "x", "s.t", "s.u"]),
        ({"*": "*", "s.t": "x"}, {"age": 0}, ["age", "s.u", "s.t"]),
        (
            {"*": Column("*", dtype="float64"), "age": Column(nulls=0)},
            None,
            ["x", "s.t", "s.u", "age"],
        ),
        (["age", "x"], {"age": 0}, ["age", "x"]),
        (None, {"age": 0}, ["age", "x", "s.t", "s.u"]),
        (None, {"*": 0, "x": "error"}, ["age", "x", "s.t", "s.u"]),
    ],
)
def test_one_column_differs_and_all_others_stay(
    tmp_path: Path, columns: Any, nulls: Any, names: list[str]
) -> None:
    structs = [{"t": 5, "u": 6}, {"t": 7, "u": 8}]
    table = pa.table({"age": [30, None], "x": [1, 2], "s": structs})
    pq.write_table(table, tmp_path / "a.parquet")
    (batch,) = dataset(tmp_path, columns, nulls=nulls)
    assert list(batch) == names
    ages = table["age"].fill_null(0).to_pylist()
    flat = {"age": ages, "years": ages, "x": [1, 2], "s.t": [5, 7], "s.u": [6, 8]}
    if names[-1] == "s.t":
        flat["s.t"] = flat["x"]
    assert {name: batch[name].tolist() for name in names} == {name: flat[name] for name in names}


def test_a_data_set_is_shown_on_one_screen(tmp_path: Path) -> None:
    columns = {f"x{i}": pa.array([1.5, 2.5]) for i in range(1_000)}
    table = pa.table({"id": [1, 2], "text": ["a", "b"], **columns})
    pq.write_table(table, tmp_path / "a.parquet")
    shown = repr(dataset(tmp_path, nulls={"id": 7})).splitlines()
    assert shown[0] == (
        "ParquetDataset: 1 files, 1 row groups, 2 rows, batch_size=64, shuffle=False"
    )
    assert shown[1:4] == [
        "  id: int64 [B], nulls=fill 7",
        "  text: Jagged of uint8 [B], nulls=error",
        "  x0: float64 [B], nulls=fill nan",
    ]
    assert shown[-1] == "  and 987 more, see fields"
    assert len(shown) < 24
    (field,) = dataset(tmp_path, {"pair": ["x0", "x1"]}).fields
    assert repr(field) == "pair: float64 [B, 2] of x0, x1, nulls=fill nan"


def flat_table(first: int = 0) -> pa.Table:
    ids = np.arange(first, first + NUM_ROWS)
    return pa.table(
        {
            "b": pa.array(ids % 2 == 0),
            "a": pa.array(ids, pa.int64()),
            "f": pa.array(ids.astype(np.float32)),
            "c": pa.array(-ids, pa.int64()),
            "g": pa.array(ids.astype(np.float32) / 3),
            "d": pa.array(ids * 2, pa.int64()),
        }
    )


@pytest.fixture
def flat(tmp_path: Path) -> Any:
    table = flat_table()
    return table, write(tmp_path / "a.parquet", table)


def assert_holds(read: Any, table: pa.Table, names: Any) -> None:
    assert list(read) == list(names)
    for name in names:
        assert same_bits(read[name], stored_values(column_at(table, name))), name


def test_row_id_and_row_valid_come_last(flat: Any) -> None:
    table, path = flat
    read = read_all(path, columns=["f", "a", "b"], row_ids=True, even="pad")
    assert list(read) == ["f", "a", "b", "row.id", "row.valid"]
    assert same_bits(read["row.id"], np.arange(NUM_ROWS))
    assert read["row.valid"].all()
    assert same_bits(read["a"], stored_values(table["a"]))


def test_mapping_renames_repeats_and_groups(flat: Any) -> None:
    table, path = flat
    columns = {
        "label": "b",
        "dense": ["g", "f"],
        "id": "a",
        "again": "a",
        "one": ["a"],
        "ids": Column(["d", "a", "c"]),
        "masked": Column("f", nulls="mask"),
    }
    read = read_all(path, columns=columns)
    assert list(read) == [*columns, "masked.valid"]
    for name, sources in {"label": "b", "id": "a", "again": "a", "masked": "f"}.items():
        assert same_bits(read[name], stored_values(table[sources]))
    for name, sources in {"dense": "gf", "one": "a", "ids": "dac"}.items():
        expected = np.stack([stored_values(table[source]) for source in sources], axis=1)
        assert same_bits(read[name], expected), name


def test_a_wide_group(tmp_path: Path) -> None:
    """More columns than threads or blocks, in one tensor, in an order of its own."""
    rng = np.random.default_rng(0)
    values = rng.random((3000, 70), np.float32)
    table = pa.table({f"c{i}": values[:, i] for i in range(70)})
    path = write(tmp_path / "a.parquet", table, row_group_size=1100)
    order = rng.permutation(70).tolist()
    columns = {"x": [f"c{i}" for i in order]}
    for batch_size in (7, 1024, None):
        read = read_all(path, columns=columns, batch_size=batch_size, num_threads=3)
        assert same_bits(read["x"], values[:, order])


def test_tensors_are_contiguous_and_writable(flat: Any) -> None:
    _, path = flat
    batch = next(iter(dataset(path, {"g": ["f", "g"], "a": "a", "b": "b"})))
    for tensor in batch.values():
        assert tensor.is_contiguous()
        tensor.zero_()
    assert batch["g"].shape == (64, 2)
    assert batch["a"].sum() == 0


def test_names_that_are_not_ascii(tmp_path: Path) -> None:
    names = ["größe", "列", "with space", "a'b\"c", "tab\tnew\nline"]
    table = pa.table({name: np.arange(10) + i for i, name in enumerate(names)})
    path = write(tmp_path / "täble ✓.parquet", table)
    assert_holds(read_all(path), table, names)


@pytest.mark.parametrize("names", [None, ["d", "b", "a"], ("g",), ["f", "a", "g", "c"]])
def test_names_in_the_order_given_or_that_of_the_file(flat: Any, names: Any) -> None:
    table, path = flat
    assert_holds(read_all(path, columns=names), table, names or table.column_names)


def test_leaves_of_structs_by_dotted_path(tmp_path: Path) -> None:
    ids = pa.array(range(NUM_ROWS))
    inner = pa.StructArray.from_arrays([ids, ids.cast(pa.float64())], ["x", "y"])
    outer = pa.StructArray.from_arrays([inner, ids.cast(pa.int32())], ["inner", "z"])
    table = pa.table({"s": outer, "plain": ids, "with.dot": ids.cast(pa.int16())})
    path = write(tmp_path / "nested.parquet", table)
    names = ["s.z", "plain", "with.dot", "s.inner.y", "s.inner.x"]
    assert_holds(read_all(path, columns=names), table, names)
    group = read_all(path, columns={"x": ["s.inner.x", "plain"]})["x"]
    assert same_bits(group[:, 0], group[:, 1])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"columns": []}, ValueError, "at least one"),
        ({"columns": ()}, ValueError, r"columns|source"),
        ({"columns": {}}, ValueError, r"columns|source"),
        ({"columns": {"f": []}}, ValueError, r"columns|source"),
        *(({"columns": c}, ValueError, r"columns|source") for c in ([""], {"": "a"}, {"f": [""]})),
        ({"columns": "a"}, TypeError, "list or tuple"),
        *(({"columns": c}, TypeError, "columns") for c in (b"a", {"a"}, 3, [1], [None], [["a"]])),
        *(({"columns": c}, TypeError, "columns") for c in ({"f": 1}, {"f": None}, {3: "a"})),
        ({"columns": ["a", "c", "a"]}, ValueError, "only once; repeated: 'a'"),
        ({"columns": ["a", Column("a")]}, ValueError, "only once; repeated: 'a'"),
        (
            {"columns": {"b": "b", "g": ["a", "c", "a"]}},
            ValueError,
            r"columns\['g'\]: .*only once; repeated: 'a'",
        ),
        ({"columns": [Column(["a", "c"])]}, ValueError, "columns={name: Column"),
        ({"columns": [Column(nulls=0)]}, ValueError, "columns={name: Column"),
        ({"nulls": {"z": 0}}, ValueError, "not among them: 'z'"),
        ({"nulls": {"a": "none"}}, ValueError, "policy for each column: nulls must be"),
        ({"nulls": "NaN"}, ValueError, "nulls must be"),
        ({"nulls": [0]}, TypeError, "nulls must be"),
    ],
    ids=str,
)
def test_choices_that_are_refused(
    flat: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        dataset(flat[1], **options)


def files_of(folder: Path, *tables: pa.Table) -> list[str]:
    return [write(folder / f"{place}.parquet", table) for place, table in enumerate(tables)]


def test_files_may_differ_in_order_nulls_and_columns_that_are_not_chosen(tmp_path: Path) -> None:
    """Also one that has no row, and so no say."""
    ids = np.arange(NUM_ROWS)
    required = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("f", pa.float32())])
    first = flat_table(0).select(["a", "f"]).cast(required)
    second = flat_table(NUM_ROWS).select(["f", "g", "a"])
    second = second.set_column(2, "a", pa.array(ids + NUM_ROWS, mask=ids % 2 == 1))
    third = pa.table({"a": ids, "g": ["t"] * NUM_ROWS, "f": second["f"]})
    empty = pa.table({"a": pa.array([], pa.string()), "other": pa.array([], pa.int8())})
    parts = [ids, np.where(ids % 2, -1, ids + NUM_ROWS), ids]
    for tables, order in (
        ([first, second, third], [0, 1, 2]),
        ([second, empty, first], [1, 0]),
        ([empty, third, second], [2, 1]),
    ):
        paths = files_of(tmp_path, *tables)
        read = read_all(paths, columns=["a", "f"], nulls=-1, batch_size=333)
        assert same_bits(read["a"], np.concatenate([parts[place] for place in order]))
    reordered = files_of(tmp_path, first, first.select(["f", "a"]), empty)
    assert_holds(read_all(reordered), pa.concat_tables([first] * 2), ["a", "f"])


@pytest.mark.parametrize("kind", ["int32", "string", "timestamp[us]", "timestamp[us, UTC]", None])
@pytest.mark.parametrize("place", [0, 1])
def test_a_kind_that_differs_or_a_missing_column_names_both_files(
    tmp_path: Path, kind: str | None, place: int
) -> None:
    tables = [flat_table().select(["a", "f", "c"]) for _ in range(3)]
    if kind:
        zone = pa.timestamp("us", "UTC") if "UTC" in kind else kind
        tables[place] = tables[place].set_column(2, "c", tables[place]["c"].cast(zone))
    else:
        tables[place] = tables[place].drop_columns(["c"])
    paths = files_of(tmp_path, *tables)
    columns: Any
    for columns in (None, ["a", "c"], {"o": Column(["a", "c"])}):
        with pytest.raises(SchemaMismatchError) as caught:
            dataset(paths, columns)
        shown = ("'c'", "int64 in", kind) if kind else ("'c'", "missing in")
        for part in (*paths[:2], *shown):
            assert part in str(caught.value), part
    assert isinstance(caught.value, ValueError)
    assert same_bits(read_all(paths, columns=["a"])["a"], np.tile(np.arange(NUM_ROWS), 3))


def test_columns_of_one_name_or_none_fail_only_when_they_are_chosen(tmp_path: Path) -> None:
    """In whatever file; the index of a CSV that was read again has no name."""
    ids = pa.array(range(10))
    twice = pa.table([ids, ids, ids.cast(pa.int8()), ids], ["a", "x", "x", ""])
    paths = files_of(tmp_path, pa.table({"a": ids, "x": ids, "": ids}), twice)
    with pytest.warns(UserWarning, match="'x'"):
        assert list(read_all(paths[1])) == ["a"]
    assert same_bits(read_all(paths, columns=["a"])["a"], np.tile(np.arange(10), 2))
    columns: Any
    for columns in (["x"], {"o": ["a", "x"]}):
        for read in (paths, paths[1:]):
            with pytest.raises(ValueError, match=r"'x' stands for several in '.*/1\.parquet'"):
                dataset(read, columns)
    with pytest.warns(UserWarning, match="no name"):
        (batch,) = dataset(paths[0])
    assert list(batch) == ["a", "x"]
