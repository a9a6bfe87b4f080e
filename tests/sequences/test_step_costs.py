"""Steps of equal cost: against a slow reference, across worlds, and by what ranks wait for."""

from __future__ import annotations

import json
import math
import pickle
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import example
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from tests.fixtures.random_cases import in_random_cases
from tests.oracles.step_oracle import expected_shares, quantized
from tests.sequences.test_by_length import write
from torchparquet import (
    ByLength,
    Column,
    Jagged,
    ListLengthError,
    Order,
    Pack,
    ParquetDataset,
    mix,
    verify_no_shard_overlap,
)
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.sequences.delivered_rows import delivered_rows
from torchparquet._impl.sequences.row_costs import row_costs

COSTS: dict[str, Any] = {
    "linear": "linear",
    "quadratic": (1, 0.25),
    "function": lambda lengths: np.sqrt(lengths) + 1,
}


def cost_of(name: str, length: int) -> float:
    """Return the cost of one row, by itself."""
    if name == "linear":
        return float(length)
    return length + 0.25 * length**2 if name == "quadratic" else math.sqrt(length) + 1


ROW_GROUPS = st.lists(st.lists(st.integers(0, 40), max_size=20), min_size=1, max_size=12).filter(
    lambda row_groups: any(map(sum, row_groups))
)
OPTIONS = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 5),
        "world_size": st.integers(1, 4),
        "num_workers": st.integers(1, 3),
        "even": st.sampled_from(["split", "drop", "pad", "none"]),
        "drop_last": st.booleans(),
        "shuffle_window": st.integers(1, 4),
        "seed": st.integers(0, 3),
        "epoch": st.integers(0, 3),
    }
)


@pytest.mark.filterwarnings("ignore:one row, of length")
@in_random_cases(100, ROW_GROUPS, st.sampled_from(list(COSTS)), OPTIONS)
def test_rows_are_dealt_as_the_reference_deals_them(
    row_groups: Any, cost: str, given_options: Any
) -> None:
    options = PlanOptions(shuffle=True, **given_options)
    rows = np.array([len(of) for of in row_groups])
    lengths = np.array([length for of in row_groups for length in of], np.uint32)
    plan = EpochPlan(rows, options, row_costs=row_costs(COSTS[cost], lengths, rows))
    of_rows = quantized([[cost_of(cost, length) for length in of] for of in row_groups])
    for index, wanted in enumerate(expected_shares(of_rows, options)):
        found: list[Any] = []
        for window in delivered_rows(plan.share(index)):
            columns = window.row_group, window.row, window.valid
            found += zip(*(column.tolist() for column in columns), strict=True)
        assert found == wanted
        assert plan.share_rows[index] == len(wanted)


class Legs:
    """An epoch that one world after another reads."""

    def __init__(self, folder: str, **options: Any) -> None:
        self.folder, self.options = folder, options
        self.state: Any = None
        self.rows: Counter[int] = Counter()

    def dataset(self, rank: int, world_size: int, state: Any) -> ParquetDataset:
        options = {"shuffle": True, "row_ids": True, "num_threads": 1, **self.options}
        dataset = ParquetDataset(self.folder, rank=rank, world_size=world_size, **options)
        if state is not None:
            dataset.load_state_dict(json.loads(json.dumps(state)))
        return dataset

    def read(self, world_size: int, part: float | None) -> bool:
        """Read a part of what is left, or all if it is None; return whether all is read."""
        ranks = [self.dataset(rank, world_size, self.state) for rank in range(world_size)]
        if self.state is not None and any(rank.epoch for rank in ranks):
            return True
        iterators = [iter(rank) for rank in ranks]
        lefts = [len(rank) - self.steps_of(self.state) for rank in ranks]
        if self.options.get("even", "split") != "none":
            assert len(set(lefts)) == 1
        stop = max(lefts) if part is None else int(part * min(lefts))
        states = []
        for rank, iterator, left in zip(ranks, iterators, lefts, strict=True):
            batches = [next(iterator) for _ in range(min(stop, left))]
            for batch in batches:
                self.check(batch)
            if part is None:
                assert next(iterator, None) is None
            states.append(rank.state_dict())
        self.state = max(states, key=self.steps_of)
        return part is None

    @staticmethod
    def steps_of(state: Any) -> int:
        return 0 if state is None else sum(leg[3] for leg in state["legs"])

    def check(self, batch: Any) -> None:
        rows = batch["row.id"].tolist()
        assert batch["label"].tolist() == rows
        assert batch["name"].to_str() == [f"row {row}" for row in rows]
        if isinstance(batch["tokens"], Jagged):
            for row, tokens in zip(rows, batch["tokens"], strict=True):
                assert tokens.tolist() == [row * 1000 + place for place in range(len(tokens))]
        valid = batch.get("row.valid", torch.ones(len(rows), dtype=torch.bool))
        self.rows.update(batch["row.id"][valid].tolist())


