"""Columns that some files lack, or hold in another form, against what pyarrow reads of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from torchparquet import (
    CastError,
    Column,
    Jagged,
    NullValueError,
    Pack,
    ParquetDataset,
    SchemaMismatchError,
    UnsupportedColumnError,
)


def write(folder: Path, *tables: pa.Table) -> str:
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet")
    return str(folder)


def rows(source: Any, name: str = "c", **options: Any) -> list[Any]:
    """Return a column's rows, each batch and each order of threads alike."""
    found: list[Any] = []
    options = {"batch_size": 2, "even": "none", "rank": 0, "world_size": 1, **options}
    for batch in ParquetDataset(source, **options):
        value = batch[name]
        found += value.to_list() if isinstance(value, Jagged) else value.tolist()
    return found


def of_pyarrow(folder: str, schema: pa.Schema) -> list[Any]:
    values: list[Any] = pads.dataset(folder, schema).to_table()["c"].to_pylist()
    return values


NULLS = pa.table({"x": [1, 2, 3], "c": pa.nulls(3)})


@pytest.mark.parametrize(
    ("values", "kind", "nulls"),
    [
        ([7, None, 9], pa.int64(), -1),
        ([1.5, None], pa.float32(), -1.0),
        ([True, None], pa.bool_(), False),
        ([b"abcd", None], pa.binary(4), 0),
    ],
)
def test_nulls_of_a_null_typed_file_are_nulls_of_the_others_kind(
    tmp_path: Path, values: list[Any], kind: pa.DataType, nulls: Any
) -> None:
    some = pa.table({"x": range(len(values)), "c": pa.array(values, kind)})
    for tables in ((NULLS, some), (some, NULLS)):
        folder = write(tmp_path, *tables)
        expected = of_pyarrow(folder, some.schema)
        fill = bytes(4) if kind == pa.binary(4) else nulls
        filled = [fill if one is None else one for one in expected]
        filled = [list(one) if isinstance(one, bytes) else one for one in filled]
        assert rows(folder, nulls=nulls) == filled
        assert rows(folder, "c.valid", nulls="mask") == [one is not None for one in expected]
        shuffled = rows(folder, nulls=nulls, shuffle=True, seed=3)
        assert sorted(map(str, shuffled)) == sorted(map(str, filled))
        with pytest.raises(NullValueError, match="parquet"):
            rows(folder, nulls="error")


def test_null_typed_files_beside_strings_and_words(tmp_path: Path) -> None:
    folder = write(tmp_path, NULLS, pa.table({"x": [4, 5], "c": ["one", None]}))
    column = next(
        iter(ParquetDataset(folder, batch_size=5, nulls="mask", even="none", columns=["c"]))
    )
    assert column["c"].to_str() == [""] * 3 + ["one", ""]
    assert column["c.valid"].tolist() == [False] * 3 + [True, False]
    words = {"c": Column("c", vocab=["one"], nulls=-2)}
    assert rows(folder, columns=words) == [-2, -2, -2, 0, -2]


