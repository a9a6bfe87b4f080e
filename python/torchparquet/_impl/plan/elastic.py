"""The rest of an epoch after its world changed, and the plan of the next world.

A *leg* is the part of an epoch that one world reads. The rows that earlier legs delivered follow
from arithmetic alone. The other rows are dealt anew to the ranks of the next leg.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.plan.epoch_plan import EpochPlan, Remains
from torchparquet._impl.plan.plan_options import Int64Array, PlanOptions, Topology
from torchparquet._impl.plan.ranges import Ranges
from torchparquet._impl.plan.share import WindowRemainder


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
        plan = EpochPlan(row_group_rows, world, remains=remains, row_group_bytes=row_group_bytes)
        if number + 1 < len(legs):
            remains = remaining(plan, leg.num_steps, leg.num_rows)
    return plan


def steps_of_shares(plan: EpochPlan, num_steps: int) -> Int64Array:
    """Return the batches of each share among the first `num_steps` of each rank, int64 `[S]`."""
    # The DataLoader takes a batch from each worker in turn, and skips those that have no more.
    options = plan.options
    if options.order.canonical_world_size is not None or options.num_workers == 1:
        return np.minimum(plan.share_steps, num_steps)
    steps = plan.share_steps.reshape(options.num_workers, options.world_size)
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
    flat: Int64Array = taken.reshape(-1)
    return flat


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
    """Return the rows that nobody has delivered after `num_steps` batches of each rank.

    Each is there once: those that shares were to read later, those that `drop_last` or
    `even="drop"` would have left out, and of windows that were begun the positions after those.
    """
    delivered = DeliveredRows(plan)
    steps = steps_of_shares(plan, num_steps)
    beyond = rows_beyond(plan, num_steps, num_rows)
    for share in np.flatnonzero((plan.own_rows > 0) & (steps + beyond > 0)).tolist():
        delivered.add(share, int(steps[share]), int(beyond[share]))
    return delivered.remains()


class DeliveredRows:
    """The rows that were delivered, in the plan's units."""

    def __init__(self, plan: EpochPlan) -> None:
        """Begin without rows."""
        self.plan = plan
        self._gone: list[Ranges] = []
        self._remainders: list[WindowRemainder] = []

    def add(self, index: int, num_steps: int, beyond: int) -> None:
        """Note the first `num_steps` batches of share `index`, and `beyond` rows after them."""
        planned = self.plan.planned_share(index)
        share = self.plan.laid_out(index, planned)
        num_rows = min(share.rows_of_first(num_steps) + beyond, share.total_rows)
        if planned.starts is None or share.windows is None:
            self._gone.append(planned.chunks.rows(0, num_rows))
            return
        ends = np.cumsum(share.windows.num_rows)
        # The window of the next row; all rows of earlier windows were delivered.
        window = int(np.searchsorted(ends, num_rows, side="right"))
        bounds = np.append(planned.starts, len(planned.chunks.num_rows))
        self._gone.append(planned.chunks.pick(slice(int(bounds[window]))))
        taken = num_rows - (int(ends[window - 1]) if window else 0)
        if taken == 0:
            return
        begun = planned.chunks.pick(slice(int(bounds[window]), int(bounds[window + 1])))
        if window in self.plan.remainders_of(planned):
            self._gone.append(begun.rows(0, taken))
            return
        self._gone.append(begun)
        if begun.valid[0]:
            key, end = int(share.windows.key[window]), int(share.windows.end[window])
            self._remainders.append(WindowRemainder(begun, key, taken, end))

    def remains(self) -> Remains:
        """Return what is left: first the rest of windows, then chunks in their order."""
        first_remainder = len(self.plan.row_group_rows)
        left = subtract(self.plan.units, Ranges.joined([Ranges.none(), *self._gone]))
        # Remainders that an earlier world has left stay remainders, with fewer positions.
        is_old = left.row_group >= first_remainder
        old = left.pick(np.flatnonzero(is_old))
        remainders = list(self._remainders)
        for unit, begin, rows in zip(
            old.row_group.tolist(), old.row_begin.tolist(), old.num_rows.tolist(), strict=True
        ):
            remainder = self.plan.remainders[unit - first_remainder]
            remainders.append(replace(remainder, begin=begin, end=begin + rows))
        units = self._units_of(remainders).then(left.pick(np.flatnonzero(~is_old)))
        return Remains(units, tuple(remainders))

    def _units_of(self, remainders: Sequence[WindowRemainder]) -> Ranges:
        begin = np.array([remainder.begin for remainder in remainders], dtype=np.int64)
        end = np.array([remainder.end for remainder in remainders], dtype=np.int64)
        numbers = np.arange(len(remainders), dtype=np.int64) + len(self.plan.row_group_rows)
        units = replace(Ranges.whole(numbers, end - begin), row_begin=begin)
        if self.plan.options.batch_size is None and remainders:
            # One batch per chunk: a remainder of many chunks would be a batch too large for memory.
            largest = max(int(remainder.chunks.num_rows.max()) for remainder in remainders)
            units = units.cut_longer_than(largest)
        return units


def subtract(units: Ranges, gone: Ranges) -> Ranges:
    """Return the rows of `units` that are not in `gone`, in the order of `units`."""
    units = units.without_empty()
    gone = gone.pick(np.flatnonzero(gone.valid & (gone.num_rows > 0)))
    if not len(gone.num_rows):
        return units
    # All row groups are laid side by side on one line.
    extents = np.zeros(int(units.row_group.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(extents, units.row_group, units.row_begin + units.num_rows)
    bases = np.cumsum(extents) - extents
    begin, end = _on_line(units, bases)
    gone_begin, gone_end = _merged(*_on_line(gone, bases))
    cuts = np.sort(np.concatenate([begin, end, gone_begin, gone_end]))
    cuts = cuts[np.append(True, cuts[1:] > cuts[:-1])]
    starts, stops = cuts[:-1], cuts[1:]
    by_begin = np.argsort(begin)
    unit = by_begin[np.maximum(np.searchsorted(begin[by_begin], starts, side="right") - 1, 0)]
    hole = np.maximum(np.searchsorted(gone_begin, starts, side="right") - 1, 0)
    in_unit = (starts >= begin[unit]) & (stops <= end[unit])
    in_hole = (starts >= gone_begin[hole]) & (stops <= gone_end[hole])
    left = np.flatnonzero(in_unit & ~in_hole)
    left = left[np.argsort(unit[left], kind="stable")]
    row_group = units.row_group[unit[left]]
    whole = Ranges.whole(row_group, stops[left] - starts[left])
    return replace(whole, row_begin=starts[left] - bases[row_group])


def _on_line(ranges: Ranges, bases: Int64Array) -> tuple[Int64Array, Int64Array]:
    begin: Int64Array = bases[ranges.row_group] + ranges.row_begin
    return begin, begin + ranges.num_rows


def _merged(begin: Int64Array, end: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the union of ranges as ordered ranges that do not overlap."""
    by_begin = np.argsort(begin)
    begin, reach = begin[by_begin], np.maximum.accumulate(end[by_begin])
    is_first: NDArray[np.bool_] = np.append(True, begin[1:] > reach[:-1])
    return begin[is_first], reach[np.append(np.flatnonzero(is_first)[1:] - 1, len(reach) - 1)]


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
