"""The rows that a share delivers, in order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.native import window_order
from torchparquet._impl.plan.plan_options import Int64Array
from torchparquet._impl.plan.ranges import Ranges
from torchparquet._impl.plan.share import Share


class WindowRows(NamedTuple):
    """The rows of a window, or of a chunk without windows, or of several, as delivered."""

    row_group: Int64Array
    row: Int64Array
    row_in_share: Int64Array  # before permuting
    valid: NDArray[np.bool_]


def ordered_windows(share: Share) -> Iterator[tuple[Ranges, Int64Array]]:
    """Yield the ranges of each window, and which of their rows it delivers, in order."""
    windows = share.windows
    all_chunks, counts = share.in_windows()
    chunk = 0
    for window, count in enumerate(counts.tolist()):
        chunks = all_chunks.pick(slice(chunk, chunk + count))
        num_rows, chunk = int(chunks.num_rows.sum()), chunk + count
        if windows is None or num_rows == 0:
            yield chunks, np.arange(num_rows)
            continue
        key, steps = int(windows.key[window]), windows.steps[window]
        if steps is None:
            order = _permuted(key, num_rows, 0)
        else:
            order = steps.dealt(chunks, partial(_permuted, key))
        yield chunks, order[int(windows.begin[window]) : int(windows.end[window])]


def _permuted(key: int, num_rows: int, number: int) -> Int64Array:
    if num_rows == 0:
        return np.zeros(0, np.int64)
    return window_order((key + number) % 2**64, num_rows).astype(np.int64)


def delivered_rows(share: Share) -> Iterator[WindowRows]:
    """Yield the rows of a share, window by window."""
    first = 0
    for chunks, order in ordered_windows(share):
        rows = chunks.num_rows
        row_group = np.repeat(chunks.row_group, rows)
        # For each chunk 0, 1, 2, ...
        within = np.arange(len(row_group)) - np.repeat(np.cumsum(rows) - rows, rows)
        row = np.repeat(chunks.row_begin, rows) + within
        valid = np.repeat(chunks.valid, rows)
        yield WindowRows(row_group[order], row[order], first + order, valid[order])
        first += len(order)


def first_windows(share: Share, num_rows: int) -> WindowRows:
    """Return the rows of whole windows from the start, at least `num_rows`, or all."""
    empty = np.zeros(0, np.int64)
    found, count = [WindowRows(empty, empty, empty, np.zeros(0, np.bool_))], 0
    for window in delivered_rows(share):
        found.append(window)
        count += len(window.row)
        if count >= num_rows:
            break
    return WindowRows(*map(np.concatenate, zip(*found, strict=True)))


def first_rows(share: Share, num_rows: int) -> tuple[Int64Array, Int64Array]:
    """Return row group and row of the first `num_rows` rows, or of all, int64 `[n]` each."""
    if share.windows is None:
        # Not whole chunks: one whose sequences nobody has counted has too many.
        chunks = share.chunks.rows(0, min(num_rows, share.total_rows))
        share = Share(0, 1, None, chunks, num_rows, Ranges.none(), None, chunks.num_rows)
    rows = first_windows(share, num_rows)
    return rows.row_group[:num_rows], rows.row[:num_rows]