@pytest.mark.parametrize(
    "some",
    [
        pa.array([[1, 2], [], None, [3]], pa.list_(pa.int64())),
        pa.array([["a", "bc"], [], None, [""]], pa.list_(pa.string())),
        pa.array([[[1], []], [], None, [[2, 3]]], pa.list_(pa.list_(pa.int32()))),
        pa.array([[1.5, 2], [3, 4]], pa.list_(pa.float32(), 2)),
    ],
)
def test_null_typed_files_beside_lists(tmp_path: Path, some: pa.Array) -> None:
    folder = write(tmp_path, NULLS, pa.table({"x": range(len(some)), "c": some}))
    (batch,) = ParquetDataset(folder, batch_size=99, nulls="mask", columns=["c"])
    expected = of_pyarrow(folder, pa.schema({"x": pa.int64(), "c": some.type}))
    valid = batch["c.valid"].tolist()
    if pa.types.is_fixed_size_list(some.type):
        assert valid == [[one is not None] * 2 for one in expected]
        assert batch["c"].tolist() == [one or [0, 0] for one in expected]
        return
    assert valid == [one is not None for one in expected]
    is_text = pa.types.is_string(some.type.value_type)
    found = batch["c"].to_str() if is_text else batch["c"].to_list()
    assert found == [one or [] for one in expected]


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.bool_()])
def test_lists_of_nulls_are_lists_of_the_others_kind(tmp_path: Path, kind: pa.DataType) -> None:
    value = {pa.int64(): 5, pa.string(): "five", pa.bool_(): True}[kind]
    empty = pa.table({"c": pa.array([[], [None, None], None], pa.list_(pa.null()))})
    some = pa.table({"c": pa.array([[value], [None, value]], pa.list_(kind))})
    folder = write(tmp_path, empty, some)
    (batch,) = ParquetDataset(folder, batch_size=5, nulls="mask", even="none")
    expected = of_pyarrow(folder, some.schema)
    assert batch["c"].lengths.tolist() == [len(one or []) for one in expected]
    assert batch["c.valid"].tolist() == [one is not None for one in expected]
    flat = [item for one in expected for item in one or []]
    assert batch["c.values.valid"].tolist() == [item is not None for item in flat]


def test_structs_that_are_null_typed_in_one_file(tmp_path: Path) -> None:
    some = pa.table({"x": [4], "c": pa.array([{"a": 1, "b": [2, 3]}])})
    folder = write(tmp_path, NULLS, some)
    assert rows(folder, "c.a", nulls=-1) == [-1, -1, -1, 1]
    assert rows(folder, "c.b", nulls=-1) == [[], [], [], [2, 3]]


def test_packed_lists_beside_a_null_typed_file(tmp_path: Path) -> None:
    folder = write(tmp_path, NULLS, pa.table({"x": [4], "c": [[1, 2, 3, 4]]}))
    assert rows(folder, columns=["c"], nulls=0, pack=Pack("c", 4)) == [[1, 2, 3, 4]]


