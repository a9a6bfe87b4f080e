"""`shuffle="global"`: every epoch is a permutation of all rows, as counted and by statistics."""

from __future__ import annotations

import contextlib
import datetime
import os
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from tests.sampling.test_sampling import CASES
from torchparquet import (
    Ahead,
    Balanced,
    ByLength,
    Column,
    KeyedJagged,
    NullValueError,
    Order,
    Pack,
    ParquetDataset,
    Shuffle,
    Window,
    mix,
    verify_no_shard_overlap,
)

# An epoch of few rows may have no step.
pytestmark = pytest.mark.filterwarnings("ignore:this epoch has no step")
FEWER_CASES = settings(CASES, max_examples=60)
BOTH: list[Any] = ["global", Shuffle("global", first="windows")]
MIDNIGHT = datetime.datetime(2026, 1, 1)


def nested_of(row: int) -> list[list[int]]:
    return [[row] * (inner + row % 2) for inner in range(row % 3)]


def table_of(num_rows: int) -> pa.Table:
    """Return columns of every kind, each value a function of the row's number."""
    rows = range(num_rows)
    times = [MIDNIGHT + datetime.timedelta(seconds=row) for row in rows]
    columns: dict[str, Any] = {
        "x": np.arange(num_rows),
        "half": np.arange(num_rows).astype(np.float16),
        "flag": [row % 3 == 0 for row in rows],
        "masked": pa.array([row if row % 5 else None for row in rows], pa.int64()),
        "time": pa.array(times, pa.timestamp("us")),
        "text": [f"row {row}" * (row % 4) for row in rows],
        "list": pa.array([[row, None][: row % 3] for row in rows], pa.list_(pa.int32())),
        "nested": pa.array(list(map(nested_of, rows)), pa.list_(pa.list_(pa.int64()))),
        "fixed": pa.array([[row, -row] for row in rows], pa.list_(pa.float32(), 2)),
        "a": pa.array([[row] * (row % 3) for row in rows], pa.list_(pa.int64())),
        "b": pa.array([[-row] * (row % 2) for row in rows], pa.list_(pa.int64())),
    }
    return pa.table(columns)


COLUMNS: dict[str, Any] = {
    **{name: name for name in ("x", "half", "flag", "text", "nested", "fixed")},
    "masked": Column(nulls="mask"),
    "time": Column(unit="s"),
    "list": Column(nulls="mask"),
    "pair": Column(["x", "half"], dtype="float64"),
    "keyed": Column(["a", "b"], length="any"),
}


def write(folder: Path, num_rows: int, row_group: int) -> Path:
    """Write two files."""
    table, half = table_of(num_rows), (num_rows + 1) // 2
    for begin in range(0, num_rows, half):
        path = folder / f"{begin:06}.parquet"
        pq.write_table(table.slice(begin, half), path, row_group_size=row_group)
    return folder


def made(paths: Any, **options: Any) -> ParquetDataset:
    chosen: dict[str, Any] = {"batch_size": 16, "columns": ["x"], "num_threads": 2}
    return ParquetDataset(paths, **chosen | {"shuffle": "global", "row_ids": True} | options)


def rows_of(dataset: Any) -> list[list[int]]:
    return [batch["row.id"].tolist() for batch in dataset]


def checked(batch: Any) -> list[int]:
    """Return the rows of a batch, of which every column must be theirs."""
    rows: list[int] = batch["row.id"].tolist()
    assert batch["x"].tolist() == rows
    assert batch["half"].dtype == torch.float16
    assert batch["half"].tolist() == np.array(rows, np.float16).tolist()
    assert batch["flag"].tolist() == [row % 3 == 0 for row in rows]
    valid = [row % 5 != 0 for row in rows]
    assert batch["masked.valid"].tolist() == valid
    assert batch["masked"][batch["masked.valid"]].tolist() == [row for row in rows if row % 5]
    begin = int((MIDNIGHT - datetime.datetime(1970, 1, 1)).total_seconds())
    assert batch["time"].tolist() == [begin + row for row in rows]
    assert batch["text"].to_str() == [f"row {row}" * (row % 4) for row in rows]
    lists = [[row, 0][: row % 3] for row in rows]
    assert batch["list"].to_list() == lists
    assert batch["list.valid"].all()
    masks = [place == 0 for of_row in lists for place in range(len(of_row))]
    assert batch["list.values.valid"].tolist() == masks
    assert batch["nested"].to_list() == list(map(nested_of, rows))
    assert batch["fixed"].tolist() == [[row, -row] for row in rows]
    assert batch["pair"][:, 0].tolist() == rows
    keyed = batch["keyed"]
    assert isinstance(keyed, KeyedJagged)
    assert keyed["a"].to_list() == [[row] * (row % 3) for row in rows]
    assert keyed["b"].to_list() == [[-row] * (row % 2) for row in rows]
    return rows


