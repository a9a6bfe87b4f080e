"""Positions in an epoch that lie within a batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import Int64Array
from torchparquet._impl.plan.topology import Topology


class Reach(NamedTuple):
    """How far a rank, or one of its workers, is in the present world's part of an epoch.

    Attributes:
        end_rows: Rows that every rank and worker can deliver; with `even="none"` only this one.
    """

    epoch: int
    num_steps: int
    end_steps: int
    num_rows: int
    end_rows: int


def rank_rows(plan: EpochPlan) -> Int64Array:
    """Return the rows of each rank, int64 `[world_size]`; with workers those of each share."""
    options = plan.options
    if options.order.canonical_world_size is None:
        return plan.share_rows
    rows: Int64Array = plan.share_rows.reshape(-1, options.world_size).sum(axis=0)
    return rows


def rows_of_first(plan: EpochPlan, topology: Topology, num_steps: int) -> int:
    """Return the rows of the first `num_steps` batches of a rank's worker."""
    shares = list(plan.options.shares_of(topology.rank, topology.worker_id))
    batch_size = plan.options.share_batch_size
    if batch_size is None:
        return plan.share(shares[0]).rows_of_first(num_steps) if num_steps else 0
    return int(np.minimum(num_steps * batch_size, plan.share_rows[shares]).sum())


def end_rows(plan: EpochPlan, topology: Topology, end: int, *, limited: bool) -> int:
    """Return the rows that every rank and worker can deliver; with `even="none"` only this one."""
    options = plan.options
    every = rank_rows(plan)
    own = rows_of_first(plan, topology, end)
    if options.steps_may_differ:
        return own
    least = int(every.min())
    if options.batch_size is not None:
        return min(least, end * options.batch_size)
    if not limited:
        return least
    return min(plan.share(index).rows_of_first(end) for index in range(plan.num_shares))


def after_row(
    plan: EpochPlan, topology: Topology, num_steps: int, num_rows: int
) -> tuple[int, int]:
    """Return the batches of a rank's worker, and the rows of the next one, up to a row."""
    if plan.options.batch_size is None:
        share = plan.share(next(iter(plan.options.shares_of(topology.rank, topology.worker_id))))
        ends = np.cumsum(share.batch_sizes[num_steps:])
        more = int(np.searchsorted(ends, num_rows, side="right"))
        return num_steps + more, num_rows - (int(ends[more - 1]) if more else 0)
    begin, end = (rows_of_first(plan, topology, num_steps + more) for more in (0, 1))
    return (num_steps, num_rows) if num_rows < end - begin else (num_steps + 1, 0)
