"""Filters leave row groups out before rows are dealt to ranks; values that no file stores."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchparquet import Column, ParquetDataset, SchemaMismatchError, UnsupportedColumnError

ROWS_PER_GROUP = 10


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Four files below year=/region= directories; ``x`` ascends over all of them."""
    root = tmp_path_factory.mktemp("partitioned")
    first = 0
    for year in (2023, 2024):
        for region in ("de", "fr"):
            directory = root / f"year={year}" / f"region={region}"
            directory.mkdir(parents=True)
            x = np.arange(first, first + 95)
            first += 95
            table = pa.table(
                {"x": x, "y": np.where(x % 7 == 0, -1.0, x), "s": [f"{i:03}" for i in x]}
            )
            pq.write_table(table, directory / "part.parquet", row_group_size=ROWS_PER_GROUP)
    return root


def read(paths: Any, filters: Any, **options: Any) -> Any:
    dataset = ParquetDataset(
        paths, batch_size=7, columns=["x"], filters=filters, row_ids=True, **options
    )
    batches = [{name: value.clone() for name, value in b.items()} for b in dataset]
    assert len(batches) == len(dataset)
    return dataset, {n: torch.cat([b[n] for b in batches]).numpy() for n in ("x", "row.id")}


def groups_of(rows: Any) -> Any:
    """The row groups, as (file, number within it), that the rows with these ``x`` stand in."""
    return {(x // 95, x % 95 // ROWS_PER_GROUP) for x in rows.tolist()}


@pytest.mark.parametrize(
    "filters",
    [
        [("x", ">", 101)],
        [("x", ">=", 20), ("x", "<", 31)],
        [[("x", "<", 3)], [("x", "=", 300)]],
        [("x", "in", [5, 370])],
        [("s", "=", "123")],
        [("year", "=", 2024)],
        [("region", "!=", "de"), ("x", "<", 120)],
        pc.field("x") * 1 > 350,
        (pc.field("year") == 2023) & (pc.field("region") == "fr"),
        pc.field("y") < 0,
        [("x", ">=", 0)],
    ],
    ids=str,
)
def test_every_matching_row_is_read_and_row_groups_stay_whole(
    partitioned: Any, filters: bool | list[Any]
) -> None:
    expression = (
        filters if isinstance(filters, pc.Expression) else pq.filters_to_expression(filters)
    )
    matching = pads.dataset(partitioned, partitioning="hive").to_table(filter=expression)["x"]
    _, got = read(partitioned, filters)
    assert set(matching.to_numpy()) <= set(got["x"].tolist())
    whole = [x for x in range(380) if (x // 95, x % 95 // ROWS_PER_GROUP) in groups_of(got["x"])]
    assert got["x"].tolist() == whole
    # Rows keep the numbers that they have without a filter.
    assert (got["row.id"] == got["x"]).all()


def test_statistics_and_partition_keys_rule_out_what_they_can(partitioned: Any) -> None:
    assert groups_of(read(partitioned, [("x", "=", 101)])[1]["x"]) == {(1, 0)}
    assert groups_of(read(partitioned, [("year", "=", 2024), ("x", "<", 200)])[1]["x"]) == {(2, 0)}
    assert len(read(partitioned, [("region", "=", "fr")])[1]["x"]) == 190
    # Statistics cannot tell.
    assert len(read(partitioned, pc.field("x") * 1 > 350)[1]["x"]) == 380


@settings(max_examples=40, deadline=None)
@given(
    bounds=st.tuples(st.integers(0, 379), st.integers(0, 379)).map(sorted),
    world_size=st.integers(1, 4),
    shuffle=st.booleans(),
)
def test_shares_of_what_is_left_are_even_and_disjoint(
    partitioned: Any, bounds: Any, world_size: int, shuffle: bool
) -> None:
    low, high = bounds
    filters = [("x", ">=", low), ("x", "<=", high)]
    parts = []
    for rank in range(world_size):
        dataset, got = read(
            partitioned, filters, rank=rank, world_size=world_size, shuffle=shuffle, drop_last=False
        )
        parts.append(got["x"])
    assert max(map(len, parts)) - min(map(len, parts)) == 0  # ranks short by one repeat a row
    together = np.concatenate(parts)
    assert set(range(low, high + 1)) <= set(together.tolist())
    assert groups_of(together) == groups_of(np.arange(low, high + 1))
    assert len(together) - len(set(together.tolist())) < world_size
    assert dataset.manifest.num_rows == len(set(together.tolist()))


def test_other_filters_are_other_data(partitioned: Any) -> None:
    everything = ParquetDataset(partitioned, batch_size=1, columns=["x"])
    some = ParquetDataset(partitioned, batch_size=1, columns=["x"], filters=[("x", "<", 50)])
    others = ParquetDataset(partitioned, batch_size=1, columns=["x"], filters=[("x", ">=", 330)])
    same = ParquetDataset(partitioned, batch_size=1, columns=["x"], filters=[("x", "<=", 49)])
    prints = [dataset.manifest.fingerprint for dataset in (everything, some, others)]
    assert len(set(prints)) == 3
    assert same.manifest.fingerprint == some.manifest.fingerprint
    assert pickle.loads(pickle.dumps(some)).manifest.fingerprint == some.manifest.fingerprint


@pytest.mark.parametrize(
    ("filters", "error", "named"),
    [
        ([("nope", "=", 1)], ValueError, "nope"),
        ([("x", ">", 1000)], ValueError, "leave no row group of 40"),
        ([("x", "~", 1)], ValueError, "~"),
        ([("x", "=", "text")], ValueError, "part.parquet"),
        ("x > 1", TypeError, "x > 1"),
    ],
    ids=str,
)
def test_bad_filters_are_refused_at_construction(
    partitioned: Any, filters: list[Any] | str, error: Any, named: str
) -> None:
    with pytest.raises(error, match=named):
        ParquetDataset(partitioned, batch_size=1, filters=filters)


# By directory of each file, the columns of the file; and a filter with the `x` that fulfil it.
HIVE_TREES = {
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
        {1, 2, 3, 4},
    ),
    "a column of another type, named as a key": (
        {"g=0": {"g": ["a", "b"], "x": [1, 2]}, "g=1": {"g": ["c", "d"], "x": [3, 4]}},
        [("g", "=", "d")],
        {3, 4},
    ),
    "a struct named as a key": (
        {"g=0": {"g": [{"h": 1}], "x": [1]}, "g=1": {"g": [{"h": 2}], "x": [2]}},
        [("x", "=", 2)],
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
    for directory, columns in files.items():  # type: ignore[attr-defined]
        folder = tmp_path / above / directory
        folder.mkdir(parents=True)
        pq.write_table(pa.table(columns), folder / "f.parquet")
    dataset = ParquetDataset(tmp_path / above, batch_size=9, columns=["x"], filters=filters)
    assert {x for batch in dataset for x in batch["x"].tolist()} == fulfilled


def test_a_number_that_no_column_holds_is_refused_by_name(partitioned: Any) -> None:
    with pytest.raises(ValueError, match="filters"):
        ParquetDataset(partitioned, batch_size=1, filters=[("x", "=", 2**70)])


def test_partition_keys_are_columns_by_name(partitioned: Any) -> None:
    columns = {"x": "x", "when": "year", "both": Column(["x", "year"], dtype="float32")}
    for options in ({}, {"shuffle": True}, {"max_memory": "2KiB"}):
        dataset = ParquetDataset(partitioned, batch_size=7, columns=columns, **options)  # type: ignore[arg-type]
        for batch in dataset:
            year = 2023 + batch["x"] // 190
            assert batch["when"].dtype == torch.int64
            assert (batch["when"] == year).all()
            assert (batch["both"] == torch.stack([batch["x"], year], dim=1)).all()
    alone = ParquetDataset(partitioned / "year=2024", batch_size=50, columns=["year"])
    assert torch.cat([b["year"].clone() for b in alone]).tolist() == [2024] * 190
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


def test_a_stored_column_goes_before_a_partition_key(tmp_path: Path) -> None:
    (tmp_path / "k=1").mkdir()
    pq.write_table(pa.table({"k": [5, 6]}), tmp_path / "k=1" / "a.parquet")
    (batch,) = ParquetDataset(tmp_path, batch_size=2)
    assert batch["k"].tolist() == [5, 6]


def test_a_missing_column_reads_its_default(tmp_path: Path) -> None:
    first = pa.table({"x": pa.array([1, None, 3], pa.int32()), "y": [1.0, 2.0, 3.0]})
    pq.write_table(first, tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": pa.array([4, 5], pa.int64())}), tmp_path / "b.parquet")
    columns = {
        "x": Column("x", dtype="int64", nulls=0),
        "y": Column("y", default=-1, nulls="mask"),
        "z": Column("y", default=7, dtype=torch.bfloat16),
    }
    (batch,) = ParquetDataset(tmp_path, batch_size=5, columns=columns)
    assert batch["x"].tolist() == [1, 0, 3, 4, 5]
    assert batch["y"].tolist() == [1, 2, 3, -1, -1]
    assert batch["y.valid"].tolist() == [True] * 5
    assert batch["z"].dtype == torch.bfloat16
    assert batch["z"].tolist() == [1, 2, 3, 7, 7]
    with pytest.raises(SchemaMismatchError, match=r"'y': present in .*a.parquet.*b.parquet"):
        ParquetDataset(tmp_path, batch_size=5, columns=["y"])
    with pytest.raises(ValueError, match=r"default must be representable.*300"):
        ParquetDataset(
            tmp_path, batch_size=5, columns={"x": Column("x", dtype="int8", default=300)}
        )
    with pytest.raises(TypeError, match="default must be a number"):
        Column("x", default=["a"])  # type: ignore[list-item]
