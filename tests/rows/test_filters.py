"""Rows that conditions select, as pyarrow, pandas and DuckDB do; row groups that are not read."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.rows.conftest import Stored
from tests.rows.reading import ids_of, open_rows, spoil
from torchparquet import CorruptFileError, ParquetDataset
from torchparquet.cli import main

CONDITIONS = """
small = 3 | small <> 3 and float >= 0.5 | small in (1, 2, 44) | small not in (1, 2, 44)
small in (1, null) | text is null or text like 'text 1%' | text ilike 'TEXT _1' | not (small > 10)
not (small > 10 and flag) | small between 5 and 9 | small not between 5 and 9 | flag | not flag
flag is true | flag is not true | flag is false | small + 2 * 3 - 1 < 12
abs(number) < 100000000000 | small % 7 = 3 | -small > -4 | small / 2 > 20.2
upper(text) = 'TEXT 7' or lower(text) = 'text 8' | length(text) = 6 | starts_with(text, 'text 2')
cast(small as bigint) = 7 | cast(small as varchar) = '7'
cast(small as decimal(12, 1)) = cast('7.0' as decimal(12, 1))
text not like 'text 1%' | not (text not ilike 'TEXT 1%')
timestamp '2020-01-01 00:00:00' < cast('2020-01-02 00:00:00' as timestamp) and small = 3
18446744073709551615 > 9223372036854775808 and small = 3
small is not null and (float < 0 or float is null) | true | "small" = 4
"""


@pytest.mark.parametrize("sql", re.split(r" \| |\n", CONDITIONS.strip()))
def test_a_sql_condition_selects_what_duckdb_does(stored: Stored, sql: str) -> None:
    stored_rows = stored.table.append_column("n", pa.array(np.arange(len(stored.table))))
    with duckdb.connect() as connection:
        connection.register("stored", stored_rows)
        rows = connection.sql(f"select n from stored where {sql} order by n").fetchall()
    found = ids_of(open_rows(stored.path, filters=sql, columns=["number"]))
    assert found.tolist() == [number for (number,) in rows]


WAYS = r'tuples such as \[\("x", ">", 3\).*SQL such as "x > 3", or a pyarrow Expression; got '
SIGNS = r'filters must be tuples of a name, one of = == != < <= > >= in "not in", and a value'
MISTAKES: list[tuple[Any, type[Exception], str]] = [
    (3, TypeError, f"{WAYS}3"),
    ({"x": 1}, TypeError, WAYS),
    (("small", "=", 3), TypeError, WAYS),
    (np.array([True, False]), TypeError, WAYS),
    (lambda row: True, TypeError, WAYS),
    ([], ValueError, SIGNS),
    ([[]], ValueError, SIGNS),
    ([3], ValueError, SIGNS),
    (["small = 3"], ValueError, SIGNS),
    ([("small", "=")], ValueError, SIGNS),
    ([("small", "about", 1)], ValueError, f"{SIGNS} .'about' is none of these"),
    ([("small", "in", 3)], ValueError, SIGNS),
    ([("small", "=", 2**70)], ValueError, SIGNS),
    ([("small", "!=", None)], ValueError, 'None, which is true of no row; say "small is null"'),
    ([("nothing", "=", 1)], ValueError, "no such column: 'nothing' in filters; there are 'number'"),
    ([("smal", "=", 1)], ValueError, "'smal' in filters; did you mean 'small'"),
    ([("text", ">", 3)], ValueError, "filters does not fit the types of columns"),
    (pc.field("small"), ValueError, "true or false for each row, their values are int32"),
    ("small = ", ValueError, "one SQL condition, as after WHERE, got 'small = '$"),
    ("small between symmetric 9 and 3", ValueError, "cannot use"),
    ("small = 99999999999999999999", ValueError, "cannot use"),
    ("select 1", ValueError, "SQL condition|cannot use"),
    ("", ValueError, "SQL condition"),
    ("small = 1 group by small", ValueError, "one SQL condition"),
    ("small = 1; drop table x", ValueError, "one SQL condition"),
    ("small in (select 1)", ValueError, "cannot use"),
    ("md5(text) = 'a'", ValueError, "cannot use"),
    ("small = cast('1' as decimal(77, 2))", ValueError, "cannot use"),
    ("nothing = 1", ValueError, "nothing"),
    ("small", ValueError, "true or false for each row"),
    ("small = 1000", ValueError, "no row of 10001 is left by filters"),
    ("float = 1000", ValueError, "no row of 10001 is left by filters"),
    ("small not in (1, null)", ValueError, "no row of 10001 is left by filters"),
    ("false", ValueError, "no row of 10001 is left by filters"),
    ("null", ValueError, "no row of 10001 is left by filters"),
]


@pytest.mark.parametrize(("filters", "error", "message"), MISTAKES)
def test_a_wrong_condition_says_what_is_wrong(
    stored: Stored, filters: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        open_rows(stored.path, filters=filters)


NOON = dt.datetime(2020, 1, 2)
OF_OTHER_TYPES: list[tuple[str, str, Any]] = [
    ("price", "=", 3),
    ("price", "in", [3]),
    ("day", "=", "2020-01-02"),
    ("moment", "=", "2020-01-02"),
    ("in_utc", "=", "2020-01-02"),
    ("in_utc", "=", NOON),
    ("flag", "=", 1),
    ("word", "=", 3),
    ("count", "=", "3"),
]


@pytest.mark.parametrize("term", OF_OTHER_TYPES, ids=str)
def test_a_value_of_another_type_is_answered_with_the_one_to_write(
    tmp_path: Path, term: tuple[str, str, Any]
) -> None:
    columns = {
        "price": [decimal.Decimal("3.00"), decimal.Decimal("4.50")],
        "day": [NOON.date(), dt.date(2021, 1, 1)],
        "moment": [NOON, dt.datetime(2021, 1, 1)],
        "in_utc": [NOON.replace(tzinfo=dt.UTC), dt.datetime(2021, 1, 1, tzinfo=dt.UTC)],
        "flag": [True, False],
        "word": ["3", "4"],
        "count": [3, 4],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    name, sign, _ = term
    with pytest.raises(ValueError, match="filters does not fit the types of columns") as caught:
        open_rows(tmp_path, columns=["count"], filters=[term])
    hint = re.search(r"write (.*); column", str(caught.value))
    assert hint is not None
    python, _, sql = hint[1].partition(", in SQL ")
    value = eval(python, {"datetime": dt, "decimal": decimal})
    for filters in (
        [(name, sign, [value] if sign == "in" else value)],
        f"{name} = {sql or python}",
    ):
        assert ids_of(open_rows(tmp_path, columns=["count"], filters=filters)).tolist() == [0]


def test_a_column_of_types_that_have_nothing_in_common_is_named(tmp_path: Path) -> None:
    """Keys of paths do not stand for it."""
    for key, z in ((1, ["a"]), (2, [[1]])):
        (tmp_path / f"z={key}").mkdir()
        pq.write_table(pa.table({"x": [1], "z": z}), tmp_path / f"z={key}" / "a.parquet")
    with pytest.raises(ValueError, match=r"types without a common one; rewrite .*'z'"):
        ParquetDataset(tmp_path, batch_size=1, columns=["x"], filters="z is not null")


# By directory of each file, the columns of the file; and a filter with the `x` that fulfil it.
HIVE_TREES: dict[str, tuple[dict[str, Any], Any, set[int]]] = {
    "keys that are partly numbers": (
        {"k=1": {"x": [1]}, "k=1b": {"x": [2]}},
        [("k", "=", "1")],
        {1},
    ),
    "a key without a value": (
        {"k=1": {"x": [1]}, "k=__HIVE_DEFAULT_PARTITION__": {"x": [2]}},
        [("x", ">", 1)],
        {2},
    ),
    "a key without a value is null": (
        {"k=1": {"x": [1]}, "k=__HIVE_DEFAULT_PARTITION__": {"x": [2]}},
        pc.field("k").is_null(),
        {2},
    ),
    "a column named as a key": (
        {"g=0": {"g": [0, 0], "x": [1, 2]}, "g=1": {"g": [1, 5], "x": [3, 4]}},
        [("g", "in", [0, 5])],
        {1, 2, 4},
    ),
    "a column of another type, named as a key": (
        {"g=0": {"g": ["a", "b"], "x": [1, 2]}, "g=1": {"g": ["c", "d"], "x": [3, 4]}},
        [("g", "=", "d")],
        {4},
    ),
    "a struct named as a key": (
        {"g=0": {"g": [{"h": 1}], "x": [1]}, "g=1": {"g": [{"h": 2}], "x": [2]}},
        [("x", "=", 2)],
        {2},
    ),
    "a key that some files lack": (
        {"m=1": {"x": [1, 2]}, "m=2": {"x": [3]}, "": {"x": [4]}},
        [("m", "!=", 1)],
        {3},
    ),
    "a key that some files lack is null": (
        {"m=1": {"x": [1, 2]}, "": {"x": [3, 4]}},
        "m is null and x > 3 or m = 1 and x < 2",
        {1, 4},
    ),
    "a key and a column that some files lack": (
        {"k=1": {"x": [1, 2], "y": [5, None]}, "k=2": {"x": [3]}},
        "y is null and k >= 1",
        {2, 3},
    ),
    "a column of types that have nothing in common": (
        {"k=1": {"x": [1, 2], "z": ["a", "b"]}, "k=2": {"x": [3, 4], "z": [[1], [2]]}},
        [("x", ">", 1), ("k", "=", 1)],
        {2},
    ),
    "a column with a dot, whose beginning is a key": (
        {"k=1": {"k.b": [1], "x": [1]}, "k=2": {"k.b": [1], "x": [2]}},
        [("k", "=", 2)],
        {2},
    ),
    "a key twice": (
        {"k=1/k=2": {"x": [1]}, "k=1/k=3": {"x": [2]}},
        [("k", "=", 2)],
        {1},
    ),
    "a file without rows, of another schema": (
        {"k=1": {"x": [1, 2]}, "k=2": {"z": pa.array([], pa.string())}},
        [("x", ">", 0)],
        {1, 2},
    ),
}


@pytest.mark.parametrize("tree", HIVE_TREES)
@pytest.mark.parametrize("above", ["", "g=7/k=8"], ids=["", "below keys"])
def test_filters_and_columns_mean_the_same_by_a_name(tmp_path: Path, tree: str, above: str) -> None:
    """A name is the files' column where they have it, and else the key of their paths."""
    files, filters, fulfilled = HIVE_TREES[tree]
    for directory, columns in files.items():
        folder = tmp_path / above / directory
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), folder / "f.parquet")
    dataset = ParquetDataset(tmp_path / above, batch_size=9, columns=["x"], filters=filters)
    assert sorted(x for batch in dataset for x in batch["x"].tolist()) == sorted(fulfilled)


