"""Columns that some files lack or hold in another form, and keys of paths, against pyarrow."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
import torch

from tests.fixtures.datasets import batch_of, open_alone
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
    folder.mkdir(exist_ok=True)
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet")
    return str(folder)


def rows(source: Any, name: str = "c", **options: Any) -> list[Any]:
    found: list[Any] = []
    for batch in open_alone(source, **{"batch_size": 2, "even": "none"} | options):
        value = batch[name]
        found += value.to_list() if isinstance(value, Jagged) else value.tolist()
    return found


def of_pyarrow(folder: str, kind: pa.DataType) -> list[Any]:
    values: list[Any] = pads.dataset(folder, pa.schema({"c": kind})).to_table()["c"].to_pylist()
    return values


NULLS = pa.table({"x": [1, 2, 3], "c": pa.nulls(3)})
LISTS_OF_NULLS = pa.table({"c": pa.array([[], [None, None], None], pa.list_(pa.null()))})


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
        expected = of_pyarrow(folder, kind)
        fill = bytes(4) if kind == pa.binary(4) else nulls
        filled = [fill if one is None else one for one in expected]
        filled = [list(one) if isinstance(one, bytes) else one for one in filled]
        assert rows(folder, nulls=nulls) == filled
        assert rows(folder, "c.valid", nulls="mask") == [one is not None for one in expected]
        shuffled = rows(folder, nulls=nulls, shuffle=True, seed=3)
        assert sorted(map(str, shuffled)) == sorted(map(str, filled))
        with pytest.raises(NullValueError, match="parquet"):
            rows(folder, nulls="error")


@pytest.mark.parametrize("nulls", [NULLS, LISTS_OF_NULLS], ids=["nulls", "lists of nulls"])
@pytest.mark.parametrize(
    "some",
    [
        pa.array([[1, 2], [], None, [3]], pa.list_(pa.int64())),
        pa.array([[True], [None, True]], pa.list_(pa.bool_())),
        pa.array([["a", "bc"], [], None, [None, ""]], pa.list_(pa.string())),
        pa.array([[[1], []], [], None, [[2, 3]]], pa.list_(pa.list_(pa.int32()))),
        pa.array([[1.5, 2], [3, 4]], pa.list_(pa.float32(), 2)),
        pa.array(["one", None]),
    ],
)
def test_null_typed_files_beside_lists_and_strings(
    tmp_path: Path, some: pa.Array, nulls: pa.Table
) -> None:
    nesting = str(some.type).count("list")
    if nulls is LISTS_OF_NULLS and (nesting != 1 or pa.types.is_fixed_size_list(some.type)):
        return
    folder = write(tmp_path, nulls, pa.table({"x": range(len(some)), "c": some}))
    batch = batch_of(folder, ["c"], nulls="mask")
    expected = of_pyarrow(folder, some.type)
    valid = batch["c.valid"].tolist()
    if pa.types.is_fixed_size_list(some.type):
        assert valid == [[one is not None] * 2 for one in expected]
        assert batch["c"].tolist() == [one or [0, 0] for one in expected]
        return
    assert valid == [one is not None for one in expected]
    is_text = "string" in str(some.type)
    if nesting == 1:
        items = [item for one in expected for item in one or []]
        assert batch["c.values.valid"].tolist() == [item is not None for item in items]
        missing = "" if is_text else 0
        expected = [[missing if i is None else i for i in one or []] for one in expected]
    found = batch["c"].to_str() if is_text else batch["c"].to_list()
    empty: Any = [] if nesting else ""
    assert found == [one or empty for one in expected]


def test_null_typed_files_beside_words_structs_and_packed_lists(tmp_path: Path) -> None:
    folder = write(tmp_path, NULLS, pa.table({"x": [4, 5], "c": ["one", None]}))
    words = {"c": Column("c", vocab=["one"], nulls=-2)}
    assert rows(folder, columns=words) == [-2, -2, -2, 0, -2]
    write(tmp_path, NULLS, pa.table({"x": [4], "c": pa.array([{"a": 1, "b": [2, 3]}])}))
    assert rows(folder, "c.a", nulls=-1) == [-1, -1, -1, 1]
    assert rows(folder, "c.b", nulls=-1) == [[], [], [], [2, 3]]
    write(tmp_path, NULLS, pa.table({"x": [4], "c": [[1, 2, 3, 4]]}))
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
    table = pa.table([[1], [2], [3], [4]], ["", "a", "a", "b"])
    with pytest.warns(UserWarning, match=r"''.*no name.*'a'.*several columns"):
        assert list(batch_of(table)) == ["b"]
    assert rows(table, "x", columns={"x": ""}) == [1]
    with pytest.raises(UnsupportedColumnError, match=r"columns=\.\.\. selects"):
        ParquetDataset(pa.table([[1]], [""]), batch_size=1)


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
    columns = {"c": Column("c", default=default, nulls="mask")}
    assert rows(folder, columns=columns) == [expected[0], *expected]
    assert rows(folder, "c.valid", columns=columns) == [True, True, True]
    with pytest.raises(SchemaMismatchError, match=r"default=\.\.\."):
        ParquetDataset(folder, batch_size=2, columns=["c"])


def test_defaults_of_what_older_files_lack(tmp_path: Path) -> None:
    """Of fields of listed structs and of numbers, whose kind may differ; they are not null."""
    old, new = pa.array([[{"role": 1}]]), pa.array([[{"role": 1, "extra": 5}]])
    folder = write(tmp_path, pa.table({"c": old}), pa.table({"c": new}))
    assert rows(folder, columns={"c": Column("c.extra", default=[])}) == [[], [5]]
    first = pa.table({"x": pa.array([1, None, 3], pa.int32()), "y": [1.0, 2.0, 3.0]})
    write(tmp_path, first, pa.table({"x": pa.array([4, 5], pa.int64())}))
    columns = {
        "x": Column("x", dtype="int64", nulls=0),
        "y": Column("y", default=-1, nulls="mask"),
        "z": Column("y", default=7, dtype=torch.bfloat16),
    }
    batch = batch_of(folder, columns)
    assert batch["z"].dtype == torch.bfloat16
    assert {name: value.tolist() for name, value in batch.items()} == {
        "x": [1, 0, 3, 4, 5],
        "y": [1, 2, 3, -1, -1],
        "y.valid": [True] * 5,
        "z": [1, 2, 3, 7, 7],
    }
    with pytest.raises(SchemaMismatchError, match=r"'y': present in .*0.parquet.*1.parquet"):
        ParquetDataset(folder, batch_size=5, columns=["y"])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        *((Column("c", default=default), "default") for default in (0, "a")),
        (Column("s", default=[1]), r"default=\[\]"),
        (Column("c", default=[1.5]), "representable"),
        (Column("x", dtype="int8", default=300), r"default must be representable.*300"),
    ],
)
def test_a_default_that_does_not_fit_is_refused(
    tmp_path: Path, column: Column, message: str
) -> None:
    folder = write(tmp_path, pa.table({"x": [1]}), pa.table({"x": [2], "c": [[1]], "s": [["a"]]}))
    with pytest.raises(ValueError, match=message):
        ParquetDataset(folder, batch_size=2, columns={"o": column})


# Keys of paths


def keys_of(folder: Path, values: Sequence[str | None]) -> str:
    for number, value in enumerate(values):
        place = folder if value is None else folder / f"k={value}"
        place.mkdir(exist_ok=True)
        pq.write_table(pa.table({"x": [number]}), place / f"{number}.parquet")
    return str(folder)


def read_keys(folder: str, column: Column, **options: Any) -> list[tuple[int, int]]:
    batch = batch_of(folder, {"x": "x", "k": column}, **options)
    return sorted(zip(batch["x"].tolist(), batch["k"].tolist(), strict=True))


@pytest.mark.parametrize("texts", [["1", "2"], ["a", "b"]])
def test_null_partition_keys_are_nulls(tmp_path: Path, texts: list[str]) -> None:
    folder = keys_of(tmp_path, [*texts, "__HIVE_DEFAULT_PARTITION__"])
    expected = pads.dataset(folder, partitioning="hive").to_table().to_pydict()
    assert set(map(str, expected["k"])) == {*texts, "None"}
    vocab = texts if texts[0] == "a" else None
    codes = {None: -2, "a": 0, "b": 1}
    numbers = [codes.get(k, k) for k in expected["k"]]
    for words, shuffle in ((vocab, False), (vocab and "auto", True)):
        found = read_keys(folder, Column("k", nulls=-2, vocab=words), shuffle=shuffle)
        assert found == sorted(zip(expected["x"], numbers, strict=True))
    with pytest.raises(NullValueError):
        read_keys(folder, Column("k", vocab=vocab))
    masked = {"columns": {"k": Column("k", nulls="mask", vocab=vocab)}}
    assert sorted(rows(folder, "k.valid", **masked)) == [False, True, True]
    if vocab is None:
        floats = {"columns": {"k": Column("k", dtype="float32")}}
        assert sorted(map(str, rows(folder, "k", **floats))) == ["1.0", "2.0", "nan"]


def test_keys_that_some_paths_lack_or_files_store(tmp_path: Path) -> None:
    folder = keys_of(tmp_path, ["5", None])
    assert read_keys(folder, Column("k", default=-1)) == [(0, 5), (1, -1)]
    with pytest.raises(SchemaMismatchError, match=r"default=\.\.\..*k=5.*1\.parquet"):
        read_keys(folder, Column("k"))
    write(tmp_path / "k=1", pa.table({"k": [5, 6]}))
    assert rows(tmp_path / "k=1", "k") == [5, 6]


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two files below year=/region= directories; `x` ascends over both."""
    root = tmp_path_factory.mktemp("partitioned")
    for year in (2023, 2024):
        folder = root / f"year={year}" / "region=de"
        folder.mkdir(parents=True)
        x = range(190 * (year - 2023), 190 * (year - 2022))
        pq.write_table(pa.table({"x": x, "y": x}), folder / "part.parquet", row_group_size=10)
    return root