PARTS = st.sampled_from([0, 0.2, 0.4, 0.6, 0.9, 1])
WORLDS = st.lists(st.tuples(st.integers(1, 4), PARTS), min_size=1, max_size=3)
MANY_ROW_GROUPS = st.lists(st.lists(st.integers(0, 40), max_size=20), min_size=8, max_size=16)
KINDS = st.sampled_from(["rows", "tokens", "canonical"])

WORLD_CASE: tuple[Any, ...] = (
    MANY_ROW_GROUPS.filter(lambda row_groups: any(map(sum, row_groups))),
    KINDS,
    st.sampled_from(list(COSTS)),
    WORLDS,
    st.sampled_from(["split", "none", "pad", "drop"]),
    st.sampled_from([1, 2, "16 rows"]),
    st.integers(1, 4),
)

# One share of the second world begins with the rest of a window, and the others do not.
GROWING_WORLD: Any = (
    [[(7 * group + 3 * row) % 40 + 1 for row in range(20)] for group in range(12)],
    *("rows", "linear", [(1, 0.2), (4, 0.4)], "none", 2, 2),
)


@pytest.mark.filterwarnings("ignore:one (row|batch), of length", "ignore:this epoch has no step")
@in_random_cases(50, *WORLD_CASE)
@example(*GROWING_WORLD)
def test_no_row_is_lost_or_repeated_from_world_to_world(
    row_groups: Any, kind: str, cost: str, worlds: Any, even: Any, window: Any, batch: int
) -> None:
    options: dict[str, Any] = {"even": even, "shuffle_window": window}
    options["batch_size"] = ByLength("tokens", rows=batch, cost=COSTS[cost])
    if kind == "tokens":
        options["batch_size"] = ByLength("tokens", 60, cost=COSTS[cost])
        options["even"] = "none" if even == "pad" else even
        options["shuffle_window"] = window if isinstance(window, int) else 2
    elif kind == "canonical":
        worlds = [((1, 2, 4)[world % 3], part) for world, part in worlds]
        options["order"] = Order(canonical_world_size=4)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "a.parquet", row_groups)
        legs = Legs(folder, **options)
        has_ended = False
        for world_size, part in [*worlds, (2, None)]:
            if kind == "canonical":
                rows = 4 * batch // world_size
                legs.options["batch_size"] = ByLength("tokens", rows=rows, cost=COSTS[cost])
            has_ended = has_ended or legs.read(world_size, part)
    num_rows = sum(map(len, row_groups))
    if options["even"] in ("none", "pad"):
        assert legs.rows == Counter(range(num_rows))
        return
    assert set(legs.rows) <= set(range(num_rows))
    if options["even"] == "split":
        assert set(legs.rows) == set(range(num_rows))
        if kind != "tokens":  # of which whole batches are repeated
            assert legs.rows.total() - num_rows < 4 * (len(worlds) + 1)