@pytest.fixture(scope="module")
def data(tmp_path_factory: Any) -> Path:
    return write(tmp_path_factory.mktemp("global"), 600, 70)


@FEWER_CASES
@example(1, 1, 1, 1, "split", True, "global")
@example(1, 1, 40, 3, "split", True, BOTH[1])
@given(
    st.integers(1, 200),
    st.integers(1, 90),
    st.integers(1, 40),
    st.integers(1, 4),
    st.sampled_from(["split", "drop", "pad", "none"]),
    st.booleans(),
    st.sampled_from(BOTH),
)
def test_each_rule_of_even_holds_for_all_rows(
    num_rows: int,
    row_group: int,
    batch_size: int,
    world_size: int,
    even: Any,
    in_files: bool,
    shuffle: Any,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), num_rows, row_group)
        chosen = {"shuffle": shuffle, "cache_dir": f"{folder}/cache" if in_files else None}
        valid: Counter[int] = Counter()
        repeated: Counter[int] = Counter()
        steps = []
        for rank in range(world_size):
            world = {"rank": rank, "world_size": world_size, "even": even}
            dataset = made(
                f"{folder}/*.parquet", columns=COLUMNS, batch_size=batch_size, **world, **chosen
            )
            batches = list(dataset)
            assert len(batches) == len(dataset)
            steps.append(len(batches))
            for batch in batches:
                rows = np.array(checked(batch))
                is_valid = batch["row.valid"].numpy() if even == "pad" else np.ones(len(rows), bool)
                valid.update(rows[is_valid].tolist())
                repeated.update(rows[~is_valid].tolist())
        assert even == "none" or len(set(steps)) == 1
        assert set(valid) <= set(range(num_rows))
        if even == "drop":
            assert set(valid.values()) <= {1}
            return
        extra = valid - Counter(range(num_rows))
        assert not Counter(range(num_rows)) - valid
        assert extra.total() <= (world_size - 1 if even == "split" else 0)
        assert not repeated or even == "pad"


@pytest.mark.parametrize("stop", range(20))
def test_an_epoch_goes_on_after_each_batch(data: Path, stop: int) -> None:
    def of(rank: int, world_size: int) -> ParquetDataset:
        return made(data, rank=rank, world_size=world_size, shuffle=BOTH[stop % 2])

    whole = [rows_of(of(rank, 2)) for rank in range(2)]
    assert len(whole[0]) == 19
    dataset = of(0, 2)
    batches = iter(dataset)
    assert [batch["row.id"].tolist() for batch in islice(batches, stop)] == whole[0][:stop]
    state = dataset.state_dict()
    resumed = of(1, 2)
    resumed.load_state_dict(state)
    if stop == 19:  # the next epoch
        assert Counter(chain(*rows_of(resumed))) != Counter(chain(*whole[1]))
        return
    assert rows_of(resumed) == whole[1][stop:]
    found = Counter(chain(*(chain(*of_rank[:stop]) for of_rank in whole)))
    for rank in range(3):
        other = of(rank, 3)
        other.load_state_dict(state)
        found += Counter(chain(*rows_of(other)))
    assert not Counter(range(600)) - found
    assert found.total() <= 600 + 3


def correlation(rows: Any) -> float:
    """Return the correlation of rows and their places, in standard deviations under uniformity."""
    of = np.corrcoef(np.arange(len(rows)), rows)[0, 1]
    return float(of * np.sqrt(len(rows) - 1))


