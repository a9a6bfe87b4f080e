"""Random conditions on random columns select the rows that pyarrow selects in memory.

There nothing can be decided by statistics, page indexes, Bloom filters or partition keys. Random
tuples select the rows that pandas does.
"""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import itertools
import operator
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rows.reading import rows_where

NOON = dt.datetime(2024, 2, 29, 12)
FLOATS = [0.0, -0.0, 1.5, -2.5, 5.0, float("nan"), float("inf"), float("-inf")]
# A few values of each type, of which many row groups and pages have one alone.
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [-128, -1, 0, 1, 127],
    pa.int16(): [-300, 0, 300],
    pa.int32(): [-(2**31), -7, 0, 7, 2**31 - 1],
    pa.int64(): [-(2**63), -7, 0, 7, 2**63 - 1],
    pa.uint8(): [0, 1, 200],
    pa.uint32(): [0, 1, 2**31, 2**32 - 1],
    pa.uint64(): [0, 1, 2**63, 2**64 - 1],
    pa.float32(): FLOATS,
    pa.float64(): FLOATS,
    pa.bool_(): [True, False],
    pa.date32(): [dt.date(1969, 1, 1), dt.date(2024, 2, 29)],
    pa.timestamp("ms"): [NOON, NOON + dt.timedelta(days=1), dt.datetime(1950, 1, 1)],
    pa.timestamp("us", "UTC"): [
        NOON.replace(tzinfo=dt.UTC),
        dt.datetime(1950, 1, 1, tzinfo=dt.UTC),
    ],
    pa.timestamp("ns"): [NOON, dt.datetime(1950, 1, 1)],
    pa.time32("ms"): [dt.time(0), dt.time(23, 59)],
    pa.time64("us"): [dt.time(0), dt.time(0, 0, 1), dt.time(23, 59)],
    pa.decimal128(9, 2): [decimal.Decimal("-1.25"), decimal.Decimal(0), decimal.Decimal("9.99")],
    pa.decimal128(30, 1): [decimal.Decimal("-1e20"), decimal.Decimal("0.5")],
    pa.string(): ["", "a", "ab", "ä", "\U0001f600", "z" * 80],
    pa.large_string(): ["", "a", "ab", "y" * 70 + "a", "y" * 70 + "b"],
    pa.binary(): [b"", b"\0", b"\x7f", b"\xff\xfe"],
    pa.dictionary(pa.int32(), pa.string()): ["a", "b", "c"],
}
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Return up to three columns, in runs of equal values, sorted ones too."""
    num_rows = draw(st.integers(1, 60))
    columns = {}
    for number in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(list(VALUES)))
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        choices = VALUES[kind]
        chosen = rng.integers(0, len(choices), num_rows)
        if draw(st.booleans()):
            chosen = np.sort(chosen)
        if draw(st.booleans()):
            chosen = np.repeat(chosen, rng.integers(1, 9))[:num_rows]
        is_null = rng.random(num_rows) < draw(st.sampled_from([0.0, 0.1, 0.8]))
        values = [None if null else choices[at] for at, null in zip(chosen, is_null, strict=True)]
        columns[f"c{number}"] = pa.array(values, kind)
    return pa.table(columns)


@st.composite
def conditions(draw: st.DrawFn, schema: pa.Schema, depth: int = 3) -> pc.Expression:
    """Return a comparison, or up to eight of them, with and, or and not."""
    form = draw(st.integers(0, 3 if depth else 0))
    if form == 1:
        return ~draw(conditions(schema, depth - 1))
    if form > 1:
        both = operator.and_ if form == 2 else operator.or_
        return both(draw(conditions(schema, depth - 1)), draw(conditions(schema, depth - 1)))
    field = draw(st.sampled_from(list(schema)))
    column, plain = pc.field(field.name), field.type
    if pa.types.is_dictionary(plain):
        plain = plain.value_type
    values = st.sampled_from(VALUES[field.type]).map(lambda value: pa.scalar(value, plain))
    kind = draw(st.integers(0, 8))
    if kind == 0:
        return column.is_null(nan_is_null=draw(st.booleans()))
    if kind == 1:
        return column.is_valid()
    if kind == 2 and not pa.types.is_dictionary(field.type):
        wanted = [value.as_py() for value in draw(st.lists(values, max_size=3))]
        return column.isin(pa.array([*wanted, *draw(st.sampled_from([[], [None]]))], plain))
    comparison, value = draw(st.sampled_from(COMPARISONS)), draw(values)
    if draw(st.booleans()):
        return comparison(pc.scalar(value), column)
    return comparison(column, value) | comparison(column, draw(values))


def expected_rows(table: pa.Table, condition: pc.Expression) -> list[int]:
    numbered = table.append_column("number", pa.array(range(len(table))))
    rows: list[int] = numbered.filter(condition)["number"].to_pylist()
    return rows


def found_rows(path: Path, condition: Any) -> list[int]:
    try:
        return rows_where(path, condition, "held")
    except ValueError as error:
        if "is left by filters" not in str(error):
            raise
        return []


@given(st.data())
@settings(max_examples=60)
def test_random_conditions(data: st.DataObject) -> None:
    table = data.draw(tables())
    condition = data.draw(conditions(table.schema))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        pq.write_table(
            table.append_column("held", pa.array(np.zeros(len(table), np.int8))),
            path,
            row_group_size=data.draw(st.sampled_from([4, 17, 60])),
            # Three rows a page.
            write_batch_size=3,
            data_page_size=1,
            use_dictionary=data.draw(st.booleans()),
            write_page_index=data.draw(st.booleans()),
            write_statistics=data.draw(st.booleans()),
        )
        assert found_rows(path, condition) == expected_rows(table, condition)


# Of the columns and the keys of two levels of folders.
OF_TUPLES: dict[str, list[Any]] = {
    "i": [-7, 0, 7, 2**40],
    "t": ["", "a", "ab", "z" * 80],
    "d": [NOON, NOON + dt.timedelta(days=1)],
    "f": [0.5, 1.5, -2.5],
    "year": [2023, 2024, 0],
    "region": ["de", "fr", "x y", ""],
}


@st.composite
def tuples(draw: st.DrawFn) -> tuple[str, str, Any]:
    name = draw(st.sampled_from(list(OF_TUPLES)))
    values = st.sampled_from(OF_TUPLES[name])
    signs = ["=", "==", "!=", "<", "<=", ">", ">=", "in", "not in"]
    sign = draw(st.sampled_from(signs))
    value = draw(st.sets(values, min_size=1, max_size=3) if "in" in sign else values)
    return (name, sign, value)


@given(
    filters=st.lists(tuples(), min_size=1, max_size=2)
    | st.lists(st.lists(tuples(), min_size=1, max_size=3), min_size=1, max_size=3),
    seed=st.integers(0, 99),
)
@settings(max_examples=40)
def test_random_tuples_select_what_pandas_does(filters: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        keys = ("2023", "2024", "__HIVE_DEFAULT_PARTITION__"), ("de", "x%20y")
        for number, (year, region) in enumerate(itertools.product(*keys)):
            chosen = {name: np.sort(rng.integers(0, len(OF_TUPLES[name]), 6)) for name in "itdf"}
            columns = {
                name: [OF_TUPLES[name][at] if rng.random() < 0.9 else None for at in places]
                for name, places in chosen.items()
            }
            numbers = {"held": range(6 * number, 6 * number + 6)}
            path = Path(folder) / f"year={year}" / f"region={region}" / "a.parquet"
            path.parent.mkdir(parents=True)
            pq.write_table(pa.table(columns | numbers), path, row_group_size=2)
        wanted = pd.read_parquet(folder, filters=filters, columns=["held"])["held"]
        assert found_rows(Path(folder), filters) == sorted(wanted)


NAN = float("nan")
LOOSE: dict[str, tuple[dict[str, pa.Array], pc.Expression]] = {
    "in a list with 0.0": ({"x": pa.array([0.0] * 9)}, pc.field("x").isin([0.0, 1.5])),
    "a name with a dot": (
        {"a.b": pa.array(range(9)), "a": pa.array([{"b": 100 + row} for row in range(9)])},
        pc.field("a.b") == 5,
    ),
    "a struct with a dot in its name": (
        {"a.b": pa.array([{"c": row} for row in range(9)]), "a": pa.array([{"b": 9}] * 9)},
        pc.field("a.b", "c") == 5,
    ),
    "a cast that rounds": (
        {"x": pa.array([0.1] * 9)},
        pc.field("x").cast(pa.float32(), safe=False) > pa.scalar(0.1, pa.float64()),
    ),
    "a cast that wraps": (
        {"x": pa.array([1, 2**32 - 1] * 4, pa.uint32())},
        pc.field("x").cast(pa.int32(), safe=False) < 0,
    ),
    "a cast that NaN has not": (
        {"x": pa.array([1.0, 2.0, 3.0])},
        pc.field("x").cast(pa.int64()) == 3,
    ),
    "NaN beside integers": ({"x": pa.array([5] * 9, pa.uint8())}, ~(pc.field("x") < NAN)),
    "NaN in a list": ({"x": pa.array([5.0, NAN])}, pc.field("x").isin([NAN, 1.0])),
    "NaN beside a value in two columns": (
        {"x": pa.array([5.0, NAN, NAN, None]), "y": pa.array([5.0, 5.0, NAN, 5.0])},
        (pc.field("x") != 5) & (pc.field("y") != 5),
    ),
    "no column": ({"x": pa.array([1, 2])}, pc.scalar(value=True)),
}


@pytest.mark.parametrize("has_index", [False, True])
@pytest.mark.parametrize("case", LOOSE)
def test_bounds_that_say_too_much(tmp_path: Path, case: str, has_index: bool) -> None:
    """Here pyarrow would leave row groups out, by its statistics or the same bounds of pages."""
    columns, condition = LOOSE[case]
    table = pa.table(columns)
    path = tmp_path / "a.parquet"
    held = pa.array(np.zeros(len(table), np.int8))
    pq.write_table(table.append_column("held", held), path, write_page_index=has_index)
    expected = expected_rows(table, condition)
    assert found_rows(path, condition) == expected
    assert expected


def test_wide_schemas_and_long_conditions(tmp_path: Path) -> None:
    columns = {f"c{number}": [1.0, 2.0, 3.0] for number in range(2000)}
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns | {"held": [0, 0, 0]}), path)
    both = [pc.field(f"c{number}") >= number % 3 for number in range(0, 2000, 200)]
    assert found_rows(path, functools.reduce(operator.and_, both)) == [1, 2]
    values = np.random.default_rng(0).integers(0, 10**9, 4000)
    path = tmp_path / "b.parquet"
    table = pa.table({"x": values, "held": np.zeros(4000, np.int8)})
    options: dict[str, Any] = {"write_batch_size": 2, "data_page_size": 1}
    pq.write_table(table, path, write_page_index=True, use_dictionary=False, **options)
    wanted = [*range(5 * 10**8, 5 * 10**8 + 300), int(values[77])]
    sql = f"x in ({', '.join(map(str, wanted))})"
    assert found_rows(path, sql) == np.flatnonzero(np.isin(values, wanted)).tolist()