@pytest.fixture
def spoiled(tmp_path: Path) -> Path:
    """Files below keys, no page of which can be read; `x` ascends over all row groups."""
    for year in (2023, 2024):
        x = np.arange(40) + 40 * (year - 2023)
        maybe = [None if n % 40 >= 30 else n for n in x.tolist()]
        some = [None if n % 10 == 0 else n for n in x.tolist()]
        columns = {"x": x, "s": [f"{n:03}" for n in x], "maybe": maybe, "some": some, "f": x / 2}
        columns["day"] = pa.array(x.astype(np.int32), pa.int32()).cast(pa.date32())
        columns["price"] = pa.array(x).cast(pa.decimal128(21, 2))
        columns |= {"block": x // 10, "fives": x * 0 + 5.0}
        if year == 2024:
            columns["late"] = x
        path = tmp_path / f"year={year}" / "a.parquet"
        path.parent.mkdir()
        pq.write_table(pa.table(columns), path, row_group_size=10)
        spoil(path, keep=set())
    return tmp_path


# The first rows of the row groups that are left.
DECIDED: list[tuple[Any, list[int]]] = [
    ("year = 2024", [40, 50, 60, 70]),
    ([("year", "in", [2023, 2025])], [0, 10, 20, 30]),
    ([("year", "=", 2024), ("x", "<", 60)], [40, 50]),
    ([[("year", "=", 2023), ("x", ">=", 30)], [("s", ">", "069")]], [30, 70]),
    ("x >= 10 and x < 50", [10, 20, 30, 40]),
    ("not (x >= 10 and x < 50)", [0, 50, 60, 70]),
    ("maybe is null", [30, 70]),
    ("maybe is not null", [0, 10, 20, 40, 50, 60]),
    ("maybe < 20", [0, 10]),
    ("s between '010' and '019'", [10]),
    ("late is null", [0, 10, 20, 30]),
    ("late >= 50 or year < 2024 and late is null and x < 10", [0, 50, 60, 70]),
    ("f is not null", [0, 10, 20, 30, 40, 50, 60, 70]),
    ("f > 100 or fives in (1, 6) or x < 10", [0]),
    ("true", [0, 10, 20, 30, 40, 50, 60, 70]),
    ("day < cast('1970-01-21' as date)", [0, 10]),
    (pc.field("price") >= decimal.Decimal("59.5"), [60, 70]),
    ("year % 2 = 0 and block in (4, 9)", [40]),
    ("block <> 1 and not (2 = block or block = 3)", [0, 40, 50, 60, 70]),
]


@pytest.mark.parametrize(("filters", "left"), DECIDED, ids=str)
def test_nothing_is_read_where_statistics_or_keys_decide(
    spoiled: Path, filters: Any, left: list[int]
) -> None:
    dataset = ParquetDataset(spoiled, batch_size=8, columns=["x"], filters=filters)
    assert dataset.manifest.row_group_first_row.tolist() == left
    assert dataset.manifest.num_rows == 10 * len(left)
    # As if the files had no other row groups: no single row is marked.
    assert dataset.manifest.selection is None
    every = ParquetDataset(spoiled, batch_size=8, columns=["x"]).manifest
    assert (dataset.manifest.fingerprint == every.fingerprint) == (len(left) == 8)


@pytest.mark.parametrize(
    "filters", ["x < 5", "x <> 45 and year = 2024", "some < 80", "f >= 0", "fives <> 5"]
)
def test_the_others_are_read(spoiled: Path, filters: str) -> None:
    """A null, or a NaN, that statistics do not count may be among them."""
    with pytest.raises(CorruptFileError, match=r"a\.parquet"):
        ParquetDataset(spoiled, batch_size=8, columns=["x"], filters=filters)


def test_only_undecided_row_groups_are_read(tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(4000), "y": np.arange(4000) % 7})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1000)
    spoil(tmp_path / "a.parquet", keep={1})
    for filters, rows in (
        ("x < 1005", range(1005)),
        ("x between 1500 and 2999", range(1500, 3000)),
        ([("x", ">=", 1000), ("x", "<", 2000), ("y", "=", 3)], range(1004, 2000, 7)),
    ):
        dataset = ParquetDataset(tmp_path, batch_size=9, columns=["x"], filters=filters)
        assert dataset.manifest.num_rows == len(rows)
    with pytest.raises(CorruptFileError):
        ParquetDataset(tmp_path, batch_size=9, filters="x < 1005", split=("a", {"a": 1.0}, 0, "y"))