def test_a_column_that_is_null_typed_in_all_files_is_left_out_and_named(tmp_path: Path) -> None:
    folder = write(tmp_path, NULLS, NULLS)
    with pytest.warns(UserWarning, match=r"left out.*'c' \(its type is null") as caught:
        (batch, *_) = ParquetDataset(folder, batch_size=2)
    assert list(batch) == ["x"]
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with pytest.raises(UnsupportedColumnError, match=r"dtype=\.\.\."):
        ParquetDataset(folder, batch_size=2, columns=["c"])
    typed = {"c": Column("c", dtype="int64", nulls=-1)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rows(folder, columns=typed) == [-1] * 6


def test_columns_without_a_name_or_of_one_name_are_left_out_and_named() -> None:
    table = pa.table(
        [pa.array([1]), pa.array([2]), pa.array([3]), pa.array([4])], ["", "a", "a", "b"]
    )
    with pytest.warns(UserWarning, match=r"''.*no name.*'a'.*several columns"):
        (batch,) = ParquetDataset(table, batch_size=1)
    assert list(batch) == ["b"]
    assert rows(table, "x", columns={"x": ""}) == [1]
    nameless = pa.table([pa.array([1])], [""])
    with pytest.raises(UnsupportedColumnError, match=r"columns=\.\.\. selects"):
        ParquetDataset(nameless, batch_size=1)


@pytest.mark.parametrize(
    ("some", "default", "expected"),
    [
        (pa.array([[1, 2]]), [], [[], [1, 2]]),
        (pa.array([[1, 2]]), [7, 8, 9], [[7, 8, 9], [1, 2]]),
        (pa.array([[1.5]], pa.list_(pa.float32())), [0.5], [[0.5], [1.5]]),
        (pa.array([[[1], [2, 3]]]), [], [[], [[1], [2, 3]]]),
    ],
)
def test_lists_that_older_files_lack(
    tmp_path: Path, some: pa.Array, default: list[Any], expected: list[Any]
) -> None:
    folder = write(tmp_path, pa.table({"x": [1, 2]}), pa.table({"x": [3], "c": some}))
    columns = {"c": Column("c", default=default)}
    assert rows(folder, columns=columns) == [expected[0], *expected]
    masked = {"c": Column("c", default=default, nulls="mask")}
    assert rows(folder, "c.valid", columns=masked) == [True, True, True]
    with pytest.raises(SchemaMismatchError, match=r"default=\.\.\."):
        ParquetDataset(folder, batch_size=2, columns=["c"])


def test_fields_of_listed_structs_that_older_files_lack(tmp_path: Path) -> None:
    old, new = pa.array([[{"role": 1}]]), pa.array([[{"role": 1, "extra": 5}]])
    folder = write(tmp_path, pa.table({"c": old}), pa.table({"c": new}))
    columns = {"c": Column("c.extra", default=[])}
    assert rows(folder, columns=columns) == [[], [5]]


def test_a_default_that_does_not_fit_lists_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, pa.table({"x": [1]}), pa.table({"x": [2], "c": [[1]], "s": [["a"]]}))
    for default in (0, "a"):
        with pytest.raises(ValueError, match="default"):
            ParquetDataset(folder, batch_size=2, columns={"c": Column("c", default=default)})
    with pytest.raises(ValueError, match=r"default=\[\]"):
        ParquetDataset(folder, batch_size=2, columns={"s": Column("s", default=[1])})
    with pytest.raises(ValueError, match="representable"):
        ParquetDataset(folder, batch_size=2, columns={"c": Column("c", default=[1.5])})


def keys_of(folder: Path, values: Sequence[str | None]) -> str:
    for number, value in enumerate(values):
        place = folder if value is None else folder / f"k={value}"
        place.mkdir(exist_ok=True)
        pq.write_table(pa.table({"x": [number]}), place / f"{number}.parquet")
    return str(folder)


@pytest.mark.parametrize("texts", [["1", "2"], ["a", "b"]])
def test_null_partition_keys_are_nulls(tmp_path: Path, texts: list[str]) -> None:
    folder = keys_of(tmp_path, [*texts, "__HIVE_DEFAULT_PARTITION__"])
    expected = pads.dataset(folder, partitioning="hive").to_table().to_pydict()
    assert set(map(str, expected["k"])) == {*texts, "None"}
    vocab = texts if texts[0] == "a" else None
    codes = {None: -2, "a": 0, "b": 1}
    numbers = [codes.get(k, k) for k in expected["k"]]
    for shuffle in (False, True):
        batch = read_keys(folder, Column("k", nulls=-2, vocab=vocab), shuffle=shuffle)
        assert sorted(batch) == sorted(zip(expected["x"], numbers, strict=True))
    with pytest.raises(NullValueError):
        read_keys(folder, Column("k", vocab=vocab))
    masked = {"columns": {"k": Column("k", nulls="mask", vocab=vocab)}}
    assert sorted(rows(folder, "k.valid", **masked)) == [False, True, True]
    if vocab is None:
        floats = {"columns": {"k": Column("k", dtype="float32")}}
        assert sorted(map(str, rows(folder, "k", **floats))) == ["1.0", "2.0", "nan"]


def read_keys(folder: str, column: Column, **options: Any) -> list[tuple[int, int]]:
    options |= {"columns": {"x": "x", "k": column}, "batch_size": 99}
    (batch,) = ParquetDataset(folder, **options)
    return list(zip(batch["x"].tolist(), batch["k"].tolist(), strict=True))


