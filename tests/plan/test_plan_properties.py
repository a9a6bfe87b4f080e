"""The laws of the epoch plan, on plans of any kind; `plan_oracle` holds the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from tests.oracles.plan_oracle import check_plan
from tests.oracles.window_oracle import chunks_of
from torchparquet import Order
from torchparquet._impl.plan.division import DIVISIONS, RowCounts
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import ANY_CHUNKS, PlanOptions

EVEN = tuple(even for even in DIVISIONS if even != "dynamic")


small = st.integers(1, 9)
row_counts = st.one_of(
    st.lists(st.integers(0, 12), min_size=1, max_size=24),
    st.lists(st.sampled_from([0, 1, 40]), min_size=1, max_size=12),
    st.builds(lambda n, rows, last: [rows] * n + [last], st.integers(0, 20), small, small),
).filter(any)
plan_options = st.builds(
    PlanOptions,
    st.one_of(st.none(), st.integers(1, 9), st.sampled_from([50, 10**6, 2**63 - 1])),
    shuffle=st.booleans(),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**64 - 1),
    world_size=st.integers(1, 7),
    num_workers=st.integers(1, 4),
    even=st.sampled_from(EVEN),
    drop_last=st.booleans(),
)


@settings(max_examples=100, deadline=None)
@given(row_counts, plan_options)
def test_plan_equals_the_reference(row_group_rows: Any, options: Any) -> None:
    check_plan(row_group_rows, options)


def rows_of_shares(counts: RowCounts) -> dict[tuple[int, int, bool], float]:
    """Rows by share, row group and validity."""
    found: dict[tuple[int, int, bool], float] = {}
    entries = zip(counts.share, counts.row_group, counts.valid, counts.num_rows, strict=True)
    for share, group, valid, rows in entries:
        key = (int(share), int(group), bool(valid))
        found[key] = found.get(key, 0) + float(rows)
    return {key: round(rows, 6) for key, rows in found.items() if rows}


@settings(max_examples=300, deadline=None)
@given(row_counts, plan_options, st.sampled_from([0, 1, 3]), st.booleans())
def test_row_counts_are_those_of_the_shares(
    row_group_rows: Any, options: Any, window: int, balanced: bool
) -> None:
    """All shares at once read as many rows of each row group as each of them alone."""
    options = replace(options, shuffle_window=window if options.shuffle else 0)
    if balanced and options.even != "split":
        options = replace(options, order=Order(balance="bytes"))
    rows = np.array(row_group_rows, dtype=np.int64)
    plan = EpochPlan(rows, options, row_group_bytes=rows * 7 % 11)
    shares = [plan.share(index) for index in range(plan.num_shares)]
    apart = RowCounts.joined([RowCounts.of_share(share) for share in shares])
    counts = plan.row_counts()
    assert rows_of_shares(counts) == rows_of_shares(apart)
    by_share = counts.row_groups_by(np.arange(plan.num_shares), plan.num_shares)
    assert by_share.tolist() == [
        len(set(share.row_group[(share.num_rows > 0) & share.valid].tolist()))
        for share in (share.chunks for share in shares)
    ]
    ranks = range(options.world_size)
    assert plan.steps_per_rank().tolist() == [plan.num_steps(rank) for rank in ranks]


def parts_of(row_group_rows: Any, most: int) -> list[tuple[int, int, int]]:
    """Row group, first row and rows of near-equal parts of at most so many rows."""
    parts = []
    for group, rows in enumerate(row_group_rows):
        count = max(1, -(-rows // most))
        sizes = [rows // count + (part < rows % count) for part in range(count)]
        parts += [(group, sum(sizes[:part]), size) for part, size in enumerate(sizes)]
    return parts


@settings(max_examples=100, deadline=None)
@given(row_counts, plan_options, st.integers(1, 30), st.booleans())
def test_long_row_groups_are_planned_as_if_cut(
    row_group_rows: Any, options: Any, window_rows: int, within_rank: bool
) -> None:
    """Windows told in rows give the plan of files whose row groups are cut before."""
    order = Order(within_rank=within_rank)
    window = {"shuffle_window": ANY_CHUNKS, "window_rows": window_rows}
    options = replace(options, shuffle=True, order=order, **window)
    parts = parts_of(row_group_rows, window_rows)
    plan = EpochPlan(np.array(row_group_rows, dtype=np.int64), options)
    cut = EpochPlan(np.array([rows for _, _, rows in parts], dtype=np.int64), options)
    for index in range(plan.num_shares):
        share, expected = plan.share(index), cut.share(index)
        chunks, (wanted, _) = share.in_windows()[0], expected.in_windows()
        numbers = wanted.row_group.tolist()
        assert chunks.row_group.tolist() == [parts[number][0] for number in numbers]
        begins = [parts[number][1] for number in numbers] + wanted.row_begin
        assert chunks.row_begin.tolist() == begins.tolist()
        for name in ("num_rows", "valid"):
            assert np.array_equal(getattr(chunks, name), getattr(wanted, name))
        own, other = share.windows, expected.windows
        assert (own is None) == (other is None)
        if own is not None and other is not None:
            assert own.key.tolist() == other.key.tolist()
            assert own.stored_rows.tolist() == other.stored_rows.tolist()
            assert own.num_rows.max(initial=0) <= window_rows


def windows_of(chunks: Any, options: PlanOptions) -> list[int]:
    """Rows of each window: chunks in turn, while both bounds allow one more."""
    windows: list[list[int]] = []
    last = None
    for chunk in filter(None, chunks):
        valid = chunk[0][2]
        for _, _, rows in parts_of([len(chunk)], options.window_rows):
            fits = valid == last and len(windows[-1]) < options.shuffle_window
            if not fits or sum(windows[-1]) + rows > options.window_rows:
                windows.append([])
            windows[-1].append(rows)
            last = valid
    return [sum(window) for window in windows]


@settings(max_examples=100, deadline=None)
@given(row_counts, plan_options, st.integers(1, 6), st.integers(1, 60))
def test_windows_take_chunks_while_both_bounds_allow(
    row_group_rows: Any, options: Any, window: int, window_rows: int
) -> None:
    options = replace(options, shuffle=True, shuffle_window=window, window_rows=window_rows)
    plan = EpochPlan(np.array(row_group_rows, dtype=np.int64), options)
    for index in range(plan.num_shares):
        share = plan.share(index)
        found = [] if share.windows is None else share.windows.stored_rows.tolist()
        assert found == windows_of(chunks_of(share), options)
