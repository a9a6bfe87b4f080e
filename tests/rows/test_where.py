"""Conditions on rows: those of pyarrow, tuples and SQL, with SQL's nulls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from tests.rows.conftest import Stored
from tests.rows.reading import check_values, ids_of, open_rows
from torchparquet import CorruptFileError, ParquetDataset, mix
from torchparquet.cli import main

EXPRESSIONS = [
    pc.field("small") == 3,
    (pc.field("float") > 0) & pc.field("text").is_valid(),
    ~pc.field("flag"),
    pc.field("text").isin(["text 1", "text 2", "text 250"]),
    pc.field("small").is_null() | (pc.field("number") < 0),
    pc.field("small") * 2 + 1 > 90,
]


@pytest.mark.parametrize("where", EXPRESSIONS, ids=str)
def test_an_expression_selects_what_pyarrow_does(stored: Stored, where: Any) -> None:
    numbered = stored.table.append_column("n", pa.array(np.arange(len(stored.table))))
    expected = pads.dataset(numbered).to_table(filter=where)["n"].to_numpy()
    batches = list(open_rows(stored.path, where=where))
    np.testing.assert_array_equal(ids_of(batches), expected)
    check_values(batches, stored.table)


CONDITIONS = [
    "small = 3",
    "small <> 3 and float >= 0.5",
    "small in (1, 2, 44)",
    "small not in (1, 2, 44)",
    "small in (1, null)",
    "text is null or text like 'text 1%'",
    "text ilike 'TEXT _1'",
    "not (small > 10)",
    "not (small > 10 and flag)",
    "small between 5 and 9",
    "small not between 5 and 9",
    "flag",
    "not flag",
    "flag is true",
    "flag is not true",
    "flag is false",
    "small + 2 * 3 - 1 < 12",
    "abs(number) < 100000000000",
    "small % 7 = 3",
    "-small > -4",
    "small / 2 > 20.2",
    "upper(text) = 'TEXT 7' or lower(text) = 'text 8'",
    "length(text) = 6",
    "starts_with(text, 'text 2')",
    "cast(small as bigint) = 7",
    "cast(small as varchar) = '7'",
    "small is not null and (float < 0 or float is null)",
    "true",
    '"small" = 4',
]


@pytest.mark.parametrize("where", CONDITIONS)
def test_a_sql_condition_selects_what_duckdb_does(stored: Stored, where: str) -> None:
    stored_rows = stored.table.append_column("n", pa.array(np.arange(len(stored.table))))
    with duckdb.connect() as connection:
        connection.register("stored", stored_rows)
        rows = connection.sql(f"select n from stored where {where} order by n").fetchall()
    found = ids_of(open_rows(stored.path, where=where, columns=["number"]))
    assert found.tolist() == [number for (number,) in rows]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("small = ", "no SQL condition"),
        ("select 1", "no SQL condition|one SQL condition|cannot use"),
        ("small = 1 group by small", "one SQL condition"),
        ("small = 1; drop table x", "one SQL condition"),
        ("small in (select 1)", "cannot use"),
        ("md5(text) = 'a'", "cannot use"),
        ("nothing = 1", "nothing"),
        ("small", "no condition"),
        ("text > 3", "does not fit"),
        ("small = 1000", "no row of 10001 is left by where"),
        ("small not in (1, null)", "no row of 10001 is left by where"),
        ([("nothing", "=", 1)], "nothing"),
        ([("small", "about", 1)], "cannot be understood"),
    ],
)
def test_a_wrong_condition_says_what_is_wrong(stored: Stored, where: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_rows(stored.path, where=where)


@pytest.mark.parametrize("where", [3, {"x": 1}, [], ("small", "=", 3)])
def test_a_condition_of_another_type(stored: Stored, where: Any) -> None:
    with pytest.raises(TypeError, match="where must be"):
        open_rows(stored.path, where=where)


@pytest.mark.parametrize(
    ("where", "sql"),
    [
        ([("small", "=", 3)], "small = 3"),
        ([("small", "in", [3, 4]), ("float", ">", 0)], "small in (3, 4) and float > 0"),
        ([("small", "not in", [3, 4])], "small not in (3, 4)"),
        ([[("small", "<", 3)], [("flag", "==", True)]], "small < 3 or flag"),
    ],
)
def test_tuples_select_as_sql_does(stored: Stored, where: Any, sql: str) -> None:
    found = [ids_of(open_rows(stored.path, where=one)).tolist() for one in (where, sql)]
    assert found[0] == found[1]


def test_row_groups_without_a_row_are_not_read(tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(4000), "text": [f"{n}" for n in range(4000)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1000)
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    chunk = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(2).column(0)
    content[chunk.dictionary_page_offset or chunk.data_page_offset] ^= 0xFF
    (tmp_path / "a.parquet").write_bytes(content)
    assert ids_of(ParquetDataset(tmp_path, batch_size=9, where="x < 5", row_ids=True)).tolist() == [
        0,
        1,
        2,
        3,
        4,
    ]
    with pytest.raises(CorruptFileError, match=r"a\.parquet"):
        ParquetDataset(tmp_path, batch_size=9, where="x % 2 = 0")


def test_partition_keys_and_columns_that_a_file_lacks(tmp_path: Path) -> None:
    for year, table in (
        (2023, pa.table({"x": [1, 2, 3], "y": [1, None, 3]})),
        (2024, pa.table({"x": pa.array([4, 5], pa.int32())})),
    ):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(table, tmp_path / f"year={year}" / "a.parquet")

    def found(where: str) -> list[int]:
        dataset = ParquetDataset(
            tmp_path, batch_size=2, columns=["year"], where=where, row_ids=True
        )
        return list(ids_of(dataset).tolist())

    assert found("year = 2024") == [3, 4]
    assert found("y is null") == [1, 3, 4]
    assert found("x >= 3 and year < 2024 or x = 5") == [2, 4]


def test_filters_leave_row_groups_and_where_leaves_rows(stored: Stored) -> None:
    both = open_rows(
        stored.path, filters=[("number", ">", 2**39)], where=pc.field("number") > 2**39
    )
    expected = np.flatnonzero(stored.table["number"].to_numpy() > 2**39)
    np.testing.assert_array_equal(ids_of(both), expected)


def test_members_of_a_mix_select_their_rows(stored: Stored) -> None:
    members = [
        open_rows(stored.path, where=where, columns=["number"], shuffle=True)
        for where in ("small < 9", "small > 40")
    ]
    batches = list(mix(members, weights=[0.5, 0.5], seed=0))
    small = stored.table["small"].fill_null(20).to_numpy()[ids_of(batches)]
    assert ((small < 9) | (small > 40)).all()
    assert len(small) > 100


def test_tables_in_memory(stored: Stored) -> None:
    dataset = ParquetDataset(
        stored.table, batch_size=100, columns=["number"], where="small = 3", row_ids=True
    )
    expected = np.flatnonzero(stored.table["small"].fill_null(0).to_numpy() == 3)
    np.testing.assert_array_equal(ids_of(dataset), expected)


def test_sql_needs_sqlglot(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sqlglot", None)
    with pytest.raises(ImportError, match="needs sqlglot: pip install sqlglot;"):
        open_rows(stored.path, where="small = 3")
    assert len(open_rows(stored.path, where=pc.field("small") == 3)) > 0


def test_commands_select_rows(stored: Stored, capsys: pytest.CaptureFixture[str]) -> None:
    number = len(open_rows(stored.path, where="small = 3", batch_size=1, columns=["number"]))
    for command in (
        ["plan", "--world-size", "3"],
        ["verify", "--world-size", "3", "--num-workers", "2"],
        ["verify", "--world-size", "2", "--even", "pad"],
    ):
        assert main([*command, str(stored.path), "--where", "small = 3", "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        if command[0] == "plan":
            assert report["rows"] == number
            continue
        (audit,) = report["audits"]
        assert (audit["num_rows"], audit["num_distinct"]) == (number, number)
        assert audit["faults"] == []
