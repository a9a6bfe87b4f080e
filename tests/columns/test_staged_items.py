"""Items of 8 bytes in shuffle windows, staged as differences where they lie close together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from torchparquet import Column, ParquetDataset

GROUP_ROWS = 5000  # some strips of a task
NUM_GROUPS = 6
NUM_ROWS = GROUP_ROWS * NUM_GROUPS
# How far items may lie from the middle of those that a task brings first.
REACH = 2**31


def one_off(value: int, row: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    items = np.zeros(NUM_ROWS, np.int64)
    items[row] = value
    return items


@pytest.fixture(scope="module")
def items() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(5)
    numbers = np.arange(NUM_ROWS)
    last = NUM_ROWS - 1
    return {
        "close": rng.integers(10**12, 10**12 + 1000, NUM_ROWS),
        "around_zero": rng.integers(-1000, 1000, NUM_ROWS),
        "anywhere": rng.integers(-(2**63), 2**63 - 1, NUM_ROWS, endpoint=True),
        "extremes": rng.choice(np.array([-(2**63), 2**63 - 1]), NUM_ROWS),
        "rising": numbers * 10**7,
        "late": np.where(numbers < NUM_ROWS - 100, numbers % 7, numbers * 10**9),
        "last_above": one_off(REACH - 1, last),
        "just_above": one_off(REACH, last),
        "last_below": one_off(-REACH, last),
        "just_below": one_off(-REACH - 1, last),
        "early_above": one_off(REACH, GROUP_ROWS - 1),
        "unsigned": rng.integers(2**64 - 1000, 2**64 - 1, NUM_ROWS, np.uint64, endpoint=True),
        "zeros_then_halves": np.where(numbers < 9000, 0.0, numbers / 2),
        "doubles": rng.random(NUM_ROWS),
    }


@pytest.fixture(scope="module")
def path(items: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("staged") / "items.parquet"
    nulls = np.arange(NUM_ROWS) % 3 == 1
    table = pa.table({**items, "nullable": pa.array(items["close"], mask=nulls)})
    dictionaries = ["around_zero", "unsigned"]
    pq.write_table(
        table, path, row_group_size=GROUP_ROWS, use_dictionary=dictionaries, data_page_size=9000
    )
    return path


def assert_epoch(dataset: ParquetDataset, items: dict[str, Any]) -> None:
    seen = []
    for batch in dataset:
        rows = batch["row.id"].numpy()
        seen += rows.tolist()
        nulls, close = rows % 3 == 1, items["close"][rows]
        expected = {name: values[rows] for name, values in items.items()} | {
            "masked.valid": ~nulls,
            "filled": np.where(nulls, -(2**62), close),
            "pair": np.stack([close, items["late"][rows]], axis=1),
        }
        for name, values in expected.items():
            assert batch[name].numpy().tobytes() == values.tobytes(), name
        assert batch["masked"].numpy()[~nulls].tolist() == close[~nulls].tolist()
    assert sorted(seen) == list(range(NUM_ROWS))
    assert seen != sorted(seen)


@pytest.mark.parametrize("num_threads", [1, 2, 4])
@pytest.mark.parametrize("window", [1, 2, 6])
def test_items_are_those_of_the_file_however_far_apart(
    path: Path, items: dict[str, Any], window: int, num_threads: int
) -> None:
    dataset = ParquetDataset(
        path,
        batch_size=777,
        columns={
            **{name: name for name in items},
            "masked": Column("nullable", nulls="mask"),
            "filled": Column("nullable", nulls=-(2**62)),
            "pair": ["close", "late"],
        },
        shuffle=True,
        shuffle_window=window,
        row_ids=True,
        num_threads=num_threads,
    )
    for epoch in range(2):
        dataset.set_epoch(epoch)
        assert_epoch(dataset, items)
