"""One share of an epoch: the rows that one reader delivers, and the windows they move in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.plan.claims import Claims
from torchparquet._impl.plan.order import GOLDEN, philox, split_mix
from torchparquet._impl.plan.plan_options import Int64Array, PlanOptions
from torchparquet._impl.plan.ranges import Arrays, Ranges
from torchparquet._impl.plan.step_costs import WindowSteps


@dataclass(frozen=True, eq=False)
class Windows(Arrays):
    """Consecutive rows of a share that are permuted together, one entry per window.

    Window `w` consists of the next `stored_rows[w]` rows. The reader permutes them and delivers
    those at `[begin[w], end[w])`. With costs, `steps[w]` tells how they are dealt into steps.
    """

    stored_rows: Int64Array
    key: NDArray[np.uint64]
    begin: Int64Array
    end: Int64Array
    steps: NDArray[np.object_]  # of `WindowSteps`, or None

    @property
    def num_rows(self) -> Int64Array:
        """The rows that each window delivers, int64 `[m]`."""
        return self.end - self.begin


@dataclass(frozen=True, eq=False)
class Share:
    """The rows that one worker of one rank reads in one epoch, in order.

    The order is that of all shares. The cursor of share `index` walks it, and takes positions
    `i` where `i % num_shares == index`.

    Attributes:
        batch_size: Rows of a batch that come from the share; None if `batch_sizes` has them.
        dealt_rows: How many rows the share keeps of those that the cursor takes: the first ones.
        further: Ranges after those: moved here from other shares, or repeated.
        skipped_rows: The first of all these rows, which were delivered before.
        windows: None for rows in file order.
        batch_sizes: int64 `[b]`, rows of each batch if `batch_size` is None; else empty.
        epoch: The epoch, which rows that are sampled depend on.
        claims: Positions that the rank takes instead of those by remainder.
        orders: uint32 `[p]` for each window, the row at each position, in place of a permutation
            by key; empty without them. A row may stand at several positions, or at none.
    """

    index: int
    num_shares: int
    batch_size: int | None
    order: Ranges
    dealt_rows: int
    further: Ranges
    windows: Windows | None
    batch_sizes: Int64Array
    skipped_rows: int = 0
    epoch: int = 0
    claims: Claims | None = None
    orders: Sequence[NDArray[np.uint32]] = ()

    @cached_property
    def chunks(self) -> Ranges:
        """The ranges that the share is, or of claims those taken when this is asked first."""
        claims = self.claims
        if claims is not None:
            found = self.order.pick(np.array(claims.taken, dtype=np.intp))
        else:
            dealt = self.order.pick(slice(self.index, None, self.num_shares))
            found = dealt.rows(0, self.dealt_rows).then(self.further)
        return found.rows(self.skipped_rows, int(found.num_rows.sum()))

    def in_windows(self) -> tuple[Ranges, Int64Array]:
        """Return the ranges cut where windows end, and how many each has; without windows 1."""
        if self.windows is None:
            return self.chunks, np.ones(len(self.chunks.num_rows), dtype=np.int64)
        ends = np.cumsum(self.windows.stored_rows)
        cut = self.chunks.cut_at(ends)
        return cut, np.diff(np.searchsorted(cut.ends, ends, side="right"), prepend=0)

    @property
    def total_rows(self) -> int:
        """The rows that the share delivers, repeats included."""
        return int((self.chunks if self.windows is None else self.windows).num_rows.sum())

    @property
    def num_steps(self) -> int:
        """The batches that the share delivers."""
        if self.batch_size is None:
            return len(self.batch_sizes)
        return -(-self.total_rows // self.batch_size)

    def rows_of_first(self, num_steps: int) -> int:
        """Return the rows of the first `num_steps` batches, or of all if there are fewer."""
        if self.batch_size is None:
            return int(self.batch_sizes[:num_steps].sum())
        return min(num_steps * self.batch_size, self.total_rows)

    def steps(self, begin: int, end: int | None = None) -> Share:
        """Return the part that delivers batches `[begin, end)`; all further ones without `end`."""
        row = self.rows_of_first(begin)
        stop_row = self.total_rows if end is None else max(row, self.rows_of_first(end))
        if row == 0 and stop_row == self.total_rows:
            return self
        part = replace(self, batch_sizes=self.batch_sizes[begin:end])
        if self.claims is not None:
            return replace(part, skipped_rows=row)  # more may be taken
        windows = self.windows
        if windows is None:
            return part._of_rows(row, stop_row)
        ends = np.cumsum(windows.num_rows)
        first = int(np.searchsorted(ends, row, side="right"))
        stop = int(np.searchsorted(ends, stop_row)) + 1 if row < stop_row else first
        kept = windows.pick(np.arange(first, stop))
        if first < stop:
            kept.begin[0] += row - (ends[first] - windows.num_rows[first])
            kept.end[-1] -= ends[stop - 1] - stop_row
        stored = int(windows.stored_rows[:first].sum())
        part = part._of_rows(stored, stored + int(kept.stored_rows.sum()))
        return replace(part, windows=kept)

    def _of_rows(self, begin: int, end: int) -> Share:
        """Return the part that has rows `[begin, end)` as they stand before windows permute."""
        end += self.skipped_rows
        return replace(
            self,
            skipped_rows=self.skipped_rows + begin,
            dealt_rows=min(self.dealt_rows, end),
            further=self.further.rows(0, end - self.dealt_rows),
        )


@dataclass(frozen=True, eq=False)
class WindowRemainder:
    """The rest of a window that another world has begun: positions of its permuted order."""

    chunks: Ranges
    key: int
    begin: int
    end: int
    steps: WindowSteps | None


def window_starts(
    chunks: Ranges, is_remainder: NDArray[np.bool_], options: PlanOptions, slot_rows: int = 0
) -> Int64Array:
    """Return the index of the first chunk of each window, int64 `[m]`.

    A window has at most `shuffle_window` chunks and, where there is a bound, `window_rows` rows; or
    with costs the rows of a slot, at whose ends chunks are cut. Repeats are permuted apart from
    what they repeat, and a remainder is a window already.
    """
    num_chunks = len(chunks.num_rows)
    if num_chunks == 0:
        return np.zeros(0, dtype=np.int64)
    breaks = np.ones(num_chunks, dtype=bool)
    breaks[1:] = is_remainder[1:] | is_remainder[:-1] | (chunks.valid[1:] != chunks.valid[:-1])
    if slot_rows:
        slot = (chunks.ends - 1) // slot_rows
        breaks[1:] |= slot[1:] != slot[:-1]
        return np.flatnonzero(breaks)
    runs = np.append(np.flatnonzero(breaks), num_chunks)
    if not options.window_rows:
        place_in_run = np.arange(num_chunks) - np.repeat(runs[:-1], np.diff(runs))
        return np.flatnonzero(place_in_run % options.shuffle_window == 0)
    ends = chunks.ends.tolist()
    rows = chunks.num_rows.tolist()
    starts = []
    for begin, end in zip(runs[:-1].tolist(), runs[1:].tolist(), strict=True):
        while begin < end:
            starts.append(begin)
            reach = bisect_right(ends, ends[begin] - rows[begin] + options.window_rows)
            begin = min(max(reach, begin + 1), begin + options.shuffle_window, end)
    return np.array(starts, dtype=np.int64)


def window_keys(options: PlanOptions, share: int, num_windows: int) -> NDArray[np.uint64]:
    """Return the keys of a share's windows, by (seed, epoch, leg, share, window), uint64 `[m]`."""
    # A counter for `split_mix`, which for each share begins at an output of Philox4x64-10.
    base = philox(options, share, 1 + options.leg, 1).random_raw(1).astype(np.uint64)
    return split_mix(base + GOLDEN * np.arange(1, num_windows + 1, dtype=np.uint64))


def lay_out(
    chunks: Ranges,
    starts: Int64Array,
    keys: NDArray[np.uint64],
    steps: NDArray[np.object_],
    remainders: dict[int, tuple[WindowRemainder, int]],
) -> tuple[Ranges, Windows]:
    """Return a share's chunks and windows with those of remainders put in their places."""
    rows = np.add.reduceat(chunks.num_rows, starts)
    begin = np.zeros_like(rows)
    if not remainders:
        return chunks, Windows(rows, keys, begin, rows, steps)
    stored_rows, end, keys, parts, next_chunk = rows.copy(), rows.copy(), keys.copy(), [], 0
    for window, (remainder, first) in sorted(remainders.items()):
        place = int(starts[window])
        valid = np.repeat(chunks.valid[place], len(remainder.chunks.valid))
        parts += [chunks.pick(slice(next_chunk, place)), replace(remainder.chunks, valid=valid)]
        next_chunk = place + 1
        stored_rows[window] = remainder.chunks.num_rows.sum()
        keys[window], steps[window] = remainder.key, remainder.steps
        begin[window], end[window] = first, first + rows[window]
    parts.append(chunks.pick(slice(next_chunk, None)))
    return Ranges.joined(parts), Windows(stored_rows, keys, begin, end, steps)
