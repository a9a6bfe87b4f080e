"""An epoch that goes on in another world, against sets of rows and a slow permutation."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from tests.oracles.window_oracle import rows_of_share
from torchparquet._impl.plan.elastic import Leg, plan_leg, steps_of_shares, subtract
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.plan.ranges import Ranges

WORLDS = (1, 2, 3, 4, 6, 8)


def deliver(plan: Any, num_steps: Any, num_rows: int = 0) -> Any:
    """Return the rows of the first `num_steps` batches of every rank, repeats aside.

    And `num_rows` more.
    """
    steps = steps_of_shares(plan, num_steps)
    rows = []
    repeating = np.flatnonzero(plan.own_rows == 0)
    # Most shares of a world with more shares than rows; a few stand for them.
    for index in repeating[:3].tolist():
        share = plan.share(index).chunks
        assert not share.num_rows[share.valid].any()
    for index in np.flatnonzero(plan.own_rows).tolist():
        share = plan.share(index)
        taken = rows_of_share(share)[: share.rows_of_first(int(steps[index])) + num_rows]
        rows += [(group, row) for group, row, valid in taken if valid]
    return rows


def run_legs(row_group_rows: Any, options: Any, worlds: Any, cuts: Any) -> Any:
    """Deliver an epoch world after world; each but the last stops at a share of its steps or rows.

    A cut is the part of the steps, as a float, or the rows of each rank, as an int.
    """
    legs, delivered = [], []  # type: ignore[var-annotated]
    for world, cut in itertools.zip_longest(worlds, cuts):
        legs.append(Leg(*world, 0))  # type: ignore[call-arg]
        plan = plan_leg(row_group_rows, options, legs)
        if plan is None:
            return delivered, None
        steps, beyond = max(plan.num_steps(rank) for rank in range(world[0])), 0
        if isinstance(cut, int):
            steps, beyond = divmod(cut, world[2]) if world[2] else (0, cut)
        elif cut is not None:
            steps = int(cut * steps)
        delivered += deliver(plan, steps, beyond)
        legs[-1] = legs[-1]._replace(num_steps=steps, num_rows=beyond)
    return delivered, plan


def every_row(row_group_rows: Any) -> Any:
    return {(g, r) for g, rows in enumerate(row_group_rows) for r in range(rows)}


def check(row_group_rows: Any, options: Any, worlds: Any, cuts: Any) -> None:
    delivered, plan = run_legs(row_group_rows, options, worlds, cuts)
    counts = Counter(delivered)
    assert set(counts.values()) <= {1}
    if plan is None:
        assert set(counts) == every_row(row_group_rows)
        return
    steps = [plan.num_steps(rank) for rank in range(plan.options.world_size)]
    if options.even != "none":
        assert len(set(steps)) == 1
    counted = plan.row_counts().sums(np.ones(len(row_group_rows)), plan.num_shares)
    assert counted.tolist() == plan.share_rows.tolist()
    if options.even != "drop" and not options.drop_last:
        assert set(counts) == every_row(row_group_rows)


@pytest.mark.parametrize("window", [0, 1, 3])
@pytest.mark.parametrize(("before", "after"), list(itertools.product(WORLDS, WORLDS)))
@pytest.mark.mostly_long(every=5)
def test_all_pairs_of_worlds_cut_at_20_points(before: Any, after: Any, window: int) -> None:
    rows = np.array([7, 0, 13, 5, 1, 22, 9, 4, 4, 17, 3, 8, 30, 2])
    for cut in np.linspace(0, 1, 20):
        options = PlanOptions(
            3, shuffle=window > 0, seed=5, epoch=2, shuffle_window=window, drop_last=False
        )
        check(rows, options, [(before, 1, 3), (after, 1, 4)], [cut])


world = st.tuples(st.integers(1, 7), st.integers(1, 3), st.sampled_from([1, 2, 3, 8]))
chunk_world = st.tuples(st.integers(1, 7), st.integers(1, 3), st.none())


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(st.integers(0, 20), min_size=1, max_size=24).filter(any),
    worlds=st.lists(world, min_size=1, max_size=5) | st.lists(chunk_world, min_size=1, max_size=4),
    cuts=st.lists(st.floats(0, 1), min_size=4, max_size=4),
    options=st.builds(
        PlanOptions,
        st.just(1),
        shuffle=st.just(True),
        seed=st.integers(0, 3),
        shuffle_window=st.integers(0, 4),
        window_rows=st.sampled_from([0, 5, 16]),
        even=st.sampled_from(["split", "drop", "pad", "none"]),
        drop_last=st.booleans(),
    ),
)
def test_every_row_once_over_all_worlds(rows: Any, worlds: Any, cuts: Any, options: Any) -> None:
    check(np.array(rows), options, worlds, cuts[: len(worlds) - 1])


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(st.integers(0, 20), min_size=1, max_size=16).filter(any),
    worlds=st.lists(
        st.tuples(st.integers(1, 5), st.just(1), st.sampled_from([2, 3, 8, None])),
        min_size=2,
        max_size=4,
    ),
    taken=st.lists(st.integers(0, 40), min_size=3, max_size=3),
    window=st.integers(0, 3),
    even=st.sampled_from(["split", "drop", "pad", "none"]),
)
def test_worlds_that_end_within_a_batch(
    rows: Any, worlds: Any, taken: Any, window: int, even: Any
) -> None:
    """Each leg ends after a number of rows of each rank, the last at its end."""
    options = PlanOptions(1, shuffle=True, seed=2, shuffle_window=window, even=even)
    check(np.array(rows), options, worlds, taken[: len(worlds) - 1])


def rows_within(ranges: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """The rows, as (row group, row), of ranges (row group, begin, end)."""
    return [(int(group), row) for group, begin, end in ranges for row in range(begin, end)]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_subtract_is_the_difference_of_sets(data: st.DataObject) -> None:
    bounds = [sorted(data.draw(st.sets(st.integers(0, 30), max_size=6))) for _ in range(3)]
    units = [
        (group, begin, end)
        for group, cuts in enumerate(bounds)
        for begin, end in zip(cuts[::2], cuts[1::2], strict=False)
    ]
    units = data.draw(st.permutations(units))
    spans = st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12), st.booleans())
    inside = set(rows_within(units))
    gone = [
        span
        for span in data.draw(st.lists(spans, max_size=6))
        if {(span[0], r) for r in range(span[1], span[1] + span[2])} <= inside
    ]

    def ranges(items: Any) -> Any:
        columns = np.array(items, dtype=np.int64).reshape(-1, 4).T
        return Ranges(columns[0], columns[1], columns[2], columns[3].astype(bool))

    left = subtract(
        ranges([(g, b, e - b, True) for g, b, e in units]), ranges([list(span) for span in gone])
    )
    ends = left.row_begin + left.num_rows
    rows = rows_within(zip(left.row_group, left.row_begin, ends, strict=True))
    taken = set(rows_within((g, b, b + n) for g, b, n, valid in gone if valid))
    assert rows == [row for row in rows_within(units) if row not in taken]