@pytest.fixture(scope="module", params=[4_000, 150_000])
def sorted_orders(request: Any, tmp_path_factory: Any) -> Any:
    """Return the orders of 20 seeds, by the kind of shuffling, of few rows and of many."""
    folder, num_rows = tmp_path_factory.mktemp("sorted"), request.param
    table = pa.table({"x": np.arange(num_rows)})
    path = folder / "sorted.parquet"
    pq.write_table(table, path, row_group_size=num_rows // 40)

    def order(seed: int, **options: Any) -> Any:
        dataset = ParquetDataset(path, batch_size=1000, seed=seed, num_threads=2, **options)
        return np.concatenate([batch["x"].numpy() for batch in dataset])

    windows = {"shuffle": True, "shuffle_window": 4}
    return {
        "global": [order(seed, shuffle="global") for seed in range(20)],
        "windows": [order(seed, **windows) for seed in range(20)],
    }


def chi_squares(orders: list[Any]) -> Any:
    """Return, of each order, the chi-square of places by rows, both in 20 ranges, standardized."""
    found = []
    for order in orders:
        bins = np.arange(len(order)) * 20 // len(order)
        counts = np.zeros((20, 20))
        np.add.at(counts, (bins, bins[order]), 1)
        expected = len(order) / 400
        # 361 degrees of freedom, as rows and columns have fixed sums.
        found.append((((counts - expected) ** 2 / expected).sum() - 361) / np.sqrt(2 * 361))
    return np.array(found)


def test_statistics_do_not_tell_an_epoch_from_a_uniform_permutation(sorted_orders: Any) -> None:
    # Twenty looks at 0.1 % together: 4.1 standard deviations of one, two sides.
    orders = sorted_orders["global"]
    assert all(sorted(order.tolist()) == list(range(len(order))) for order in orders)
    assert max(abs(correlation(order)) for order in orders) < 4.1
    assert max(abs(correlation(np.diff(order))) for order in orders) < 4.1
    # The distribution of chi-square has a longer tail to the right than the normal one.
    assert chi_squares(orders).max() < 4.6
    assert chi_squares(orders).min() > -4.1
    neighbours = [correlation_of(order[:-1], order[1:]) for order in orders]
    assert max(map(abs, neighbours)) < 4.1
    # Steps between neighbours are as far as those of two random rows: a third of all.
    distances = [np.abs(np.diff(order)).mean() / len(order) for order in orders]
    assert np.allclose(distances, 1 / 3, atol=0.02)


def correlation_of(a: Any, b: Any) -> float:
    return float(np.corrcoef(a, b)[0, 1] * np.sqrt(len(a) - 1))


def test_statistics_tell_windows_over_sorted_rows(sorted_orders: Any) -> None:
    orders = sorted_orders["windows"]
    assert chi_squares(orders).min() > 100
    assert np.mean([correlation_of(order[:-1], order[1:]) for order in orders]) > 4.6


@pytest.mark.parametrize("num_rows", [4_000, 150_000])
def test_epochs_and_seeds_are_independent(tmp_path: Path, num_rows: int) -> None:
    pq.write_table(pa.table({"x": np.arange(num_rows)}), tmp_path / "a.parquet")

    def orders(seed: int) -> list[Any]:
        dataset = ParquetDataset(tmp_path, batch_size=4000, shuffle="global", seed=seed)
        return [np.concatenate([batch["x"].numpy() for batch in dataset]) for _ in range(4)]

    found = [*orders(0), *orders(1)]
    for at, order in enumerate(found):
        for other in found[at + 1 :]:
            assert abs(correlation_of(order, other)) < 4.1
            # Fixed points of a random permutation: 1 on average.
            assert int((order == other).sum()) < 10


def test_empty_row_groups_have_no_rows(tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(9)})
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema) as writer:
        for begin, size in ((0, 0), (0, 4), (4, 0), (4, 5), (9, 0)):
            writer.write_table(table.slice(begin, size))
    for cache in ({}, {"cache_dir": tmp_path / "cache"}):
        assert sorted(chain(*rows_of(made(tmp_path / "a.parquet", **cache)))) == list(range(9))