def test_a_key_that_some_paths_lack(tmp_path: Path) -> None:
    folder = keys_of(tmp_path, ["5", None])
    assert sorted(read_keys(folder, Column("k", default=-1))) == [(0, 5), (1, -1)]
    with pytest.raises(SchemaMismatchError, match=r"default=\.\.\..*k=5") as caught:
        read_keys(folder, Column("k"))
    assert "1.parquet" in str(caught.value)


UNITS = ("s", "ms", "us", "ns")


UNITS = ("s", "ms", "us", "ns")


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("make", [pa.duration, pa.timestamp])
def test_times_of_several_units_are_read_in_one(tmp_path: Path, make: Any, unit: Any) -> None:
    """In that which is asked for, else in the finest of them."""
    seconds = pa.array([5, -3, None, 1_700_000_000], pa.int64()).cast(make("s"))
    folder = write(tmp_path, *(pa.table({"c": seconds.cast(make(one))}) for one in UNITS))
    expected = pads.dataset(folder, pa.schema({"c": make(unit)})).to_table()["c"]
    numbers = [-7 if n is None else n for n in expected.cast(pa.int64()).to_pylist()]
    for dtype in (None, "float64"):
        columns = {"c": Column("c", unit=unit, nulls=-7, dtype=dtype)}
        assert rows(folder, columns=columns) == numbers
    with pytest.raises(SchemaMismatchError, match=r'unit="us"'):
        ParquetDataset(folder, batch_size=2)
    for dtype in ("int64", "float64"):
        columns = {"c": Column("c", dtype=dtype, nulls=0)}
        paths = [f"{folder}/0.parquet", f"{folder}/2.parquet"]
        with pytest.warns(UserWarning, match=r"unit=.*'c' is read in us"):
            dataset = ParquetDataset(paths, batch_size=8, columns=columns)
        assert next(iter(dataset))["c"].tolist() == [5e6, -3e6, 0, 1.7e15] * 2
        assert dataset.fields[0].unit == "us"


def test_times_that_a_unit_cannot_hold_raise(tmp_path: Path) -> None:
    fine = pa.array([1_500], pa.duration("us"))
    far = pa.array([2**62], pa.timestamp("ms"))
    for values, unit in ((fine, "ms"), (far, "ns")):
        table = pa.table({"c": values})
        with pytest.raises(pa.ArrowInvalid):
            values.cast(pa.duration(unit) if unit == "ms" else pa.timestamp(unit))
        with pytest.raises(CastError):
            rows(table, columns={"c": Column("c", unit=unit)})  # type: ignore[arg-type]
    rounded = {"c": Column("c", unit="ms", dtype="float32")}
    assert rows(pa.table({"c": fine}), columns=rounded) == [1.5]


def test_other_kinds_of_time_in_a_unit(tmp_path: Path) -> None:
    import datetime

    day = datetime.date(2024, 2, 29)
    at = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
    tables = [
        pa.table({"c": pa.array([day])}),
        pa.table({"c": pa.array([at], pa.timestamp("ns", "UTC"))}),
        pa.table({"c": pa.array([at.replace(tzinfo=None)], pa.timestamp("us"))}),
    ]
    folder = write(tmp_path, *tables)
    pq.write_table(tables[1], tmp_path / "3.parquet", use_deprecated_int96_timestamps=True)
    midnight, noon = 1_709_164_800, 1_709_208_000
    columns = {"c": Column("c", unit="s")}
    assert rows(folder, columns=columns) == [midnight, noon, noon, noon]
    times = pa.table({"c": pa.array([[datetime.time(1)]], pa.list_(pa.time32("ms")))})
    assert rows(times, columns=columns) == [[3600]]
    with pytest.raises(UnsupportedColumnError, match="unit is for"):
        rows(pa.table({"c": [1]}), columns=columns)
    durations = pa.table({"c": pa.array([1], pa.duration("s"))})
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    with pytest.raises(SchemaMismatchError):
        rows(write(mixed, durations, tables[2]), columns=columns)
