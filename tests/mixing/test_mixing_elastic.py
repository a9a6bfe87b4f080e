"""Mixes that go on in another world, and under DataLoader workers: which rows, how many steps."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch.utils.data import DataLoader

from torchparquet import Order, ParquetDataset, mix

ROWS = (83, 47, 29)
WEIGHTS = (3, 2, 1)
STOPPINGS = ("first_exhausted", "all_exhausted", "repeat")
WORLDS = (1, 2, 3, 4)
KINDS = ("batches", "rows")


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Three data sets of many row groups; `id` says which one and which row."""
    root = tmp_path_factory.mktemp("mixing_elastic")
    for number, rows in enumerate(ROWS):
        table = pa.table({"id": np.arange(rows) + 1000 * number})
        pq.write_table(table, root / f"{number}.parquet", row_group_size=7)
    return [root / f"{number}.parquet" for number in range(len(ROWS))]


def open_mix(
    paths: Any, kind: Any, rank: int = 0, world_size: int = 1, *, mixing: Any = None, **options: Any
) -> Any:
    """Row mixes have batches of 8 rows, of data sets that have another number."""
    place: dict[str, Any] = {"rank": rank, "world_size": world_size}
    defaults: dict[str, Any] = {"shuffle": True, "shuffle_window": 2, "seed": 4, "num_threads": 1}
    defaults |= {"even": "pad", "batch_size": 5 if kind == "rows" else 3}
    datasets = [ParquetDataset(path, **place, **(defaults | options)) for path in paths]
    arguments = {"weights": WEIGHTS, "stopping": "all_exhausted", "seed": 2}
    arguments |= {"within_batch": True, "batch_size": 8} if kind == "rows" else {}
    return mix(datasets, **(arguments | (mixing or {})))


_MIXES: dict[Any, Any] = {}


def kept_mix(paths: Any, *arguments: Any, **options: Any) -> Any:
    """Return a mix before its first epoch, perhaps one that has iterated: to open costs more."""
    key = repr((paths, arguments, sorted(options.items())))
    if key not in _MIXES:
        _MIXES[key] = open_mix(paths, *arguments, **options)
    _MIXES[key].set_epoch(0)
    return _MIXES[key]


def rows_of(batch: Any) -> Any:
    """Return the rows, those aside that are there to make steps even."""
    valid = batch["row.valid"] if "row.valid" in batch else batch["id"] >= 0
    return batch["id"][valid].tolist()


def sources_of(batch: Any) -> Any:
    """Return how much of each data set the batch has: rows, also repeated ones."""
    return Counter((batch["id"] // 1000).tolist())


class Run:
    """An epoch that is delivered world after world."""

    def __init__(self, paths: Any, kind: Any, **options: Any) -> None:
        self.paths, self.kind, self.options = paths, kind, options
        self.state: Any = None
        self.steps = 0
        self.by_rank: list[Any] = []
        self.legs: list[Any] = []  # rows that each world has delivered
        self.draws: list[Any] = []  # sources of each step, of the first rank

    def leg(self, world_size: int, cut: Any = None, **options: Any) -> Any:
        """Deliver a share `cut` of the steps; None for all that are left."""
        ranks = [
            kept_mix(self.paths, self.kind, rank, world_size, **(self.options | options))
            for rank in range(world_size)
        ]
        lengths = set()
        for rank in ranks:
            if self.state is not None:
                rank.load_state_dict(json.loads(json.dumps(self.state)))
            lengths.add(len(rank))
        (length,) = lengths
        left = length - self.steps
        num_steps = left if cut is None else int(cut * left)
        delivered, states = [], []
        for rank in ranks:
            stream = iter(rank)
            batches = [next(stream) for _ in range(num_steps)]
            assert len(rank) == length
            if cut is None:
                assert next(stream, None) is None
            delivered.append(batches)
            states.append(rank.state_dict())
        assert all(state == states[0] for state in states)
        for step in zip(*delivered, strict=True):
            draws = [sources_of(batch) for batch in step]
            if self.kind == "batches":
                draws = [Counter(list(draw)) for draw in draws]
            assert all(draw == draws[0] for draw in draws)
            self.draws.append(draws[0])
        self.legs.append([row for part in delivered for batch in part for row in rows_of(batch)])
        self.state, self.steps = states[0], self.steps + num_steps
        return delivered

    def counts(self) -> Any:
        return Counter(itertools.chain(*self.legs))


def every_row() -> Any:
    return {1000 * number + row for number in range(3) for row in range(ROWS[number])}


def check_proportions(draws: Any, weights: Any = WEIGHTS) -> None:
    counts, total = Counter(), 0  # type: ignore[var-annotated]
    for draw in draws:
        counts += draw
        total += draw.total()
        for source, weight in enumerate(weights):
            exact = Fraction(weight * total, sum(weights))
            assert abs(counts[source] - exact) < 1, (counts, total)


# Other worlds


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", [0, 2])
@pytest.mark.parametrize(("before", "after"), list(itertools.product(WORLDS, WORLDS)))
@pytest.mark.mostly_long(every=15)
def test_every_row_once_over_two_worlds(
    paths: Any, kind: str, window: int, before: Any, after: Any
) -> None:
    for cut in (0.15, 0.7):
        run = Run(paths, kind, shuffle_window=window)
        run.leg(before, cut)
        run.leg(after)
        assert run.counts() == Counter(every_row()), cut


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stopping", STOPPINGS)
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (4, 3), (3, 4), (2, 2)])
@pytest.mark.mostly_long(every=4)
def test_proportions_and_rounds_go_on(
    paths: Any, kind: str, stopping: str, before: int, after: int
) -> None:
    """The first rows delivered are new; data sets that are repeated end their round."""
    for cut in (0.3, 0.8):
        run = Run(paths, kind, mixing={"stopping": stopping})
        run.leg(before, cut)
        run.leg(after)
        if stopping != "all_exhausted":
            check_proportions(run.draws)
        for number, rows in enumerate(ROWS):
            counts = run.counts()
            times = [counts[1000 * number + row] for row in range(rows)]
            assert max(times) - min(times) <= 1
            assert stopping == "repeat" or max(times) <= 1
            assert stopping == "first_exhausted" or min(times) >= 1
        if stopping == "first_exhausted":
            # No rank has rows for one more batch.
            left = Counter(row // 1000 for row in every_row() - set(run.counts()))
            needed = [8 * w / sum(WEIGHTS) + 2 if kind == "rows" else 3 for w in WEIGHTS]
            assert any(left[number] < after * needed[number] for number in range(3))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 2), (2, 1), (2, 2)])