def test_a_null_where_none_may_be_is_an_error_before_the_first_batch(tmp_path: Path) -> None:
    values = pa.array([*range(500), None], pa.int64())
    pq.write_table(pa.table({"x": values}), tmp_path / "a.parquet", row_group_size=100)
    batches = iter(made(tmp_path))
    for _ in range(2):
        with pytest.raises(NullValueError, match=r"column 'x' has a null.*row group 5"):
            next(batches)


def test_metrics_count_rows_and_waits(data: Path) -> None:
    dataset = made(data)
    num_batches = len(list(dataset))
    metrics = dataset.metrics()
    assert (metrics.rows, metrics.batches) == (600, num_batches)
    assert 0 < metrics.wait_seconds <= metrics.elapsed_seconds


@pytest.mark.parametrize("shuffle", BOTH)
@pytest.mark.parametrize("closes", [True, False])
def test_a_loop_that_ends_early_leaves_no_thread(
    data: Path, tmp_path: Path, shuffle: Any, closes: bool
) -> None:
    before = set(threading.enumerate())
    chosen = {"shuffle": shuffle, "cache_dir": tmp_path / "cache", "columns": COLUMNS}
    with contextlib.closing(made(data, **chosen, batch_size=64)) as dataset:
        batches = iter(dataset)
        assert len(next(batches)["x"]) == 64
        if closes:
            batches.close()
        del batches
        assert set(threading.enumerate()) == before
        assert all(path.suffix == ".rows" for path in tmp_path.rglob("*/rows/*/*"))
        assert Counter(chain(*rows_of(dataset))) == Counter(range(600))
    assert set(threading.enumerate()) == before


