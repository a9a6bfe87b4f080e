"""Shuffle windows that are told in rows."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from tests.rows.conftest import some_table
from tests.rows.reading import check_values, ids_of, open_rows
from torchparquet import ParquetDataset

NUM_ROWS = 6000
WINDOW = "700 rows"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same rows in row groups of 3,000: with offset indexes and without."""
    root = tmp_path_factory.mktemp("windows")
    table = some_table(np.random.default_rng(3), NUM_ROWS)
    paths = {}
    for name in ("indexed", "plain"):
        paths[name] = root / f"{name}.parquet"
        options = {"write_batch_size": 130, "write_page_index": name == "indexed"}
        pq.write_table(table, paths[name], row_group_size=3000, data_page_size=1, **options)
    return paths


def shuffled(path: Path, **options: Any) -> ParquetDataset:
    return open_rows(path, shuffle=True, seed=4, **{"shuffle_window": WINDOW, **options})


@pytest.mark.parametrize("name", ["indexed", "plain"])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_each_row_comes_once_and_in_the_same_order(
    files: dict[str, Path], name: str, num_threads: int
) -> None:
    expected = ids_of(shuffled(files["plain"], num_threads=1, columns=["number"]))
    batches = list(shuffled(files[name], num_threads=num_threads))
    ids = ids_of(batches)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(np.sort(ids), np.arange(NUM_ROWS))
    check_values(batches, pq.read_table(files["plain"]))


def test_windows_are_parts_of_row_groups_in_any_order(files: dict[str, Path]) -> None:
    # 3,000 rows in parts of at most 700 are five of 600.
    ids = ids_of(shuffled(files["indexed"], columns=["number"])).reshape(10, 600)
    parts = ids // 600
    assert (parts == parts[:, :1]).all()
    order = parts[:, 0].tolist()
    assert sorted(order) == list(range(10))
    assert order != sorted(order)
    assert {part // 5 for part in order[:5]} == {0, 1}, "the first row group comes first"
    assert all((row != np.sort(row)).any() for row in ids)


def test_small_row_groups_are_permuted_together(files: dict[str, Path]) -> None:
    whole = ids_of(shuffled(files["plain"], shuffle_window="6_000 rows", columns=["number"]))
    by_groups = ids_of(shuffled(files["plain"], shuffle_window=2, columns=["number"]))
    np.testing.assert_array_equal(whole, by_groups)


@pytest.mark.parametrize("even", ["split", "drop", "pad", "none"])
def test_ranks_share_and_resume_on_another_world(files: dict[str, Path], even: Any) -> None:
    options: dict[str, Any] = {"columns": ["number"], "even": even, "batch_size": 50}
    world = [shuffled(files["indexed"], rank=rank, world_size=3, **options) for rank in range(3)]
    first = [list(islice(iterator, 7)) for iterator in map(iter, world)]
    read = np.concatenate([ids_of(batches) for batches in first])
    state = world[0].state_dict()
    rest = []
    for rank in range(2):
        dataset = shuffled(files["indexed"], rank=rank, world_size=2, **options)
        dataset.load_state_dict(state)
        for batch in dataset:
            valid = batch.get("row.valid", torch.ones(len(batch["row.id"]), dtype=torch.bool))
            rest.append(batch["row.id"][valid].numpy())
    found = np.concatenate([read, *rest])
    assert not set(read) & set(np.concatenate(rest))
    if even in ("pad", "none"):
        np.testing.assert_array_equal(np.sort(found), np.arange(NUM_ROWS))


def test_a_state_of_another_window_is_refused(files: dict[str, Path]) -> None:
    state = shuffled(files["plain"]).state_dict()
    for window in ("600 rows", 8):
        with pytest.raises(ValueError, match=f"shuffle_window is 700 rows .*, {window} here"):
            shuffled(files["plain"], shuffle_window=window).load_state_dict(state)
    shuffled(files["plain"], shuffle_window=None).load_state_dict(state)


@pytest.mark.parametrize("window", ["700", "rows", "-1 rows", "1.5 rows", "0 rows", "7 row groups"])
def test_other_texts_are_refused(files: dict[str, Path], window: str) -> None:
    with pytest.raises(ValueError, match="shuffle_window must be"):
        shuffled(files["plain"], shuffle_window=window)


@pytest.mark.parametrize(
    "options", [{"max_memory": "600KiB"}, {"batch_size": None, "max_memory": "900KiB"}], ids=str
)
def test_a_window_that_does_not_fit(files: dict[str, Path], options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="5,000 rows need about") as found:
        shuffled(files["plain"], shuffle_window="5000 rows", **options)
    fitting = str(found.value).split('shuffle_window="')[1].split('"')[0]
    dataset = shuffled(files["plain"], shuffle_window=fitting, **options)
    np.testing.assert_array_equal(np.sort(ids_of(dataset)), np.arange(NUM_ROWS))


def test_windows_need_shuffle(files: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match="shuffle_window needs shuffle=True, got 700 rows"):
        ParquetDataset(files["plain"], batch_size=1, shuffle_window=WINDOW)