def test_partition_keys_are_columns_by_name(partitioned: Any) -> None:
    columns = {"x": "x", "when": "year", "both": Column(["x", "year"], dtype="float32")}
    for options in ({}, {"shuffle": True}, {"max_memory": "2KiB"}):
        dataset = ParquetDataset(partitioned, batch_size=7, columns=columns, **options)  # type: ignore[arg-type]
        for batch in dataset:
            year = 2023 + batch["x"] // 190
            assert batch["when"].dtype == torch.int64
            assert (batch["when"] == year).all()
            assert (batch["both"] == torch.stack([batch["x"], year], dim=1)).all()
    assert rows(partitioned / "year=2024", "year", columns=["year"]) == [2024] * 190
    assert "year" not in next(iter(ParquetDataset(partitioned, batch_size=1, columns=["x", "y"])))


@pytest.mark.parametrize(
    ("columns", "error", "named"),
    [
        (["region"], UnsupportedColumnError, "partition key 'de'"),
        ({"y": Column("year", dtype="int8")}, ValueError, "int8, the value 202[34]"),
        ({"y": Column("year", dtype="bool")}, UnsupportedColumnError, "cannot be read as bool"),
        (["month"], ValueError, "no such column: 'month'"),
    ],
    ids=str,
)
def test_partition_keys_that_cannot_be_read(
    partitioned: Any, columns: dict[str, Any] | list[str], error: Any, named: str
) -> None:
    with pytest.raises(error, match=named):
        ParquetDataset(partitioned, batch_size=1, columns=columns)


# Times


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
        with pytest.raises(pa.ArrowInvalid):
            values.cast(pa.duration(unit) if unit == "ms" else pa.timestamp(unit))
        with pytest.raises(CastError):
            rows(pa.table({"c": values}), columns={"c": Column("c", unit=unit)})  # type: ignore[arg-type]
    rounded = {"c": Column("c", unit="ms", dtype="float32")}
    assert rows(pa.table({"c": fine}), columns=rounded) == [1.5]


def test_other_kinds_of_time_in_a_unit(tmp_path: Path) -> None:
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
    with pytest.raises(SchemaMismatchError):
        rows(write(tmp_path / "mixed", durations, tables[2]), columns=columns)
