"""Shuffle windows: the chunks of a share that are permuted together, and the keys."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.plan.order import philox
from torchparquet._impl.plan.plan_options import Int64Array, PlanOptions
from torchparquet._impl.plan.ranges import Ranges
from torchparquet._impl.plan.share import Windows


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
    """Return the keys of a share's windows, by (seed, epoch, leg, share, window), uint64 `[m]`.

    Source: SplitMix64 (Steele, Lea and Flood, 2014), a counter-based generator. For each share it
    begins at an output of Philox4x64-10.
    """
    base = philox(options, share, 1 + options.leg, 1).random_raw(1).astype(np.uint64)
    steps = np.arange(1, num_windows + 1, dtype=np.uint64)
    z = base + steps * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    keys: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return keys


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
