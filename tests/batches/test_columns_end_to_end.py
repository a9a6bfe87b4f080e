"""Choosing columns: what a batch holds, in which order, and what cannot be chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.parquet_files import column_at, read_all, same_bits, stored_values, write
from torchparquet import (
    Column,
    ParquetDataset,
    SchemaMismatchError,
    UnsupportedColumnError,
)

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


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"columns": [Column(["a", "c"])]}, ValueError, "columns={name: Column"),
        ({"columns": [Column(nulls=0)]}, ValueError, "columns={name: Column"),
        ({"columns": ["a", Column("a")]}, ValueError, "only once; repeated: 'a'"),
        ({"nulls": {"z": 0}}, ValueError, "not among them: 'z'"),
        ({"nulls": {"a": "none"}}, ValueError, "policy for each column: nulls must be"),
    ],
)
def test_columns_beside_others_are_refused(
    tmp_path: Path, options: dict[str, Any], error: Any, message: str
) -> None:
    pq.write_table(flat_table(), tmp_path / "a.parquet")
    with pytest.raises(error, match=message):
        dataset(tmp_path, **options)


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


def test_all_columns_in_the_order_of_the_file(flat: Any) -> None:
    table, path = flat
    assert_holds(read_all(path), table, table.column_names)


@pytest.mark.parametrize("names", [["d", "b", "a"], ("g",), ["f", "a", "g", "c"]])
def test_names_in_the_order_given(flat: Any, names: Any) -> None:
    table, path = flat
    assert_holds(read_all(path, columns=names), table, names)


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


@pytest.fixture
def nested(tmp_path: Path) -> Any:
    ids = pa.array(range(NUM_ROWS))
    inner = pa.StructArray.from_arrays([ids, ids.cast(pa.float64())], ["x", "y"])
    outer = pa.StructArray.from_arrays([inner, ids.cast(pa.int32())], ["inner", "z"])
    strings = ids.cast(pa.string())
    table = pa.table(
        {
            "s": outer,
            "plain": ids,
            "text": strings,
            "raw": strings.cast(pa.binary()),
            "list": pa.array([[i] for i in range(NUM_ROWS)]),
            "fixed": pa.array([[i, i] for i in range(NUM_ROWS)], pa.list_(pa.int32(), 2)),
            "money": ids.cast(pa.decimal128(30, 2)),
            "wide": ids.cast(pa.decimal256(50, 2)),
            "with.dot": ids.cast(pa.int16()),
        }
    )
    return table, write(tmp_path / "nested.parquet", table)


def test_struct_leaves_by_dotted_path(nested: Any) -> None:
    table, path = nested
    names = ["s.z", "plain", "s.inner.y", "s.inner.x"]
    read = read_all(path, columns=names)
    assert_holds(read, table, names)
    group = read_all(path, columns={"x": ["s.inner.x", "plain"]})["x"]
    assert same_bits(group[:, 0], group[:, 1])


def test_a_name_that_holds_a_dot(nested: Any) -> None:
    table, path = nested
    read = read_all(path, columns=["with.dot"])
    assert same_bits(read["with.dot"], stored_values(table["with.dot"]))


def test_a_struct_itself_names_its_leaves(nested: Any) -> None:
    _, path = nested
    with pytest.raises(ValueError, match=r"s\.inner\.x"):
        dataset(path, ["s"])


def test_kinds_not_covered_fail_at_construction_and_name_the_rest(nested: Any) -> None:
    _, path = nested
    with pytest.raises(UnsupportedColumnError) as caught:
        dataset(path)
    message = str(caught.value)
    assert "'wide' (decimal(50, 2))" in message
    assert isinstance(caught.value, TypeError)
    # The columns that the message suggests can be read as they stand.
    suggested = message[message.index("columns=[") + len("columns=") :]
    names = eval(suggested)
    leaves = {"s.inner.x", "s.inner.y", "s.z", "plain", "money", "with.dot"}
    assert set(names) == {*leaves, "text", "raw", "list", "fixed"}
    assert sum(len(batch["text"]) for batch in dataset(path, names)) == NUM_ROWS


def test_a_kind_not_covered_is_named_when_chosen(nested: Any) -> None:
    _, path = nested
    with pytest.raises(UnsupportedColumnError, match="wide"):
        dataset(path, ["plain", "wide"])


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        (["nope"], ValueError, "nope"),
        (["A"], ValueError, "'a'"),
        (["a", "a"], ValueError, "'a'"),
        ([], ValueError, "at least one"),
        ("a", TypeError, "list or tuple"),
        ({"x": ["a", "f"]}, ValueError, "dtype"),
        ({"row.id": "a"}, ValueError, "row.id"),
        ({"x": Column("a", nulls="nan")}, ValueError, "nan"),
        ({"x": Column("a", nulls=0.5)}, ValueError, "0.5"),
        ({"x": Column("a", nulls=2**63)}, ValueError, str(2**63)),
    ],
)
def test_wrong_choices_fail_at_construction(
    flat: Any, columns: dict[str, Any] | list[Any] | str, error: Any, text: str
) -> None:
    _, path = flat
    with pytest.raises(error, match=text):
        dataset(path, columns)


def two_files(folder: Any, first: Any, second: Any) -> list[Any]:
    return [write(folder / "0.parquet", first), write(folder / "1.parquet", second)]


def test_files_may_order_their_columns_differently(tmp_path: Path) -> None:
    first, second = flat_table(0), flat_table(NUM_ROWS)
    paths = two_files(tmp_path, first, second.select(["d", "g", "a", "b", "c", "f"]))
    table = pa.concat_tables([first, second])
    for names in (None, ["g", "a"]):
        read = read_all(paths, columns=names, batch_size=300)
        assert_holds(read, table, names or first.column_names)


def test_files_may_differ_in_columns_that_are_not_chosen(tmp_path: Path) -> None:
    first, second = flat_table(0), flat_table(NUM_ROWS)
    second = second.drop_columns(["g"]).append_column("new", pa.array(["t"] * NUM_ROWS))
    second = second.set_column(0, "b", second["b"].cast(pa.int8()))
    paths = two_files(tmp_path, first, second)
    read = read_all(paths, columns=["a", "f"])
    assert same_bits(read["a"], np.arange(2 * NUM_ROWS))


def test_files_may_differ_in_nullability(tmp_path: Path) -> None:
    """Required here, nullable and null there."""
    ids = np.arange(NUM_ROWS)
    required = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    nullable = pa.table({"a": pa.array(ids, mask=ids % 2 == 1)})
    paths = two_files(tmp_path, pa.table({"a": ids}).cast(required), nullable)
    expected = np.concatenate([ids, np.where(ids % 2 == 1, -1, ids)])
    for order in (1, -1):
        read = read_all(paths[::order], columns=["a"], nulls=-1, batch_size=333)
        halves = [expected[:NUM_ROWS], expected[NUM_ROWS:]][::order]
        assert same_bits(read["a"], np.concatenate(halves))


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (pa.int32(), "int32"),
        (pa.float64(), "float64"),
        (pa.string(), "string"),
        (pa.timestamp("us"), "timestamp[us]"),
        (pa.timestamp("us", "UTC"), "timestamp[us, UTC]"),
    ],
)
def test_a_kind_that_differs_names_both_files(
    tmp_path: Path, kind: pa.DataType, shown: str
) -> None:
    first, second = flat_table(0).select(["a", "f"]), flat_table(NUM_ROWS).select(["a", "f"])
    paths = two_files(tmp_path, first, second.set_column(0, "a", second["a"].cast(kind)))
    with pytest.raises(SchemaMismatchError) as caught:
        dataset(paths)
    for part in (*paths, "'a'", "int64", shown):
        assert part in str(caught.value), part
    assert isinstance(caught.value, ValueError)
    assert same_bits(read_all(paths, columns=["f"])["f"], np.arange(2 * NUM_ROWS, dtype=np.float32))


@pytest.mark.parametrize("missing_in", [0, 1])
def test_a_column_that_is_missing_names_both_files(tmp_path: Path, missing_in: int) -> None:
    tables = [flat_table(0), flat_table(NUM_ROWS)]
    tables[missing_in] = tables[missing_in].drop_columns(["c"])
    paths = two_files(tmp_path, *tables)
    for columns in (None, ["a", "c"]):
        with pytest.raises(SchemaMismatchError) as caught:
            dataset(paths, columns)
        for part in (*paths, "'c'", "missing"):
            assert part in str(caught.value), part


def test_a_file_without_rows_has_no_say_about_columns(tmp_path: Path) -> None:
    first = flat_table(0)
    empty = pa.table({"a": pa.array([], pa.string()), "other": pa.array([], pa.int8())})
    paths = two_files(tmp_path, empty, first)
    read = read_all(paths)
    assert_holds(read, first, first.column_names)


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    ids = pa.array(range(10))
    path = write(tmp_path / "a.parquet", pa.table([ids, ids, ids], ["a", "x", "x"]))
    with pytest.warns(UserWarning, match="'x'"):
        assert list(read_all(path)) == ["a"]
    assert same_bits(read_all(path, columns=["a"])["a"], np.arange(10))


def test_names_that_are_not_ascii(tmp_path: Path) -> None:
    names = ["größe", "列", "with space", "a'b\"c", "tab\tnew\nline"]
    table = pa.table({name: np.arange(10) + i for i, name in enumerate(names)})
    path = write(tmp_path / "täble ✓.parquet", table)
    assert_holds(read_all(path), table, names)


def test_a_column_without_a_name_is_left_out(tmp_path: Path) -> None:
    """As the index of a table that was written as CSV and read again."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"": [0, 1], "a": [5, 6]}), path)
    with pytest.warns(UserWarning, match="no name"):
        (batch,) = ParquetDataset(path, batch_size=2)
    assert list(batch) == ["a"]
    assert batch["a"].tolist() == [5, 6]
