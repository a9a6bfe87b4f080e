"""The epoch plan by example; test_plan_properties.py holds the general laws."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from torchparquet._impl.plan.division import DIVISIONS
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions

EVEN = tuple(even for even in DIVISIONS if even != "dynamic")


def make_plan(rows: Any, batch_size: Any = 10, **options: Any) -> Any:
    return EpochPlan(np.asarray(rows, dtype=np.int64), PlanOptions(batch_size, **options))


def row_groups(share: Any) -> Any:
    return share.row_group.tolist()


def ranges(share: Any) -> list[Any]:
    """(row group, first row, rows) of each chunk."""
    columns = (share.row_group, share.row_begin, share.num_rows)
    return list(zip(*(column.tolist() for column in columns), strict=True))


# Positions


@pytest.mark.parametrize("even", EVEN)
def test_one_rank_reads_everything_in_file_order(even: str) -> None:
    share = make_plan([10] * 5, even=even).share(0)
    assert ranges(share) == [(0, 0, 10), (1, 0, 10), (2, 0, 10), (3, 0, 10), (4, 0, 10)]
    assert share.valid.all()


@pytest.mark.parametrize("even", ["none", "pad"])
def test_8_ranks_4_workers_100_row_groups(even: str) -> None:
    plan = make_plan([10] * 100, world_size=8, num_workers=4, even=even)
    assert plan.num_shares == 32
    assert row_groups(plan.share(0)) == [0, 32, 64, 96]
    assert row_groups(plan.share(1)) == [1, 33, 65, 97]
    # Worker 1 of rank 0 has the effective rank 1 * 8 + 0.
    assert row_groups(plan.share(8)) == [8, 40, 72] + ([8] if even == "pad" else [])


def test_8_ranks_4_workers_100_row_groups_split_keeps_the_positions() -> None:
    """Shares 0 to 3 hold 40 rows, the others 30; 1000 = 32 * 31 + 8, so rows move."""
    plan = make_plan([10] * 100, world_size=8, num_workers=4)
    assert row_groups(plan.share(0)) == [0, 32, 64, 96]
    assert ranges(plan.share(0))[-1] == (96, 0, 2)
    assert row_groups(plan.share(8))[:3] == [8, 40, 72]
    assert plan.share_rows.tolist() == [32] * 32


@pytest.mark.parametrize("even", EVEN)
def test_2_ranks_10_row_groups(even: str) -> None:
    plan = make_plan([10] * 10, world_size=2, even=even)
    assert row_groups(plan.share(0)) == [0, 2, 4, 6, 8]
    assert row_groups(plan.share(1)) == [1, 3, 5, 7, 9]


@pytest.mark.parametrize("even", EVEN)
def test_4_ranks_12_row_groups(even: str) -> None:
    plan = make_plan([10] * 12, world_size=4, even=even)
    assert [row_groups(plan.share(i)) for i in range(4)] == [
        [0, 4, 8],
        [1, 5, 9],
        [2, 6, 10],
        [3, 7, 11],
    ]


@pytest.mark.parametrize("even", EVEN)
def test_empty_row_groups_hold_their_positions(even: str) -> None:
    plan = make_plan([0, 5, 5, 0, 0, 5, 5, 0], world_size=2, even=even)
    assert ranges(plan.share(0)) == [(0, 0, 0), (2, 0, 5), (4, 0, 0), (6, 0, 5)]
    assert ranges(plan.share(1)) == [(1, 0, 5), (3, 0, 0), (5, 0, 5)]  # empty tail left out


# Evenness


def test_split_moves_tails_to_short_shares_in_order() -> None:
    plan = make_plan([10, 1, 7, 2], world_size=4)
    assert plan.share_rows.tolist() == [5, 5, 5, 5]
    # The stream is rows 5..9 of row group 0, then rows 5, 6 of row group 2.
    assert ranges(plan.share(0)) == [(0, 0, 5)]
    assert ranges(plan.share(1)) == [(1, 0, 1), (0, 5, 4)]
    assert ranges(plan.share(2)) == [(2, 0, 5)]
    assert ranges(plan.share(3)) == [(3, 0, 2), (0, 9, 1), (2, 5, 2)]


def test_split_gives_odd_rows_to_the_largest_shares() -> None:
    plan = make_plan([3, 4, 3, 4], world_size=4, drop_last=True, batch_size=3)
    assert [ranges(plan.share(i)) for i in range(4)] == [[(i, 0, 3)] for i in range(4)]
    plan = make_plan([4, 3, 5, 3], world_size=4)  # 15 rows: 4, 4, 4, 3
    assert [ranges(plan.share(i)) for i in range(4)] == [
        [(0, 0, 4)],
        [(1, 0, 3), (2, 4, 1)],
        [(2, 0, 4)],
        [(3, 0, 3), (3, 2, 1)],  # one short: its last row again
    ]


def test_split_moves_nothing_within_one_row() -> None:
    plan = make_plan([3, 4, 3, 4], world_size=4)
    assert [ranges(plan.share(i)) for i in range(4)] == [
        [(0, 0, 3), (0, 2, 1)],
        [(1, 0, 4)],
        [(2, 0, 3), (2, 2, 1)],
        [(3, 0, 4)],
    ]
    assert [plan.share(i).valid.tolist() for i in range(4)] == [
        [True, False],
        [True],
        [True, False],
        [True],
    ]


def test_split_drop_last_cuts_all_alike() -> None:
    plan = make_plan([10, 0, 0], world_size=3, batch_size=2, drop_last=True)
    assert plan.share_rows.tolist() == [2, 2, 2]
    assert plan.share_steps.tolist() == [1, 1, 1]
    assert ranges(plan.share(0)) == [(0, 0, 2)]
    # The targets are 4, 3, 3 rows; the batches that are not full are left out.
    assert ranges(plan.share(1)) == [(1, 0, 0), (0, 4, 2)]
    assert ranges(plan.share(2)) == [(2, 0, 0), (0, 7, 2)]


def test_drop_stops_at_the_shortest() -> None:
    plan = make_plan([25, 12, 40], world_size=3, even="drop")
    assert plan.share_steps.tolist() == [2, 2, 2]
    assert plan.share_rows.tolist() == [20, 12, 20]
    plan = make_plan([25, 12, 40], world_size=3, even="drop", drop_last=True)
    assert plan.share_rows.tolist() == [10, 10, 10]


def test_pad_wraps_round_and_flags() -> None:
    plan = make_plan([7, 2, 1, 1], world_size=2, even="pad")
    assert plan.share_rows.tolist() == [8, 8]
    assert ranges(plan.share(0)) == [(0, 0, 7), (2, 0, 1)]
    share = plan.share(1)
    assert ranges(share) == [(1, 0, 2), (3, 0, 1), (1, 0, 2), (3, 0, 1), (1, 0, 2)]
    assert share.valid.tolist() == [True, True, False, False, False]


def test_pad_without_own_rows_wraps_round_the_epoch() -> None:
    plan = make_plan([0, 4, 3], world_size=5, even="pad")
    for index in (3, 4):
        assert ranges(plan.share(index)) == [(1, 0, 4)]
        assert not plan.share(index).valid.any()
    assert ranges(plan.share(0)) == [(0, 0, 0), (1, 0, 4)]
    assert plan.share(0).valid.tolist() == [True, False]


def test_none_gives_each_share_its_own() -> None:
    plan = make_plan([25, 12, 40], world_size=3, even="none")
    assert plan.share_rows.tolist() == [25, 12, 40]
    assert plan.share_steps.tolist() == [3, 2, 4]
    plan = make_plan([25, 12, 40], world_size=3, even="none", drop_last=True)
    assert plan.share_rows.tolist() == [20, 10, 40]
    assert plan.share_steps.tolist() == [2, 1, 4]


# More ranks than row groups, or than rows


def test_split_works_with_fewer_row_groups_than_ranks() -> None:
    plan = make_plan([1000, 200], world_size=6, batch_size=50)
    assert plan.share_rows.tolist() == [200] * 6
    assert plan.share_steps.tolist() == [4] * 6
    assert ranges(plan.share(0)) == [(0, 0, 200)]
    assert ranges(plan.share(2)) == [(0, 200, 200)]


@pytest.mark.parametrize("even", ["drop", "none"])
def test_more_ranks_than_row_groups(even: str) -> None:
    plan = make_plan([10, 10], world_size=3, even=even)
    steps = {"drop": [0, 0, 0], "none": [1, 1, 0]}[even]
    assert plan.share_steps.tolist() == steps
    assert plan.share(2).total_rows == 0
    assert plan.share(2).num_steps == 0


@pytest.mark.parametrize("drop_last", [False, True])
def test_one_row_for_three_ranks(drop_last: bool) -> None:
    plan = make_plan([0, 1], world_size=3, drop_last=drop_last)
    steps = 0 if drop_last else 1
    assert plan.share_steps.tolist() == [steps] * 3
    if not drop_last:
        delivered = [[c for c in ranges(plan.share(i)) if c[2]] for i in range(3)]
        assert delivered == [[(1, 0, 1)]] * 3


@pytest.mark.parametrize("even", EVEN)
def test_one_row(even: str) -> None:
    plan = make_plan([1], even=even)
    assert ranges(plan.share(0)) == [(0, 0, 1)]
    assert plan.num_steps(0) == 1


# One batch per chunk


def test_batch_per_chunk() -> None:
    rows = [4, 6, 0, 5, 3]
    assert make_plan(rows, None, even="none").share_steps.tolist() == [4]
    plan = make_plan(rows, None, world_size=2, even="none")
    assert plan.share_steps.tolist() == [2, 2]
    assert plan.share(0).num_steps == 2  # the empty row group is no batch


def test_batch_per_chunk_drop_and_pad() -> None:
    rows = [4, 6, 2, 0, 3]
    plan = make_plan(rows, None, world_size=2, even="drop")
    assert [ranges(plan.share(i)) for i in range(2)] == [[(0, 0, 4)], [(1, 0, 6)]]
    plan = make_plan(rows, None, world_size=2, even="pad")
    assert ranges(plan.share(0)) == [(0, 0, 4), (2, 0, 2), (4, 0, 3)]
    assert ranges(plan.share(1)) == [(1, 0, 6), (3, 0, 0), (1, 0, 6), (1, 0, 6)]
    assert plan.share(1).valid.tolist() == [True, True, False, False]
    assert plan.share_steps.tolist() == [3, 3]


def test_batch_per_chunk_split_cuts_the_largest() -> None:
    plan = make_plan([5, 4, 5, 4, 1, 3], None, world_size=2)
    assert plan.share_rows.tolist() == [11, 11]
    assert plan.share_steps.tolist() == [3, 3]
    plan = make_plan([3, 12, 3, 0, 3, 0, 3, 0], None, world_size=2)
    assert ranges(plan.share(0)) == [(0, 0, 3), (2, 0, 3), (4, 0, 3), (6, 0, 3)]
    assert ranges(plan.share(1)) == [(1, 0, 3), (1, 3, 3), (1, 6, 3), (1, 9, 3)]
    plan = make_plan([2, 3, 2, 5, 2, 0, 0], None, world_size=2)
    # Share 0 takes one row more and has 4 chunks; share 1 keeps 3 + 4 rows in 2 of them.
    assert ranges(plan.share(0)) == [(0, 0, 2), (2, 0, 2), (4, 0, 2), (6, 0, 0), (3, 4, 1)]
    assert ranges(plan.share(1)) == [(1, 0, 2), (1, 2, 1), (3, 0, 2), (3, 2, 2)]


# The shuffle


# From a Philox4x64-10 written out in plain integers, apart from numpy.
GOLDEN_ORDERS = {
    (0, 0): [0, 2, 1, 5, 4, 3, 6, 7],
    (0, 1): [5, 3, 7, 2, 4, 1, 0, 6],
    (1, 0): [3, 5, 2, 7, 0, 6, 1, 4],
    (2**64 - 1, 2**64 - 1): [6, 4, 5, 0, 1, 7, 3, 2],
}


def test_shuffle_order_never_changes() -> None:
    """These orders are part of every saved state: they must not depend on a numpy release."""
    rows = np.ones(8, dtype=np.int64)
    orders = {
        (seed, epoch): EpochPlan(
            rows, PlanOptions(1, shuffle=True, seed=seed, epoch=epoch)
        ).order.tolist()
        for seed, epoch in GOLDEN_ORDERS
    }
    assert orders == GOLDEN_ORDERS


def test_seed_and_epoch_are_different_keys() -> None:
    def order(seed: int, epoch: int) -> Any:
        plan = make_plan([1] * 64, shuffle=True, seed=seed, epoch=epoch)
        return tuple(plan.order.tolist())

    keys = [(seed, epoch) for seed in range(8) for epoch in range(8)]
    assert len({order(*key) for key in keys}) == len(keys)


def test_order_depends_on_seed_and_epoch_alone() -> None:
    orders = [
        make_plan([rows] * 50, size, shuffle=True, seed=7, world_size=world, even=even).order
        for rows, size, world, even in [(1, 1, 1, "none"), (9, 4, 3, "split"), (5, None, 7, "pad")]
    ]
    assert (orders[0] == orders[1]).all()
    assert (orders[0] == orders[2]).all()


def test_unshuffled_order_ignores_the_seed() -> None:
    assert make_plan([1] * 5, seed=3, epoch=9).order.tolist() == [0, 1, 2, 3, 4]


# Steps of a rank, sizes, arguments


def test_steps_of_a_rank_are_those_of_its_workers() -> None:
    plan = make_plan([25, 12, 40, 7, 1], world_size=2, num_workers=2, even="none")
    # Shares 0..3 hold 25 + 1, 12, 40 and 7 rows; rank 0 has shares 0 and 2.
    assert plan.share_steps.tolist() == [3, 2, 4, 1]
    assert (plan.num_steps(0), plan.num_steps(1)) == (7, 3)


def test_large_counts_stay_exact() -> None:
    rows = [2**61 - 1, 1, 2**60]
    plan = make_plan(rows, 2**62, world_size=2)
    total = sum(rows)
    assert plan.share_rows.tolist() == [total // 2] * 2
    assert sum(length for _, _, length in ranges(plan.share(1))) == total // 2
    plan = make_plan(rows, 2**63 - 1, world_size=2, even="drop")
    assert plan.share_steps.tolist() == [1, 1]
    assert plan.share_rows.tolist() == [2**61 - 1 + 2**60, 1]


def test_a_row_group_that_claims_too_many_rows_is_refused_before_it_takes_memory() -> None:
    """A footer of some bytes may claim any number of rows."""
    options = PlanOptions(10, shuffle=True, shuffle_window=2, window_rows=100)
    # Each of its pieces takes some 250 bytes of the plan.
    most = (1 << 17) + 16
    assert len(EpochPlan(np.array([100 * most]), options).share(0).num_rows) == most
    with pytest.raises(ValueError, match=f"{100 * most + 1} rows is too large to be permuted"):
        EpochPlan(np.array([100 * most + 1]), options).share(0)
    # Many row groups that are there may each be cut.
    share = EpochPlan(np.full(20_000, 1500), options).share(0)
    assert len(share.num_rows) == 20_000 * 15


def test_plan_and_share_pickle() -> None:
    plan = pickle.loads(pickle.dumps(make_plan([10, 4], world_size=3)))
    assert ranges(pickle.loads(pickle.dumps(plan.share(2)))) == ranges(plan.share(2))


def test_share_dtypes() -> None:
    share = make_plan(np.array([3, 4], dtype=np.uint16), world_size=3).share(2)
    for column in (share.row_group, share.row_begin, share.num_rows):
        assert column.dtype == np.int64
    assert share.valid.dtype == np.bool_
    assert (share.index, share.num_shares, share.batch_size) == (2, 3, 10)


def test_plan_does_not_change_its_input() -> None:
    rows = np.array([5, 1, 9], dtype=np.int64)
    make_plan(rows, world_size=2, shuffle=True).share(0)
    assert rows.tolist() == [5, 1, 9]


@pytest.mark.parametrize("rows", [[], [0], [0, 0, 0]])
def test_no_rows_is_an_error(rows: list[Any]) -> None:
    with pytest.raises(ValueError, match="the sum of rows must be >= 1"):
        make_plan(rows)


def test_bad_row_counts() -> None:
    options = PlanOptions(1)
    with pytest.raises(ValueError, match="must be >= 0, got -1"):
        EpochPlan(np.array([3, -1]), options)
    with pytest.raises(TypeError, match="integers, got float64"):
        EpochPlan(np.array([3.0]), options)
    with pytest.raises(ValueError, match="one dimension, got 2"):
        EpochPlan(np.array([[3]]), options)
    with pytest.raises(ValueError, match=r"below 2\*\*62, got 27670116110564327421"):
        EpochPlan(np.array([2**63 - 1] * 3), options)


def test_zero_steps_with_rows_is_legal() -> None:
    plan = make_plan([5, 5], world_size=2, drop_last=True)
    assert plan.num_steps(0) == plan.num_steps(1) == 0
    assert ranges(plan.share(0)) == []


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("batch_size", 0, ValueError),
        ("batch_size", -1, ValueError),
        ("batch_size", 1.5, TypeError),
        ("batch_size", True, TypeError),
        ("batch_size", "8", TypeError),
        ("seed", -1, ValueError),
        ("seed", 2**64, ValueError),
        ("seed", None, TypeError),
        ("epoch", -1, ValueError),
        ("epoch", 2**64, ValueError),
        ("epoch", 0.0, TypeError),
        ("world_size", 0, ValueError),
        ("world_size", np.True_, TypeError),
        ("num_workers", 0, ValueError),
        ("shuffle", 1, TypeError),
        ("drop_last", None, TypeError),
        ("even", "even", ValueError),
        ("even", None, ValueError),
    ],
)
def test_options_name_the_requirement_and_the_value(field: str, value: Any, error: Any) -> None:
    with pytest.raises(error, match=f"{field} must be") as caught:
        PlanOptions(**{"batch_size": 1, field: value})
    assert repr(value) in str(caught.value)


def test_options_take_the_ends_of_their_ranges() -> None:
    options = PlanOptions(np.int32(4), seed=2**64 - 1, epoch=2**64 - 1, world_size=np.int64(2))  # type: ignore[arg-type]
    assert (options.batch_size, options.world_size) == (4, 2)
    assert type(options.batch_size) is int
    assert EpochPlan(np.array([1, 2, 3]), options).share_rows.tolist() == [3, 3]


@pytest.mark.parametrize("index", [-1, 6])
def test_share_and_rank_must_exist(index: int) -> None:
    plan = make_plan([1, 2], world_size=3, num_workers=2)
    with pytest.raises(ValueError, match=f"index must be (>= 0|< 6), got {index}"):
        plan.share(index)
    with pytest.raises(ValueError, match=f"rank must be (>= 0|< 3), got {index}"):
        plan.num_steps(index)