NAN = float("nan")
# In row groups of two; the last but one can be decided by bounds if there were no NaN.
WITH_NAN = [1.0, 2.0, NAN, 2.0, NAN, NAN, None, 3.0, 5.0, NAN, 5.0, 5.0]
# With the values that fulfil it, as Python's operators have them.
OF_NAN: list[tuple[Any, Callable[[Any], bool]]] = [
    ([("x", "=", 5.0)], lambda x: x == 5),
    ([("x", "!=", 5.0)], lambda x: x is not None and x != 5),
    ([("x", "<", 6.0)], lambda x: x is not None and x < 6),
    ([("x", ">=", 1.0)], lambda x: x is not None and x >= 1),
    ([("x", "in", [5.0, 6.0])], lambda x: x in (5, 6)),
    ([("x", "not in", [5.0, 6.0])], lambda x: x not in (5, 6)),
    ([("x", "in", [NAN])], lambda x: x is not None and math.isnan(x)),
    ([("x", "not in", [NAN])], lambda x: x is None or not math.isnan(x)),
    ([("x", "!=", NAN)], lambda x: x is not None),
    ("x between 4 and 6", lambda x: x is not None and 4 <= x <= 6),
    ("x in (5, 6, cast('nan' as double))", lambda x: x in (5, 6)),
    ("x not in (5, 6)", lambda x: x is not None and x not in (5, 6)),
    ("not (x < 5)", lambda x: x is not None and not x < 5),
    ("x <> x", lambda x: x is not None and math.isnan(x)),
    ("x is null", lambda x: x is None),
    ("x is not null", lambda x: x is not None),
]


