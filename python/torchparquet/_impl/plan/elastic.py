"""The rest of an epoch after its world changed, and the plan of the next leg."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from torchparquet._impl.plan.epoch_plan import EpochPlan, Remains
from torchparquet._impl.plan.plan_options import Int64Array, PlanOptions, Topology
from torchparquet._impl.plan.ranges import Ranges
from torchparquet._impl.plan.share import WindowRemainder
from torchparquet._impl.plan.step_costs import RowCosts


class Leg(NamedTuple):
    """The part of an epoch that one world reads."""

    world_size: int
    num_workers: int
    batch_size: int | None
    num_steps: int
    num_rows: int = 0

    @property
    def world(self) -> Leg:
        """The same world before its first batch."""
        return self._replace(num_steps=0, num_rows=0)

    @property
    def begun_steps(self) -> int:
        """Batches that each rank has delivered, at least in part."""
        return self.num_steps + (self.num_rows > 0)


def plan_leg(
    row_group_rows: Int64Array,
    options: PlanOptions,
    legs: Sequence[Leg],
    *,
    row_group_bytes: Int64Array | None = None,
    row_costs: RowCosts | None = None,
) -> EpochPlan | None:
    """Return the plan of the last of `legs`, after what the others delivered."""
    remains = None
    for number, leg in enumerate(legs):
        if remains is not None and not remains.units.num_rows.any():
            return None
        world = replace(
            options,
            world_size=leg.world_size,
            num_workers=leg.num_workers,
            batch_size=leg.batch_size,
            leg=number,
        )
        plan = EpochPlan(
            row_group_rows,
            world,
            remains=remains,
            row_group_bytes=row_group_bytes,
            row_costs=row_costs,
        )
        if number + 1 < len(legs):
            remains = remaining(plan, leg.num_steps, leg.num_rows)
    return plan


def steps_of_shares(plan: EpochPlan, num_steps: int) -> Int64Array:
    """Return the batches of each share among the first `num_steps` of each rank, int64 `[S]`."""
    options = plan.options
    if options.order.canonical_world_size is not None or options.num_workers == 1:
        return np.minimum(plan.share_steps, num_steps)
    steps = plan.share_steps.reshape(options.num_workers, options.world_size)
    return steps_in_turn(steps, num_steps).reshape(-1)


def steps_in_turn(steps: Int64Array, num_steps: int) -> Int64Array:
    """Return the batches of each worker among a loader's first, from its number of batches.

    Both are int64 `[num_workers, loaders]`; each loader takes `num_steps` batches, or all.
    """
    # The DataLoader takes a batch from each worker in turn, and skips those that have no more.
    taken = np.zeros_like(steps)
    left = np.minimum(steps.sum(axis=0), num_steps)
    while left.any():
        # Whole rounds of the workers that have batches left, until one of them runs out.
        active = taken < steps
        num_active = np.maximum(active.sum(axis=0), 1)
        until_empty = np.where(active, steps - taken, np.iinfo(np.int64).max).min(axis=0)
        rounds = np.minimum(left // num_active, until_empty)
        rest = np.where(rounds == 0, left, 0)
        turn: Int64Array = np.cumsum(active, axis=0) - active
        taken += active * (rounds + (turn < rest))
        left = left - num_active * rounds - rest
    return taken


def rows_beyond(plan: EpochPlan, num_steps: int, num_rows: int) -> Int64Array:
    """Return the rows of each share among the `num_rows` after `num_steps` batches, int64 `[S]`."""
    options = plan.options
    if num_rows and options.num_workers > 1:
        raise ValueError(
            f"rows of a batch are counted for one DataLoader worker only, got {num_rows} rows "
            f"after {num_steps} batches of {options.num_workers} workers"
        )
    if num_rows and num_steps and options.batch_size is None:
        raise ValueError(
            "ranks differ in the rows of their first batches where a batch is a row group, got "
            f"{num_rows} rows after {num_steps} batches"
        )
    batch_size = options.share_batch_size
    if batch_size is None or options.order.canonical_world_size is None:
        return np.full_like(plan.share_rows, num_rows)
    begin = np.minimum(num_steps * batch_size, plan.share_rows)
    end = np.minimum((num_steps + 1) * batch_size, plan.share_rows)
    lanes = (end - begin).reshape(-1, options.world_size)
    before: Int64Array = np.cumsum(lanes, axis=0) - lanes
    found: Int64Array = np.clip(num_rows - before, 0, lanes).reshape(-1)
    return found


def remaining(plan: EpochPlan, num_steps: int, num_rows: int = 0) -> Remains:
    """Return the rows that nobody has delivered after `num_steps` batches of each rank."""
    # Each of them is there once: those that shares were to read later, those that `drop_last` or
    # `even="drop"` would have left out, and of windows that were begun the positions after those.
    gone, remainders = [Ranges.none()], []
    steps = steps_of_shares(plan, num_steps)
    beyond = rows_beyond(plan, num_steps, num_rows)
    for index in np.flatnonzero((plan.own_rows > 0) & (steps + beyond > 0)).tolist():
        planned = plan.planned_share(index)
        share = plan.laid_out(index, planned)
        taken = min(share.rows_of_first(int(steps[index])) + int(beyond[index]), share.total_rows)
        if planned.starts is None or share.windows is None:
            gone.append(planned.chunks.rows(0, taken))
            continue
        ends = np.cumsum(share.windows.num_rows)
        # The window of the next row; all rows of earlier windows were delivered.
        window = int(np.searchsorted(ends, taken, side="right"))
        bounds = np.append(planned.starts, len(planned.chunks.num_rows))
        gone.append(planned.chunks.pick(slice(int(bounds[window]))))
        taken -= int(ends[window - 1]) if window else 0
        if taken == 0:
            continue
        begun = planned.chunks.pick(slice(int(bounds[window]), int(bounds[window + 1])))
        is_old = window in plan.remainders_of(planned)
        gone.append(begun.rows(0, taken) if is_old else begun)
        if begun.valid[0] and not is_old:
            key, end = int(share.windows.key[window]), int(share.windows.end[window])
            dealt = share.windows.steps[window]
            remainders.append(WindowRemainder(begun, key, taken, end, dealt))
    left = subtract(plan.units, Ranges.joined(gone))
    num_ranks = plan.options.ranks_together
    if num_ranks > 1:
        # Of every part that rank 0 has left, the others have theirs.
        first = left.pick(left.row_group % num_ranks == 0)
        left = first.pick(np.repeat(np.arange(len(first.num_rows)), num_ranks))
        ranks = np.tile(np.arange(num_ranks), len(first.num_rows))
        left = replace(left, row_group=left.row_group + ranks)
    # Remainders that an earlier world has left stay remainders, with fewer positions.
    is_remainder = left.row_group >= len(plan.row_group_rows)
    for unit, begin, rows in zip(
        *(
            array[is_remainder].tolist()
            for array in (left.row_group, left.row_begin, left.num_rows)
        ),
        strict=True,
    ):
        remainder = plan.remainders[unit - len(plan.row_group_rows)]
        remainders.append(replace(remainder, begin=begin, end=begin + rows))
    return Remains(_units_of(remainders, plan).then(left.pick(~is_remainder)), tuple(remainders))


def _units_of(remainders: Sequence[WindowRemainder], plan: EpochPlan) -> Ranges:
    """Return the positions of remainders as ranges of row groups that are numbered on."""
    begin = np.array([remainder.begin for remainder in remainders], dtype=np.int64)
    end = np.array([remainder.end for remainder in remainders], dtype=np.int64)
    numbers = np.arange(len(remainders), dtype=np.int64) + len(plan.row_group_rows)
    units = replace(Ranges.whole(numbers, end - begin), row_begin=begin)
    if plan.options.batch_size is None and remainders:
        # One batch per chunk: a remainder of many chunks would be a batch too large for memory.
        largest = max(int(remainder.chunks.num_rows.max()) for remainder in remainders)
        units = units.cut_longer_than(largest)
    return units


def subtract(units: Ranges, gone: Ranges) -> Ranges:
    """Return the rows of `units`, which do not overlap, that are not in `gone`, in their order."""
    units = units.without_empty()
    gone = gone.pick(gone.valid & (gone.num_rows > 0))
    # All row groups are laid side by side on one line.
    extents = np.zeros(int(units.row_group.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(extents, units.row_group, units.row_begin + units.num_rows)
    bases = np.cumsum(extents) - extents
    begin, gone_begin = (bases[of.row_group] + of.row_begin for of in (units, gone))
    end, gone_end = begin + units.num_rows, gone_begin + gone.num_rows
    cuts = np.unique(np.concatenate([begin, end, gone_begin, gone_end]))
    starts, stops = cuts[:-1], cuts[1:]
    by_begin = np.argsort(begin)
    unit = by_begin[np.maximum(np.searchsorted(begin[by_begin], starts, side="right") - 1, 0)]
    in_unit = (starts >= begin[unit]) & (stops <= end[unit])
    num_begun, num_ended = (
        np.searchsorted(np.sort(at), starts, side="right") for at in (gone_begin, gone_end)
    )
    left = np.flatnonzero(in_unit & (num_begun == num_ended))
    left = left[np.argsort(unit[left], kind="stable")]
    row_group = units.row_group[unit[left]]
    whole = Ranges.whole(row_group, stops[left] - starts[left])
    return replace(whole, row_begin=starts[left] - bases[row_group])


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
    if options.steps_may_differ:
        return rows_of_first(plan, topology, end)
    least = int(rank_rows(plan).min())
    if options.batch_size is not None:
        return min(least, end * options.batch_size)
    if not limited:
        return least
    return min(plan.share(index).rows_of_first(end) for index in range(plan.num_shares))


def batches_in(batch_sizes: Int64Array, num_rows: int) -> tuple[int, int]:
    """Return how many whole batches of these sizes the first rows make, and the rows beyond."""
    ends = np.cumsum(batch_sizes)
    count = int(np.searchsorted(ends, num_rows, side="right"))
    return count, num_rows - (int(ends[count - 1]) if count else 0)


def after_row(
    plan: EpochPlan, topology: Topology, num_steps: int, num_rows: int
) -> tuple[int, int]:
    """Return the batches of a rank's worker, and the rows of the next one, up to a row."""
    if plan.options.batch_size is None:
        share = plan.share(next(iter(plan.options.shares_of(topology.rank, topology.worker_id))))
        more, rest = batches_in(share.batch_sizes[num_steps:], num_rows)
        return num_steps + more, rest
    begin, end = (rows_of_first(plan, topology, num_steps + more) for more in (0, 1))
    return (num_steps, num_rows) if num_rows < end - begin else (num_steps + 1, 0)
