"""The epoch plan: which rows each share reads, in which order, as arithmetic on row counts.

The plan follows from the row counts in the footers and from `PlanOptions`. It reads no file and
needs no communication, so every rank computes the same plan alone.

Words: a *share* is the part that one DataLoader worker of one rank reads (one share per rank
without workers). A *position* is an index in the epoch's order of row groups; position `i` is
dealt to share `i % num_shares`. Array shapes: `[G]` row groups, `[S]` shares, `[K]` the most
chunks any share is dealt, `[n]` the chunks of one share. Every count and offset is in rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.checks import checked_int
from torchparquet._impl.plan.claims import Claims
from torchparquet._impl.plan.division import DIVISIONS, Dealt, Division, RowCounts, Together
from torchparquet._impl.plan.order import balanced_order, epoch_order, order_within_share
from torchparquet._impl.plan.plan_options import Int64Array, PlanOptions
from torchparquet._impl.plan.ranges import Ranges
from torchparquet._impl.plan.share import (
    Share,
    WindowRemainder,
    lay_out,
    window_keys,
    window_starts,
)
from torchparquet._impl.plan.step_costs import (
    Float64Array,
    RowCosts,
    WindowSteps,
    evened_order,
    longest_unit,
    slot_rows,
    step_targets,
)


@dataclass(frozen=True, eq=False)
class Remains:
    """The rows of an epoch that nobody has delivered before its world changed.

    Attributes:
        units: The ranges that are left, in the order in which they are dealt. A range whose row
            group is `G + t` counts the positions of remainder `t`.
        remainders: The rest of windows that were begun.
    """

    units: Ranges
    remainders: tuple[WindowRemainder, ...]


@dataclass(frozen=True, eq=False)
class PlannedShare:
    """A share as it was dealt: chunks, with a range of positions for each remainder.

    Attributes:
        part: As that of `Division`.
        starts: int64 `[m]`, the first chunk of each window; None for rows in file order.
        chunk_rows: int64, rows of each chunk before any was cut; without empty chunks.
    """

    part: tuple[int, Ranges]
    chunks: Ranges
    starts: Int64Array | None
    chunk_rows: Int64Array


class EpochPlan:
    """The division of one epoch's rows among all shares.

    Attributes:
        options: The options given.
        order: int64 `[n]`, the row group of each unit; row groups without rows included, and
            several times where `cuts_row_groups` holds. A unit stands at its position, unless
            units are dealt by bytes or costs: `chunk_order` has those.
        num_shares: `world_size * num_workers`, or `canonical_world_size`.
        share_rows: int64 `[S]`, rows that each share delivers, repeats included.
        share_steps: int64 `[S]`, batches that each share delivers.
        own_rows: int64 `[S]`, the part of `share_rows` that is not repeated.
    """

    def __init__(
        self,
        row_group_rows: Int64Array,
        options: PlanOptions,
        *,
        remains: Remains | None = None,
        row_group_bytes: Int64Array | None = None,
        row_costs: RowCosts | None = None,
    ) -> None:
        """Plan an epoch."""
        options.check_world()
        self.row_group_rows = _checked_rows(row_group_rows)
        self.row_group_bytes = row_group_bytes
        self.row_costs = row_costs
        self._slot_rows = 0 if row_costs is None else slot_rows(self.row_group_rows, options)
        self._targets: dict[int, Float64Array | None] = {}  # of the latest slot
        self.options = options
        self.num_shares = options.num_shares
        self.remainders = () if remains is None else remains.remainders
        self.units = self._whole_epoch() if remains is None else remains.units
        self.order = self.units.row_group
        self._dealt = dealt = Dealt(self._in_turns(), self.num_shares)
        # A single share needs no policy.
        divided = DIVISIONS[options.even] if self.num_shares > 1 else Division
        if options.ranks_together > 1:
            divided = Together
        self._division = divided(dealt, options)
        self.share_rows = self._division.rows
        self.share_steps = self._division.steps
        self.own_rows = self._division.own_rows

    def of_epoch(self, epoch: int) -> EpochPlan:
        """Return this plan for another epoch; without `shuffle` both have the same order."""
        made = copy(self)
        made.options = replace(self.options, epoch=epoch)
        return made

    def _whole_epoch(self) -> Ranges:
        rows, options = self.row_group_rows, self.options
        units = Ranges.whole(np.arange(len(rows), dtype=np.int64), rows)
        if options.cuts_row_groups:
            bound = longest_unit(self._slot_rows) if self._slot_rows else options.window_rows
            units = units.cut_longer_than(bound)
        return units.pick(epoch_order(len(units.num_rows), options))

    def _in_turns(self) -> Ranges:
        """Return the units in an order that deals position `i` to share `i % num_shares`."""
        if self.row_costs is not None:
            num_first = int((self.units.row_group >= len(self.row_group_rows)).sum())
            return evened_order(
                self.units, self.row_costs, self.num_shares, self._slot_rows, num_first
            )
        if self.options.order.balance == "rows":
            return self.units
        costs = self.row_group_bytes
        if costs is None or len(costs) != len(self.row_group_rows):
            raise ValueError('balance="bytes" needs the bytes of each row group')
        return balanced_order(self.units, self._unit_bytes(costs), self.num_shares)

    def _unit_bytes(self, row_group_bytes: Int64Array) -> Int64Array:
        row_bytes = row_group_bytes / np.maximum(self.row_group_rows, 1)
        for remainder in self.remainders:
            of_remainder = row_bytes[remainder.chunks.row_group].max(initial=0.0)
            row_bytes = np.append(row_bytes, of_remainder)
        costs: Int64Array = (row_bytes[self.units.row_group] * self.units.num_rows).astype(np.int64)
        return costs

    def planned_share(self, index: int) -> PlannedShare:
        """Return the chunks that share `index` was dealt."""
        index = checked_int("index", index, 0, self.num_shares)
        part, options = self._division.part(index), self.options
        chunks = self._dealt.chunks(index)
        if part[0] < self._dealt.totals[index]:
            chunks = chunks.rows(0, part[0])
        chunks = chunks.then(part[1])
        if options.order.within_rank:
            chunks = order_within_share(chunks.without_empty_tail(), options, index)
            part = 0, chunks
        chunks = chunks.without_empty()
        chunk_rows = chunks.num_rows
        if not options.shuffle_window:
            return PlannedShare(part, chunks, None, chunk_rows)
        is_remainder = chunks.row_group >= len(self.row_group_rows)
        if self.row_costs is not None:
            chunks = chunks.cut_at(np.arange(0, int(chunks.num_rows.sum()), self._slot_rows))
            is_remainder = chunks.row_group >= len(self.row_group_rows)
        elif options.window_rows and not is_remainder.all():
            chunks = chunks.cut_longer_than(options.window_rows, except_for=is_remainder)
            is_remainder = chunks.row_group >= len(self.row_group_rows)
        starts = window_starts(chunks, is_remainder, options, self._slot_rows)
        return PlannedShare(part, chunks, starts, chunk_rows)

    def share(self, index: int) -> Share:
        """Return share `index`; time and memory are proportional to its own chunks.

        Raises:
            ValueError: `index` is not in `[0, num_shares)`.
        """
        return self.laid_out(index, self.planned_share(index))

    def laid_out(self, index: int, planned: PlannedShare) -> Share:
        """Return share `index`, dealt as `planned`, in the form that a reader takes."""
        (dealt_rows, further), windows = planned.part, None
        if planned.starts is not None and len(planned.starts):
            remainders = self.remainders_of(planned)
            keys, steps = self._keys_and_steps(index, planned)
            chunks, windows = lay_out(planned.chunks, planned.starts, keys, steps, remainders)
            if remainders:
                dealt_rows, further = 0, chunks
        batch_size = self.options.share_batch_size
        batch_sizes = planned.chunk_rows if batch_size is None else planned.chunk_rows[:0]
        return Share(
            index,
            self.num_shares,
            batch_size,
            self._dealt.epoch,
            dealt_rows,
            further,
            windows,
            batch_sizes,
            epoch=self.options.epoch,
        )

    def _keys_and_steps(
        self, index: int, planned: PlannedShare
    ) -> tuple[NDArray[np.uint64], NDArray[np.object_]]:
        """Return the key of each window, and how its rows are dealt into steps, `[m]` each."""
        chunks, starts = planned.chunks, planned.starts
        assert starts is not None  # noqa: S101
        steps = np.full(len(starts), None)
        if self.row_costs is None:
            return window_keys(self.options, index, len(starts)), steps
        end = np.append(chunks.ends[starts[1:] - 1], chunks.ends[-1])
        begin = np.append(0, end[:-1])
        slot = begin // self._slot_rows
        is_whole = (begin % self._slot_rows == 0) & (
            (end - begin == self._slot_rows) | (end == chunks.ends[-1])
        )
        for window, number in enumerate(slot.tolist()):
            steps[window] = WindowSteps(self, number if is_whole[window] else None)
        # Step k of a slot is of one cost on all shares if they permute the steps alike.
        return window_keys(self.options, 0, int(slot[-1]) + 1)[slot], steps

    def slot_targets(self, slot: int) -> Float64Array | None:
        """Return what the steps of a slot are to cost on each share, the costliest first, `[n]`."""
        if slot not in self._targets:
            self._targets = {slot: self._slot_targets(slot)}
        return self._targets[slot]

    def _slot_targets(self, slot: int) -> Float64Array | None:
        size, batch_rows = self._slot_rows, self.options.share_batch_size or 1
        num_rows = np.clip(self.share_rows - slot * size, 0, size)
        steps = -(-num_rows // batch_rows)
        # A share of fewer steps has nothing to match.
        shares = np.flatnonzero(steps == steps.max()).tolist()
        return step_targets(self._slot_costs(slot, shares), int(steps.max()), batch_rows)

    def _slot_costs(self, slot: int, shares: list[int]) -> Iterator[NDArray[np.uint32]]:
        """Yield the costs of the rows of a slot of each share, but of remainders."""
        begin = slot * self._slot_rows
        for index in shares:
            end = min(begin + self._slot_rows, int(self.share_rows[index]))
            chunks = self.planned_share(index).chunks.rows(begin, end)
            if self.row_costs is not None and (chunks.row_group < len(self.row_group_rows)).all():
                yield self.row_costs.of(chunks)

    def claimed(self, claims: Claims) -> Share:
        """Return the share of a rank that takes positions of the order itself."""
        order, batch_size = self.chunk_order, self.options.batch_size
        if claims.counts:
            counted = order.num_rows.copy()
            counted[claims.taken[: len(claims.counts)]] = claims.counts
            order = replace(order, num_rows=counted)
        rows = order.num_rows[np.array(claims.taken, dtype=np.intp)]
        return Share(
            0,
            1,
            batch_size,
            order,
            int(order.num_rows.sum()),
            Ranges.none(),
            None,
            rows[rows > 0] if batch_size is None else rows[:0],
            claims=claims,
        )

    @property
    def chunk_order(self) -> Ranges:
        """The chunks of all shares, in the order of positions."""
        return self._dealt.epoch

    def remainders_of(self, planned: PlannedShare) -> dict[int, tuple[WindowRemainder, int]]:
        """Return, by window of the share, its remainder and its first position there."""
        if not self.remainders or planned.starts is None:
            return {}
        units = planned.chunks.row_group[planned.starts] - len(self.row_group_rows)
        begins = planned.chunks.row_begin[planned.starts]
        return {
            int(window): (self.remainders[units[window]], int(begins[window]))
            for window in np.flatnonzero(units >= 0)
        }

    def row_counts(self) -> RowCounts:
        """Return how many rows of which row groups all shares deliver.

        Time and memory are proportional to shares and row groups together.
        """
        counts = self._division.row_counts()
        if not self.remainders:
            return counts
        is_remainder = counts.row_group >= len(self.row_group_rows)
        with_remainders = np.unique(counts.share[is_remainder])
        others = counts.pick(~np.isin(counts.share, with_remainders))
        made = [RowCounts.of_share(self.share(int(index))) for index in with_remainders]
        return RowCounts.joined([others, *made])

    def steps_per_rank(self) -> Int64Array:
        """Return the batches that all workers of each rank deliver together, int64 `[W]`."""
        by_rank = self.share_steps.reshape(-1, self.options.world_size)
        steps: Int64Array = (
            by_rank.max(0) if self.options.order.canonical_world_size else by_rank.sum(0)
        )
        return steps

    def num_steps(self, rank: int) -> int:
        """Return the batches that all workers of `rank` deliver together.

        Raises:
            ValueError: `rank` is not in `[0, world_size)`.
        """
        rank = checked_int("rank", rank, 0, self.options.world_size)
        return int(self.steps_per_rank()[rank])


def _checked_rows(row_group_rows: Int64Array) -> Int64Array:
    rows = np.asarray(row_group_rows)
    if rows.ndim != 1:
        raise ValueError(f"row_group_rows must have one dimension, got {rows.ndim}")
    if rows.size and rows.dtype.kind not in "iu":
        raise TypeError(f"row_group_rows must hold integers, got {rows.dtype}")
    if rows.size and rows.min() < 0:
        raise ValueError(f"row_group_rows must be >= 0, got {rows.min()}")
    # The sum in float64 cannot overflow, so it decides whether the exact sum is safe.
    if not 0 < rows.sum(dtype=np.float64) < 2**62:
        raise ValueError(f"the sum of rows must be >= 1 and below 2**62, got {sum(rows.tolist())}")
    return rows.astype(np.int64)