def lognormal(count: int, seed: int) -> np.ndarray[Any, Any]:
    """Return lengths of at least 1, of median 30 and sigma 1."""
    drawn = np.random.default_rng(seed).lognormal(3.4, 1, count)
    return np.maximum(drawn.astype(np.int64), 1)


def write_lognormal(path: Path, row_groups: int, rows: int) -> np.ndarray[Any, Any]:
    lengths = lognormal(row_groups * rows, 5)
    tokens = pa.ListArray.from_arrays(
        pa.array(np.append(0, lengths.cumsum()), pa.int32()),
        pa.array(np.repeat(np.arange(len(lengths)), lengths), pa.int32()),
    )
    table = pa.table({"tokens": tokens, "id": np.arange(len(lengths))})
    pq.write_table(table, path, row_group_size=rows)
    return lengths


def steps_of(folder: Path, by_length: Any, **options: Any) -> tuple[Any, list[int]]:
    """Return what each step costs on each of four ranks, in tokens, and all rows."""
    costs: list[list[int]] = []
    rows: list[int] = []
    for rank in range(4):
        dataset = ParquetDataset(
            folder, batch_size=by_length, shuffle=True, rank=rank, world_size=4, **options
        )
        costs.append([])
        for batch in dataset:
            rows += batch["id"].tolist()
            costs[-1].append(int(batch["tokens"].lengths.sum()))
    return np.array(costs), rows


def test_steps_cost_the_same_on_all_ranks(tmp_path: Path) -> None:
    write_lognormal(tmp_path / "a.parquet", 64, 500)
    costs, rows = steps_of(tmp_path, ByLength("tokens", rows=8, cost="linear"))
    assert sorted(rows) == list(range(32_000))
    assert costs.shape == (4, 1000)
    assert np.mean(costs.max(0) <= 1.02 * costs.mean(0)) > 0.99
    by_chance, rows = steps_of(tmp_path, 8)
    assert sorted(rows) == list(range(32_000))
    assert np.median(by_chance.max(0) / by_chance.mean(0)) > 1.3


def test_batches_of_a_budget_are_matched_by_cost(tmp_path: Path) -> None:
    write_lognormal(tmp_path / "a.parquet", 64, 500)

    def excess(**options: Any) -> float:
        """Return the wait for the costliest rank, of padded tensors with a quadratic cost."""
        found = []
        for rank in range(4):
            by_length = ByLength("tokens", 2500, **options)
            dataset = ParquetDataset(
                tmp_path, batch_size=by_length, shuffle=True, rank=rank, world_size=4
            )
            shapes = [batch["tokens"].shape for batch in dataset]
            found.append([rows * (length + length**2 / 100) for rows, length in shapes])
        costs = np.array(found)
        return float(costs.max(0).sum() / costs.mean(0).sum())

    assert excess(cost=(1, 0.01)) < 1.15
    assert excess() > 1.3


def test_row_groups_that_windows_share_are_read_once(tmp_path: Path) -> None:
    write_lognormal(tmp_path / "a.parquet", 20, 300)
    by_length = ByLength("tokens", 2500, cost="linear")
    dataset = ParquetDataset(tmp_path, batch_size=by_length, shuffle=True, shuffle_window=1)
    found = [row for batch in dataset for row in batch["id"].tolist()]
    assert sorted(found) == list(range(6000))
    assert dataset.metrics().rows == 6000


def test_windows_hold_the_row_groups_that_fit_memory(tmp_path: Path) -> None:
    # A row group of short rows is a single batch, one of long rows is 20.
    row_groups = [[1] * 200 if group % 8 else [200] * 20 for group in range(64)]
    write(tmp_path / "a.parquet", row_groups)
    by_length = ByLength("tokens", 200, cost="linear")
    dataset = ParquetDataset(tmp_path, batch_size=by_length, shuffle=True, max_memory="400KiB")
    chunks, counts = dataset.plan().share(0).in_windows()
    windows = np.split(chunks.row_group, counts.cumsum()[:-1])
    held = [sum(len(row_groups[group]) for group in set(of.tolist())) for of in windows]
    assert max(held) * (4 + 8 + 8 + 8 + 4) <= 200 << 10  # without offsets and names
    assert sum(len(batch["label"]) for batch in dataset) == sum(map(len, row_groups))


