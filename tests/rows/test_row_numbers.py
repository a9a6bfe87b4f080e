"""Rows that are chosen by number, by mask, by file, and by a file of numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from tests.rows.conftest import Stored
from tests.rows.reading import ids_of, open_rows
from torchparquet import ParquetDataset

CHOSEN = [0, 3, 4, 5, 1499, 1500, 7999, 8000, 10_000]


def found(stored: Stored, rows: Any, **options: Any) -> list[int]:
    dataset = open_rows(stored.path, rows=rows, columns=["number"], **options)
    ids: list[int] = ids_of(dataset).tolist()
    return ids


@pytest.mark.parametrize(
    "rows",
    [
        CHOSEN,
        CHOSEN[::-1],
        np.array(CHOSEN, np.uint16),
        np.isin(np.arange(10_001), CHOSEN),
        pa.table({"row": CHOSEN}),
        {
            "0.parquet": [0, 3, 4, 5, 1499, 1500],
            "1.parquet": np.array([2999]),
            "2.parquet": np.isin(np.arange(2001), [0, 2000]),
        },
        pa.table(
            {
                "row": [0, 2999, 2000, 3, 4, 5, 1499, 1500, 0],
                "file": ["0.parquet", "1.parquet", "2.parquet", *["0.parquet"] * 5, "2.parquet"],
            }
        ),
    ],
    ids=["list", "descending", "uint16", "mask", "table", "by file", "table by file"],
)
def test_every_form_of_the_same_rows(stored: Stored, rows: Any) -> None:
    assert found(stored, rows) == CHOSEN


def test_files_of_row_numbers(stored: Stored, tmp_path: Path) -> None:
    fingerprint = open_rows(stored.path).manifest.content_fingerprint
    table = pa.table({"row": CHOSEN}).replace_schema_metadata(
        {"torchparquet.fingerprint": fingerprint}
    )
    np.save(tmp_path / "a.npy", np.array(CHOSEN))
    pq.write_table(table, tmp_path / "a.parquet")
    feather.write_feather(table, tmp_path / "a.feather", compression="uncompressed")
    for name in ("a.npy", "a.parquet", "a.feather"):
        assert found(stored, tmp_path / name) == CHOSEN
        assert found(stored, str(tmp_path / name)) == CHOSEN


def test_row_numbers_of_other_files_are_refused(stored: Stored, tmp_path: Path) -> None:
    other = pa.table({"row": CHOSEN}).replace_schema_metadata({"torchparquet.fingerprint": "abc"})
    pq.write_table(other, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="fingerprint abc"):
        found(stored, tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([5, 10_001], "rows has 10001, but the files hold 10001 rows"),
        ([-1, 5], "rows has -1"),
        ([5, 3, 5], r"numpy\.unique.*mix data sets.*: row 5 is there twice"),
        (np.ones(10_000, bool), "mask of 10000 rows, there are 10001"),
        ({"9.parquet": [0]}, "does not have: '9.parquet'"),
        ({"2.parquet": [2001]}, "rows has 2001 of '2.parquet', which holds 2001 rows"),
        ([], "no row of 10001 is left by rows"),
        (np.zeros((2, 2), int), "one dimension"),
        (pa.table({"x": [1]}), 'column "row"'),
        ("rows.txt", "must be a .npy"),
    ],
    ids=str,
)
def test_wrong_rows_say_what_is_wrong(stored: Stored, rows: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        found(stored, rows)


def test_rows_of_another_type(stored: Stored) -> None:
    with pytest.raises(TypeError, match="integers or bools"):
        found(stored, [0.5])
    with pytest.raises(FileNotFoundError):
        found(stored, "/none.npy")


@pytest.mark.long
def test_more_rows_than_int32_counts(tmp_path: Path) -> None:
    group_rows, num_groups = 2**27, 17
    path = tmp_path / "a.parquet"
    with pq.ParquetWriter(path, pa.schema([("flag", pa.bool_())]), compression="zstd") as writer:
        for number in range(num_groups):
            flags = np.zeros(group_rows, bool)
            flags[number] = True
            writer.write_table(pa.table({"flag": flags}), row_group_size=group_rows)
    flagged = np.arange(num_groups) * (group_rows + 1)
    others = np.array([0, 2**31 - 1, 2**31, group_rows * num_groups - 1])
    for options, expected in (
        ({"rows": flagged}, flagged),
        ({"rows": np.setdiff1d(others, flagged)}, np.setdiff1d(others, flagged)),
        ({"filters": "flag"}, flagged),
    ):
        dataset = ParquetDataset(path, batch_size=8, row_ids=True, **options)
        np.testing.assert_array_equal(ids_of(dataset), expected)
        found_flags = [flag for batch in dataset for flag in batch["flag"].tolist()]
        assert found_flags == np.isin(expected, flagged).tolist()