def test_canonical_worlds(paths: Any, kind: str, before: int, after: int) -> None:
    """Lanes of a batch are used up one after the other."""
    for cut in (0.2, 0.5, 0.8):
        run = Run(paths, kind, order=Order(canonical_world_size=4))
        run.leg(before, cut, batch_size=16 // before)
        run.leg(after, batch_size=16 // after)
        assert run.counts() == Counter(every_row()), cut


# Ends


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_data_set_without_a_row_left_gives_none_of_its_next_epoch(
    paths: Any, kind: str, after: int
) -> None:
    """It has been used up to the last row, but has not been drawn in vain yet."""
    mixing = {"stopping": "first_exhausted", "weights": (9, 9, 9)}
    run = Run(paths, kind, mixing=mixing, even="split")
    found = run.leg(1)[0]
    for steps in range(len(found) - 3, len(found)):
        run = Run(paths, kind, mixing=mixing, even="split")
        run.leg(1, (steps + 0.5) / len(found))
        assert run.steps == steps
        run.leg(after)
        again = Counter({row: num for row, num in run.counts().items() if num > 1})
        assert again.total() - len(again) <= 3 * after
        assert set(run.legs[0]).isdisjoint(run.legs[1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stopping", STOPPINGS)
@pytest.mark.parametrize("options", [{"even": "drop"}, {"drop_last": True, "even": "split"}])
@pytest.mark.mostly_long(every=5)
def test_rows_that_make_no_step_end_a_data_set(
    paths: Any, kind: str, stopping: str, options: dict[str, Any]
) -> None:
    """Of what is left no rank of a larger world gets a batch: nothing of the next epoch comes."""
    for before, after, cut in ((1, 4, 0.97), (2, 4, 0.9), (1, 3, 0.8), (1, 1, 0.9), (3, 1, 0.5)):
        run = Run(paths, kind, mixing={"stopping": stopping}, batch_size=6, **options)
        run.leg(before, cut)
        run.leg(after)
        if stopping != "repeat":
            assert max(run.counts().values()) == 1
        if stopping != "all_exhausted":
            check_proportions(run.draws)


@pytest.mark.parametrize("kind", KINDS)
def test_limit_steps_counts_batches_of_all_worlds(paths: Any, kind: str) -> None:
    for before, after in ((1, 2), (2, 1), (2, 2)):
        run = Run(paths, kind, limit_steps=3, batch_size=4)
        run.leg(before, 0.5)
        run.leg(after)
        assert max(run.counts().values()) == 1
        taken: Any = sum(run.draws, Counter())
        bound = 3 * (4 if kind == "rows" else 1)
        assert all(taken[number] <= bound for number in range(3))
        assert all(taken[number] >= bound - (4 if kind == "rows" else 0) for number in range(3))


# A data set that goes on at a row


def rows_in(batches: Any) -> Any:
    return [batch["id"].tolist() for batch in batches]


def at_row(state: dict[str, Any], num_rows: int) -> dict[str, Any]:
    """Return a state of the beginning as that after some rows of each rank."""
    world_size, num_workers, batch_size, _ = state["legs"][0]
    steps, rows = divmod(num_rows, batch_size) if batch_size else (0, num_rows)
    leg = [world_size, num_workers, batch_size, steps, *([rows] if rows else [])]
    return state | {"legs": [leg]}


@pytest.mark.parametrize(
    "options", [{}, {"batch_size": None}, {"order": Order(canonical_world_size=2)}]
)
@pytest.mark.parametrize("window", [0, 3])
def test_a_state_after_a_row(paths: Any, options: dict[str, Any], window: int) -> None:
    """In the same world the rest of the batch comes first; in another one all rows, once."""

    def make(rank: int = 0, world_size: int = 2, batch_size: int = 6) -> ParquetDataset:
        given: dict[str, Any] = {"rank": rank, "world_size": world_size, "batch_size": batch_size}
        given |= {"shuffle": True, "shuffle_window": window, "even": "pad", "seed": 1}
        return ParquetDataset(paths[0], num_threads=1, **(given | options))

    whole = [rows_in(make(rank)) for rank in range(2)]
    streams = [list(itertools.chain(*batches)) for batches in whole]
    for num_rows in (0, 1, 5, 6, 17, 40):
        state = at_row(make().state_dict(), num_rows)
        for rank in range(2):
            resumed = make(rank)
            resumed.load_state_dict(state)
            assert resumed.state_dict() == state
            assert len(resumed) == len(whole[rank])
            rest = rows_in(resumed)
            assert list(itertools.chain(*rest)) == streams[rank][num_rows:]
            # Only the first of them is short.
            assert rest[1:] == whole[rank][len(whole[rank]) - len(rest) + 1 :]
        if "order" in options:
            continue
        found = streams[0][:num_rows] + streams[1][:num_rows]
        for rank in range(3):
            resumed = make(rank, 3, 4)
            resumed.load_state_dict(state)
            found += itertools.chain(*map(rows_of, resumed))
        assert Counter(found) == Counter(range(ROWS[0]))


def test_states_at_a_row_are_checked(paths: Any) -> None:
    def make(**options: Any) -> ParquetDataset:
        return ParquetDataset(paths[0], **({"batch_size": 6, "num_threads": 1} | options))

    dataset = make()
    batches = iter(dataset)
    next(batches)
    state = dataset.state_dict()
    assert state["legs"] == [[1, 1, 6, 1]]
    for rows in (6, 7, -1, True, 1.0):
        with pytest.raises(ValueError, match="damaged"):
            make().load_state_dict(state | {"legs": [[1, 1, 6, 1, rows]]})
    resumed = make()
    resumed.load_state_dict(state | {"legs": [[1, 1, 6, 13, 5]]})
    assert rows_in(resumed)[0][0] == 0  # the last row was delivered: the next epoch
    resumed.load_state_dict(state | {"legs": [[1, 1, 6, 14, 1]]})
    with pytest.raises(ValueError, match="counts 85 rows"):
        next(iter(resumed))
    resumed = make(world_size=2, rank=0)
    resumed.load_state_dict(state | {"legs": [[1, 2, 6, 1, 1]]})
    with pytest.raises(ValueError, match="rows of a batch"):
        next(iter(resumed))


def test_seek_goes_to_a_whole_batch(paths: Any) -> None:
    def make() -> ParquetDataset:
        return ParquetDataset(paths[0], batch_size=6, num_threads=1)

    whole = rows_in(make())
    state = at_row(make().state_dict(), 15)
    resumed = make()
    resumed.load_state_dict(state)
    batches = iter(resumed)
    assert rows_in([next(batches)]) == [whole[2][3:]]
    assert resumed.state_dict()["legs"] == [[1, 1, 6, 3]]
    resumed.seek(2)
    assert rows_in([next(batches)]) == [whole[2]]
    resumed.load_state_dict(state)
    resumed.seek(2)  # where it stands
    assert rows_in([next(batches)]) == [whole[2][3:]]
    resumed.load_state_dict(state)
    resumed.seek(3)
    assert rows_in([next(batches)]) == [whole[3]]


@pytest.mark.parametrize("kind", [*KINDS, "rows one by one"])
def test_a_state_of_a_release_before_is_refused(paths: Any, kind: str) -> None:
    mixed = open_mix(paths, kind)
    dataset = mixed.unbatched() if kind == "rows one by one" else mixed
    state = dataset.state_dict()
    (state["state"] if dataset is not mixed else state)["format"] = 1
    with pytest.raises(ValueError, match=r"format 2, got format 1.*another release"):
        dataset.load_state_dict(state)


# DataLoader workers


@pytest.mark.mostly_long(every=2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_workers", [1, 2])
def test_workers_go_on_with_the_state_of_a_bare_loop(
    paths: Any, kind: str, num_workers: int
) -> None:
    mixed = open_mix(paths, kind)
    batches = iter(mixed)
    found = list(itertools.chain(*(rows_of(next(batches)) for _ in range(5))))
    resumed = open_mix(paths, kind)
    resumed.load_state_dict(mixed.state_dict())
    loader = DataLoader(resumed, None, num_workers=num_workers)
    length, rest = len(loader), list(loader)
    assert length == len(rest) + 5
    assert Counter(found + list(itertools.chain(*map(rows_of, rest)))) == Counter(every_row())
    with pytest.raises(RuntimeError, match="StatefulDataLoader"):
        resumed.state_dict()
    # The state was for one iteration; the next one is the next epoch.
    assert resumed.epoch == 1
    assert len(loader) == len(again := list(loader))
    assert Counter(itertools.chain(*map(rows_of, again))) == Counter(every_row())