def test_epochs_and_seeds_deal_rows_anew(tmp_path: Path) -> None:
    write_lognormal(tmp_path / "a.parquet", 4, 200)
    by_length = ByLength("tokens", rows=4, cost="linear")
    dataset = ParquetDataset(tmp_path, batch_size=by_length, shuffle=True)
    first, second = ({frozenset(batch["id"].tolist()) for batch in dataset} for _ in range(2))
    assert len(first & second) < len(first) // 4


def test_each_epoch_deals_other_row_groups_and_leaves_out_others() -> None:
    rows = np.random.default_rng(0).integers(80, 100, 64)
    costs = row_costs("linear", lognormal(int(rows.sum()), 6), rows)
    options: dict[str, Any] = {"shuffle": True, "shuffle_window": 8, "world_size": 8}
    of_rank, read = set(), set()
    for epoch in range(10):
        plan = EpochPlan(rows, PlanOptions(8, epoch=epoch, even="drop", **options), row_costs=costs)
        of_rank.add(frozenset(plan.share(0).chunks.row_group.tolist()))
        for index in range(8):
            for window in delivered_rows(plan.share(index)):
                read |= set(zip(window.row_group.tolist(), window.row.tolist(), strict=True))
    assert len(of_rank) == 10
    assert len(read) == rows.sum()


@pytest.mark.parametrize("options", [{}, {"order": Order(canonical_world_size=4)}], ids=str)
def test_mixes_rows_and_workers(tmp_path: Path, options: Any) -> None:
    write_lognormal(tmp_path / "a.parquet", 12, 50)
    common: dict[str, Any] = {"shuffle": True, "rank": 1, "world_size": 2, **options}
    common["batch_size"] = ByLength("tokens", rows=8, cost="linear")
    dataset = ParquetDataset(tmp_path, **common)
    expected = [batch["id"].tolist() for batch in dataset]
    assert len(expected) == len(dataset) == 38
    rows = [row["id"].item() for row in ParquetDataset(tmp_path, **common).unbatched()]
    assert rows == [row for batch in expected for row in batch]
    both = [ParquetDataset(tmp_path, **common) for _ in range(2)]
    mixed = mix(both, weights=[1, 1], within_batch=True, batch_size=8)
    found = [row for batch in mixed for row in batch["id"].tolist()]
    assert Counter(found).most_common(1)[0][1] <= 2
    if options:
        return
    of_workers = []
    for rank in range(2):
        dataset = ParquetDataset(tmp_path, **common | {"rank": rank})
        loader = DataLoader(dataset, batch_size=None, num_workers=2)
        batches = list(loader)
        assert len(batches) == dataset.num_steps(2)
        of_workers += [row for batch in batches for row in batch["id"].tolist()]
    assert set(of_workers) == set(range(600))


