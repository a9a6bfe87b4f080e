"""One share of an epoch: the rows that one reader delivers, and the windows they move in."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.plan.order import GOLDEN, philox, split_mix
from torchparquet._impl.plan.plan_options import Int64Array, PlanOptions
from torchparquet._impl.plan.ranges import Arrays, Ranges


@dataclass(frozen=True, eq=False)
class Windows(Arrays):
    """Consecutive chunks of a share whose rows are permuted together, one entry per window.

    Window `w` consists of the next `num_chunks[w]` chunks. The reader permutes their rows and
    delivers those at `[begin[w], end[w])`.
    """

    num_chunks: Int64Array
    key: NDArray[np.uint64]
    begin: Int64Array
    end: Int64Array

    @property
    def num_rows(self) -> Int64Array:
        """The rows that each window delivers, int64 `[m]`."""
        return self.end - self.begin


@dataclass(frozen=True, eq=False)
class Share:
    """The rows that one worker of one rank reads in one epoch, in order.

    Chunk `k` stands at position `k * num_shares + index` of the sequence that the cursor walks.

    Attributes:
        batch_size: Rows of a batch that come from the share; None if `batch_sizes` has them.
        num_rows: int64 `[n]`; 0 for a row group without rows, which keeps its position.
        windows: None for rows in file order.
        batch_sizes: int64 `[b]`, rows of each batch if `batch_size` is None; else empty.
    """

    index: int
    num_shares: int
    batch_size: int | None
    row_group: Int64Array
    row_begin: Int64Array
    num_rows: Int64Array
    valid: NDArray[np.bool_]
    windows: Windows | None
    batch_sizes: Int64Array

    @property
    def total_rows(self) -> int:
        """The rows that the share delivers, repeats included."""
        return int((self.num_rows if self.windows is None else self.windows.num_rows).sum())

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
        chunks = Ranges(self.row_group, self.row_begin, self.num_rows, self.valid)
        windows = self.windows
        if windows is None:
            return part._of_chunks(chunks.rows(row, stop_row))
        ends = np.cumsum(windows.num_rows)
        first = int(np.searchsorted(ends, row, side="right"))
        stop = int(np.searchsorted(ends, stop_row)) + 1 if row < stop_row else first
        kept = windows.pick(np.arange(first, stop))
        if first < stop:
            kept.begin[0] += row - (ends[first] - windows.num_rows[first])
            kept.end[-1] -= ends[stop - 1] - stop_row
        chunk = int(windows.num_chunks[:first].sum())
        chunks = chunks.pick(slice(chunk, chunk + int(kept.num_chunks.sum())))
        return replace(part._of_chunks(chunks), windows=kept)

    def _of_chunks(self, chunks: Ranges) -> Share:
        return replace(
            self,
            row_group=chunks.row_group,
            row_begin=chunks.row_begin,
            num_rows=chunks.num_rows,
            valid=chunks.valid,
        )


@dataclass(frozen=True, eq=False)
class WindowRemainder:
    """The rest of a window that another world has begun: positions of its permuted order."""

    chunks: Ranges
    key: int
    begin: int
    end: int


def window_starts(
    chunks: Ranges, is_remainder: NDArray[np.bool_], options: PlanOptions
) -> Int64Array:
    """Return the index of the first chunk of each window, int64 `[m]`.

    A window has at most `shuffle_window` chunks and, where there is a bound, `window_rows` rows.
    Repeats are permuted apart from what they repeat, and a remainder is a window already.
    """
    num_chunks = len(chunks.num_rows)
    if num_chunks == 0:
        return np.zeros(0, dtype=np.int64)
    breaks = np.ones(num_chunks, dtype=bool)
    breaks[1:] = is_remainder[1:] | is_remainder[:-1] | (chunks.valid[1:] != chunks.valid[:-1])
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
    remainders: dict[int, tuple[WindowRemainder, int]],
) -> tuple[Ranges, Windows]:
    """Return a share's chunks and windows with those of remainders put in their places."""
    bounds = np.append(starts, len(chunks.num_rows))
    num_chunks, rows = np.diff(bounds), np.add.reduceat(chunks.num_rows, starts)
    begin = np.zeros_like(rows)
    if not remainders:
        return chunks, Windows(num_chunks, keys, begin, rows)
    end, keys, parts, next_chunk = rows.copy(), keys.copy(), [], 0
    for window, (remainder, first) in sorted(remainders.items()):
        place = int(starts[window])
        valid = np.repeat(chunks.valid[place], len(remainder.chunks.valid))
        parts += [chunks.pick(slice(next_chunk, place)), replace(remainder.chunks, valid=valid)]
        next_chunk = place + 1
        num_chunks[window], keys[window] = len(remainder.chunks.num_rows), remainder.key
        begin[window], end[window] = first, first + rows[window]
    parts.append(chunks.pick(slice(next_chunk, None)))
    return Ranges.joined(parts), Windows(num_chunks, keys, begin, end)