@pytest.mark.parametrize(("filters", "fulfils"), OF_NAN, ids=[str(of[0]) for of in OF_NAN])
def test_nan_is_equal_to_nothing_and_no_null(
    tmp_path: Path, filters: Any, fulfils: Callable[[Any], bool]
) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"x": WITH_NAN, "row": range(len(WITH_NAN))})
    pq.write_table(table, path, row_group_size=2, write_page_index=True)
    found = ids_of(open_rows(path, columns=["row"], filters=filters))
    assert found.tolist() == [row for row, x in enumerate(WITH_NAN) if fulfils(x)]


@pytest.mark.parametrize("sign", ["=", "<", "<=", ">", ">="])
def test_a_comparison_with_nan_selects_nothing(tmp_path: Path, sign: str) -> None:
    pq.write_table(pa.table({"x": WITH_NAN}), tmp_path / "a.parquet", row_group_size=2)
    with pytest.raises(ValueError, match="no row of 12 is left by filters"):
        open_rows(tmp_path, columns=["x"], filters=[("x", sign, NAN)])


def test_sql_needs_sqlglot(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sqlglot", None)
    with pytest.raises(ImportError, match="filters in SQL need sqlglot: pip install sqlglot;"):
        open_rows(stored.path, filters="small = 3")
    assert len(open_rows(stored.path, filters=pc.field("small") == 3)) > 0


def test_commands_select_rows(stored: Stored, capsys: pytest.CaptureFixture[str]) -> None:
    number = len(open_rows(stored.path, filters="small = 3", batch_size=1, columns=["number"]))
    for command in (
        ["plan", "--world-size", "3"],
        ["verify", "--world-size", "3", "--num-workers", "2"],
        ["verify", "--world-size", "2", "--even", "pad"],
    ):
        assert main([*command, str(stored.path), "--filter", "small = 3", "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        if command[0] == "plan":
            assert report["rows"] == number
            continue
        (audit,) = report["audits"]
        assert (audit["num_rows"], audit["num_distinct"]) == (number, number)
        assert audit["faults"] == []