def test_windows_of_the_first_epoch_are_of_eight_row_groups(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": np.arange(6000)}), tmp_path / "a.parquet", row_group_size=50)
    dataset = made(tmp_path, batch_size=400, shuffle=BOTH[1])
    first, second = rows_of(dataset), rows_of(dataset)
    for rows in (first, second):
        assert sorted(chain(*rows)) == list(range(6000))
    row_groups = [np.unique(np.array(rows) // 50) for rows in first]
    assert [len(of) for of in row_groups] == [8] * 15
    assert sum(np.diff(of).tolist() == [1] * 7 for of in row_groups) < 3  # not neighbours
    assert all(rows != sorted(rows) for rows in first)
    assert min(len(set(np.array(rows) // 50)) for rows in second) > 100
    assert rows_of(made(tmp_path, batch_size=400, shuffle=BOTH[1])) == first
    assert rows_of(made(tmp_path, batch_size=400, shuffle=BOTH[1], seed=1)) != first


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has none")
def test_threads_that_begin_at_once_fill_one_store(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    create = os.memfd_create

    def counting(name: str, flags: int) -> int:
        calls.append(name)
        return create(name, flags)

    monkeypatch.setattr(os, "memfd_create", counting)
    assert sorted(chain(*rows_of(made(data)))) == list(range(600))
    num_pieces = len(calls)
    dataset = made(data)
    with ThreadPoolExecutor(4) as pool:
        for rows in pool.map(rows_of, [iter(dataset) for _ in range(4)]):
            assert Counter(chain(*rows)) == Counter(range(600))
    assert 0 < len(calls) - num_pieces == num_pieces


def test_a_copy_that_is_closed_leaves_the_rows_of_its_original(data: Path) -> None:
    dataset = made(data)
    batches = iter(dataset)
    rows = next(batches)["row.id"].tolist()
    with contextlib.closing(dataset.marking_repeats()) as copied:
        assert Counter(chain(*rows_of(copied))) == Counter(range(600))
    assert Counter([*rows, *chain(*rows_of(batches))]) == Counter(range(600))


def test_an_epoch_is_the_same_in_every_process_and_differs_from_the_next(data: Path) -> None:
    dataset = made(data)
    first, second = rows_of(dataset), rows_of(dataset)
    assert first != second
    assert rows_of(made(data)) == first
    assert rows_of(made(data, num_threads=1)) == first
    again = made(data)
    again.set_epoch(1)
    assert rows_of(again) == second
    assert rows_of(made(data, seed=1)) != first


@pytest.mark.parametrize(
    ("context", "in_files"),
    [
        ("fork", False),
        ("fork", True),
        pytest.param("spawn", True, marks=pytest.mark.long),
        pytest.param("spawn", False, marks=pytest.mark.long),
    ],
)
def test_workers_deliver_what_one_process_does(
    data: Path, tmp_path: Path, context: str, in_files: bool
) -> None:
    cache = {"cache_dir": tmp_path / "cache"} if in_files else {}
    dataset = made(data, shuffle=BOTH[in_files], **cache)
    loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=context)
    assert Counter(chain(*rows_of(loader))) == Counter(range(600))


def test_filters_splits_and_numbers_say_which_rows_are_permuted(data: Path) -> None:
    split = ("train", {"train": 0.5, "val": 0.5}, 0)
    options: dict[str, Any] = {"filters": [("x", ">=", 77)], "split": split, "columns": COLUMNS}
    kept = set(chain(*rows_of(made(data, shuffle=False, **options))))
    assert 200 < len(kept) < 300
    dataset = made(data, **options)
    for _ in range(2):
        assert Counter(chain(*map(checked, dataset))) == Counter(kept)
    assert sorted(chain(*rows_of(made(data, rows=[3, 599, 70])))) == [3, 70, 599]
    verify_no_shard_overlap(made(data))


def test_other_options_go_with_it(data: Path) -> None:
    once = Counter(range(600))
    of_function = made(
        data, transform=Ahead(lambda batch: {**batch, "y": batch["x"] + 1}, threads=2)
    )
    assert sorted(chain(*(batch["y"].tolist() for batch in of_function))) == list(range(1, 601))
    assert Counter(chain(*rows_of(made(data, device="cpu")))) == once
    assert len(rows_of(made(data, drop_last=True, batch_size=64))) == 9
    assert len(rows_of(made(data, limit_steps=5))) == 5
    assert Counter(chain(*rows_of(made(data, num_epochs=2)))) == once + once
    assert sorted(row["row.id"].item() for row in made(data).unbatched()) == list(range(600))
    mixed = mix([made(data), made(data, shuffle=True)], weights=[1, 1])
    expected = rows_of(made(data))
    found = [batch["row.id"].tolist() for batch in mixed]
    assert [batch for batch in found if batch in expected][:5] == expected[:5]
    parts = [made(data), made(data, shuffle=False)]
    within = mix(parts, weights=[1, 1], within_batch=True, batch_size=32)
    assert all(len(batch) == 32 for batch in islice(rows_of(within), 5))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"shuffle_window": 2}, "shuffle_window"),
        ({"pack": Window("x", past=1)}, "Window"),
        ({"pack": Pack("a", 8)}, "Pack"),
        ({"sample": Balanced("flag", {True: 1, False: 1})}, "Balanced"),
        ({"unique": "x"}, "unique"),
        ({"batch_size": ByLength("a", max_tokens=9)}, "ByLength"),
        ({"batch_size": None}, "batch_size=None"),
        ({"order": Order(within_rank=True)}, "order"),
        ({"even": "dynamic"}, "dynamic"),
    ],
)
def test_options_that_choose_the_order_too_are_refused(
    data: Path, options: dict[str, Any], name: str
) -> None:
    with pytest.raises(ValueError, match=name):
        made(data, **options)


def test_rows_beyond_memory_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    write(tmp_path, 3000, 500)
    with pytest.raises(ValueError, match=r"half of max_memory.*20000 bytes.*cache_dir=.*48000 b"):
        made(tmp_path, max_memory=40_000)
    assert sorted(chain(*rows_of(made(tmp_path, max_memory=96_000)))) == list(range(3000))
    with pytest.raises(ValueError, match="two batches"):
        made(tmp_path, max_memory=400)
    with pytest.raises(ValueError, match=r"True, False or \"global\", got 'all'"):
        made(tmp_path, shuffle="all")
    with pytest.raises(ValueError, match=r'first must be one of "global", "windows"; got .none'):
        Shuffle("global", first="none")  # type: ignore[arg-type]
