"""Splits: deterministic, disjoint, complete, and stable when files are added."""

from __future__ import annotations

import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.rows.conftest import Stored
from tests.rows.reading import ids_of, open_rows
from torchparquet import ParquetDataset, Split

PARTS = {"train": 0.8, "val": 0.15, "test": 0.05}


def ids_by_part(path: Any, by: str | None = None, seed: int = 0, **options: Any) -> dict[str, Any]:
    return {
        name: ids_of(
            ParquetDataset(
                path, batch_size=500, split=Split(name, PARTS, seed, by), row_ids=True, **options
            )
        )
        for name in PARTS
    }


@pytest.mark.parametrize("by", [None, "number", "small", "float", "text", "plain", "cell"])
def test_parts_are_disjoint_and_complete(stored: Stored, by: str | None) -> None:
    found = ids_by_part(stored.path, by, columns=["number"])
    everything = np.concatenate(list(found.values()))
    np.testing.assert_array_equal(np.sort(everything), np.arange(10_001))
    if by is None:
        for name, part in PARTS.items():
            assert abs(len(found[name]) / 10_001 - part) < 0.02
        return
    values = [set(stored.table[by].take(ids).to_pylist()) for ids in found.values()]
    assert sum(map(len, values)) == len(set().union(*values))


def test_the_order_of_the_parts_does_not_matter_but_the_seed_does(stored: Stored) -> None:
    turned = Split("val", dict(reversed(PARTS.items())))
    first = ids_of(open_rows(stored.path, split=Split("val", PARTS)))
    np.testing.assert_array_equal(ids_of(open_rows(stored.path, split=turned)), first)
    as_tuple = open_rows(stored.path, split=("val", PARTS, 0))
    np.testing.assert_array_equal(ids_of(as_tuple), first)
    assert not np.array_equal(ids_of(open_rows(stored.path, split=("val", PARTS, 1))), first)


@pytest.mark.parametrize("by", [None, "text"])
def test_files_that_are_added_leave_rows_where_they_are(
    stored: Stored, tmp_path: Path, by: str | None
) -> None:
    for number in range(3):
        source = stored.path / f"{number}.parquet"
        (tmp_path / source.name).write_bytes(source.read_bytes())
        if number == 1:
            before = ids_by_part(tmp_path, by, columns=["number"])
    after = ids_by_part(tmp_path, by, columns=["number"])
    for name in PARTS:
        np.testing.assert_array_equal(after[name][after[name] < 8000], before[name])


def ids_of_part(column: Any, name: str, seed: int = 0) -> list[int]:
    """Return the rows of one of two parts by the values of a column."""
    table = pa.table({"key": column, "y": range(len(column))})
    split = (name, {"a": 0.5, "b": 0.5}, seed, "key")
    try:
        dataset = ParquetDataset(table, batch_size=9, columns=["y"], row_ids=True, split=split)
    except ValueError:
        return []  # all values of few are in the other part
    ids: list[int] = ids_of(dataset).tolist()
    return ids


def test_equal_values_of_other_types_are_in_one_part() -> None:
    values = pa.array(range(200))
    columns = [values, values.cast(pa.uint32()), values.dictionary_encode()]
    first, *others = [ids_of_part(column, "a") for column in columns]
    assert first
    assert others == [first] * 2


@pytest.mark.parametrize(
    "column",
    [
        pa.array([decimal.Decimal(n) / 4 for n in range(40)]),
        pa.array(range(40), pa.timestamp("ms")),
        pa.array(range(40), pa.date32()),
        pa.array([float("nan"), -0.0, 0.0, None] * 10),
        pa.array([n % 2 == 0 for n in range(40)]),
        pa.array([b"", b"x", None, b"long" * 99] * 10, pa.large_binary()),
    ],
    ids=lambda column: str(column.type),
)
def test_every_type_with_a_hash(column: Any) -> None:
    found = ids_of_part(column, "a", 3) + ids_of_part(column, "b", 3)
    assert sorted(found) == list(range(40))


def test_wrong_splits_say_what_is_wrong(stored: Stored) -> None:
    wrong: list[tuple[Any, type[Exception], str]] = [
        (("x", PARTS), ValueError, "no part 'x'"),
        (("train", {"train": 0.5, "val": 0.4}), ValueError, "add up to 1"),
        (("train", {"train": 1.5, "val": -0.5}), ValueError, "add up to 1"),
        (("train",), TypeError, "split must be"),
        ("train", TypeError, "split must be"),
        (("train", 0.9), TypeError, "dict of fractions"),
        (("train", PARTS, -1), ValueError, "seed"),
        (("train", PARTS, 0, 3), TypeError, "name of a column"),
        (("train", PARTS, 0, "nothing"), ValueError, "nothing"),
        (("train", PARTS, 0, "list"), ValueError, "cannot be by values of type list"),
    ]
    for split, kind, message in wrong:
        with pytest.raises(kind, match=message):
            open_rows(stored.path, split=split)


def test_rows_must_hold_where_rows_and_split(stored: Stored) -> None:
    rows = np.arange(0, 10_001, 2)
    both = open_rows(stored.path, filters="small < 25", rows=rows, split=("train", PARTS))
    small = stored.table["small"].fill_null(99).to_numpy()
    train = ids_of(open_rows(stored.path, split=("train", PARTS)))
    expected = [row for row in train.tolist() if row % 2 == 0 and small[row] < 25]
    assert ids_of(both).tolist() == expected


def test_the_split_of_a_file_does_not_change_between_versions(tmp_path: Path) -> None:
    pq.write_table(pa.table({"key": [f"user {n}" for n in range(60)]}), tmp_path / "a.parquet")
    by_row = ids_by_part(tmp_path, seed=7)["val"]
    by_key = ids_by_part(tmp_path, "key", seed=7)["val"]
    assert by_row.tolist() == [5, 7, 13, 32, 33, 37, 42, 54]
    assert by_key.tolist() == [0, 11, 17, 25, 41, 44]
