"""The epoch plan by example; test_plan_properties.py holds the general laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions


def make_plan(rows: Any, batch_size: Any = 10, **options: Any) -> Any:
    return EpochPlan(np.asarray(rows, dtype=np.int64), PlanOptions(batch_size, **options))


def ranges(share: Any) -> list[Any]:
    """(row group, first row, rows) of each chunk."""
    chunks = share.chunks
    columns = (chunks.row_group, chunks.row_begin, chunks.num_rows)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("even", ["none", "pad"])
def test_8_ranks_4_workers_100_row_groups(even: str) -> None:
    plan = make_plan([10] * 100, world_size=8, num_workers=4, even=even)
    assert [plan.share(i).chunks.row_group.tolist() for i in (0, 1)] == [
        [0, 32, 64, 96],
        [1, 33, 65, 97],
    ]
    # Worker 1 of rank 0 has the effective rank 1 * 8 + 0.
    assert plan.share(8).chunks.row_group.tolist() == [8, 40, 72] + ([8] if even == "pad" else [])


# From a Philox4x64-10 written out in plain integers, apart from numpy.
GOLDEN_ORDERS = {
    (0, 0): [0, 2, 1, 5, 4, 3, 6, 7],
    (0, 1): [5, 3, 7, 2, 4, 1, 0, 6],
    (1, 0): [3, 5, 2, 7, 0, 6, 1, 4],
    (2**64 - 1, 2**64 - 1): [6, 4, 5, 0, 1, 7, 3, 2],
}


def test_shuffle_order_never_changes() -> None:
    """These orders are part of every saved state: they must not depend on a numpy release."""
    for (seed, epoch), order in GOLDEN_ORDERS.items():
        assert make_plan([1] * 8, 1, shuffle=True, seed=seed, epoch=epoch).order.tolist() == order


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
    windows = EpochPlan(np.array([100 * most]), options).share(0).windows
    assert windows is not None
    assert len(windows.key) == most
    with pytest.raises(ValueError, match=f"{100 * most + 1} rows is too large to be permuted"):
        EpochPlan(np.array([100 * most + 1]), options).share(0)
    # Many row groups that are there may each be cut.
    share = EpochPlan(np.full(20_000, 1500), options).share(0)
    assert share.windows is not None
    assert len(share.windows.key) == 20_000 * 15


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        *((rows, ValueError, "the sum of rows must be >= 1") for rows in ([], [0], [0, 0, 0])),
        ([3, -1], ValueError, "must be >= 0, got -1"),
        ([3.0], TypeError, "integers, got float64"),
        ([[3]], ValueError, "one dimension, got 2"),
        ([2**63 - 1] * 3, ValueError, r"below 2\*\*62, got 27670116110564327421"),
    ],
)
def test_bad_row_counts(rows: list[Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        EpochPlan(np.array(rows, None if rows else np.int64), PlanOptions(1))


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        *(("batch_size", value, ValueError) for value in (0, -1)),
        *(("batch_size", value, TypeError) for value in (1.5, True, "8")),
        *((field, value, ValueError) for field in ("seed", "epoch") for value in (-1, 2**64)),
        *[("seed", None, TypeError), ("epoch", 0.0, TypeError), ("world_size", 0, ValueError)],
        *[("world_size", np.True_, TypeError), ("num_workers", 0, ValueError)],
        *[("shuffle", 1, TypeError), ("drop_last", None, TypeError)],
        *[("even", "even", ValueError), ("even", None, ValueError)],
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