def test_filters_splits_and_a_cache(tmp_path: Path) -> None:
    lengths = write_lognormal(tmp_path / "a.parquet", 6, 60)
    (tmp_path / "cache").mkdir()
    options: dict[str, Any] = {
        "batch_size": ByLength("tokens", rows=4, cost="linear"),
        "shuffle": True,
        "filters": "id % 3 = 0",
        "split": ("a", {"a": 0.5, "b": 0.5}),
        "row_ids": True,
        "manifest_cache": tmp_path / "cache" / "m",
    }
    found = []
    for _ in range(2):
        dataset = ParquetDataset(tmp_path / "a.parquet", **options)
        assert verify_no_shard_overlap(dataset).rows_delivered == dataset.manifest.num_rows
        read = verify_no_shard_overlap(dataset, read=True)
        assert read.rows_repeated == read.rows_left_out == 0
        found.append([batch["row.id"].tolist() for batch in dataset])
        assert {row % 3 for batch in found[-1] for row in batch} == {0}
    assert found[0] == found[1]
    assert len(lengths) // 12 < sum(map(len, found[0])) < len(lengths) // 4
    assert len(list((tmp_path / "cache").glob("*.lengths"))) == 1


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (lambda lengths: lengths[:-1], "one number for each length: for lengths of shape"),
        (lambda lengths: lengths.sum(), r"returned shape \[\]"),
        (lambda lengths: lengths * np.nan, "finite and not negative: cost= returned nan"),
        (lambda lengths: 1.0 / (lengths - 2), "returned -1.0 for length 1"),
        (lambda lengths: lengths * np.inf, "returned inf for length"),
        (lambda lengths: lengths * 0, "0 for every row"),
        (lambda lengths: ["x"] * len(lengths), "must return a number for each length"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_costs_are_checked(tmp_path: Path, cost: Any, message: str) -> None:
    write(tmp_path / "a.parquet", [[1, 2, 3], [4, 5]])
    with pytest.raises((ValueError, TypeError), match=message):
        ParquetDataset(tmp_path, batch_size=ByLength("tokens", rows=2, cost=cost), shuffle=True)


def test_pairs_of_large_integers_do_not_overflow() -> None:
    lengths, rows = np.array([1, 2, 4, 4]), np.array([4])
    large = row_costs((0, 2**60), lengths, rows)
    assert np.array_equal(large.of_row, row_costs((0.0, 1.0), lengths, rows).of_row)


@pytest.mark.parametrize("arguments", [{"rows": 2}, {"max_tokens": 5000}], ids=str)
def test_a_row_that_costs_more_than_all_others_is_named(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    write(tmp_path / "a.parquet", [[1, 2, 3], [1000, 0, 0]])
    by_length = ByLength("tokens", cost=(0, 1), **arguments)
    with pytest.warns(UserWarning, match="of length 1000, costs more than all others together"):
        dataset = ParquetDataset(tmp_path, batch_size=by_length, shuffle=True)
    assert sorted(row for batch in dataset for row in batch["label"].tolist()) == list(range(6))


def test_repeats_are_marked_rows_counted_and_functions_left_behind(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [[1, 2, 3], [4, 5]])
    by_length = ByLength("tokens", rows=2, cost=lambda lengths: lengths + 1)
    ranks = [
        ParquetDataset(tmp_path, batch_size=by_length, shuffle=True, rank=rank, world_size=2)
        for rank in range(2)
    ]
    copies = [pickle.loads(pickle.dumps(rank)).marking_repeats() for rank in ranks]
    valid: list[int] = []
    for rank, copied in zip(ranks, copies, strict=True):
        for plain, batch in zip(rank, copied, strict=True):
            assert torch.equal(plain["label"], batch["label"])
            valid += batch["label"][batch["row.valid"]].tolist()
        metrics = rank.metrics()
        assert (metrics.batches, metrics.rows) == (2, 3)
    assert sorted(valid) == list(range(5))


def test_the_row_of_an_error_is_named(tmp_path: Path) -> None:
    weights = [[0.5] * (2 if row == 33 else 3) for row in range(50)]
    table = pa.table({"tokens": [[1, 2, 3]] * 50, "w": weights})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=20)
    dataset = ParquetDataset(
        tmp_path,
        batch_size=ByLength("tokens", rows=2, cost="linear"),
        columns={"tokens": "tokens", "k": Column(["tokens"], weights=["w"])},
        shuffle=True,
    )
    with pytest.raises(ListLengthError, match=r"2 weights for 3 .*, row group 1, row 13\b"):
        list(dataset)


def test_a_function_sees_lengths_that_it_may_change(tmp_path: Path) -> None:
    def cost(lengths: Any) -> Any:
        assert lengths.dtype == np.int64
        lengths += 1
        return lengths

    write(tmp_path / "a.parquet", [[0, 0, 3], [4, 5]])
    dataset = ParquetDataset(
        tmp_path, batch_size=ByLength("tokens", rows=2, cost=cost), shuffle=True
    )
    assert sorted(row for batch in dataset for row in batch["label"].tolist()) == list(range(5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": 8}, "rows needs cost="),
        ({"rows": 8, "max_tokens": 9, "cost": "linear"}, "or rows and cost"),
        ({"rows": 8, "cost": "linear", "padding": 1}, "do not go with rows"),
        ({"rows": 8, "cost": "linear", "multiple_of": 8}, "do not go with rows"),
        ({"rows": 8, "cost": "square"}, "cost must be"),
        ({"rows": 8, "cost": (1, -1)}, "two numbers, finite and not negative"),
        ({"rows": 8, "cost": (1, 2, 3)}, "two numbers"),
        ({"rows": 8, "cost": np.ones(2)}, "cost must be"),
        ({"rows": 8, "cost": (1, float("nan"))}, "two numbers"),
        ({"rows": 0, "cost": "linear"}, "rows must be"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ByLength("tokens", **arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": False}, "needs shuffle=True"),
        ({"shuffle_window": 0}, "needs shuffle=True and a shuffle_window"),
        ({"pack": Pack("tokens", 8)}, "does not go with pack"),
        ({"even": "dynamic"}, "does not go with even"),
        ({"order": Order(within_rank=True)}, "does not go with Order.within_rank"),
        ({"order": Order(balance="bytes"), "even": "drop"}, "does not go with Order.balance"),
        ({"columns": ["label"]}, "ByLength names 'tokens'"),
    ],
)
def test_options_that_do_not_go_together(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    write(tmp_path / "a.parquet", [[1, 2], [3]])
    by_length = ByLength("tokens", rows=2, cost="linear")
    with pytest.raises(ValueError, match=message):
        ParquetDataset(tmp_path, batch_size=by_length, **{"shuffle": True} | options)


def test_a_state_of_other_costs_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [[1, 2, 3], [4, 5]])

    def make(batch_size: Any) -> ParquetDataset:
        return ParquetDataset(tmp_path, batch_size=batch_size, shuffle=True)

    state = make(ByLength("tokens", rows=2, cost="linear")).state_dict()
    make(ByLength("tokens", rows=2, cost=(2, 0))).load_state_dict(state)  # the same in proportion
    other = make(ByLength("tokens", rows=2, cost=(1, 1)))
    with pytest.raises(ValueError, match="gives rows other costs than in the state"):
        other.load_state_dict(state)
    with pytest.raises(ValueError, match=r"equal cost, by ByLength.*, only in the state"):
        make(2).load_state_dict(state)
    with pytest.raises(ValueError, match=r"equal cost, by ByLength.*, only here"):
        other.load_state_dict(make(2).state_dict())


def test_a_state_of_other_rows_leads_to_the_next_epoch(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [[1, 2, 3], [4, 5]])

    def make() -> ParquetDataset:
        by_length = ByLength("tokens", rows=2, cost="linear")
        return ParquetDataset(tmp_path, batch_size=by_length, shuffle=True)

    dataset = make()
    next(iter(dataset))
    state = dataset.state_dict()
    write(tmp_path / "b.parquet", [[6, 7, 8]])
    grown = make()
    grown.load_state_dict(state, other_data="next_epoch")
    assert grown.epoch == 1
    assert sum(len(batch["label"]) for batch in grown) == 8
    plain = ParquetDataset(tmp_path, batch_size=2, shuffle=True)
    with pytest.raises(ValueError, match="only in the state"):
        plain.load_state_dict(state, other_data="next_epoch")
