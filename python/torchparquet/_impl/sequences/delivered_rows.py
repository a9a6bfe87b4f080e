"""The rows that a share delivers, in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.native import window_order
from torchparquet._impl.plan.plan_options import Int64Array
from torchparquet._impl.plan.share import Share


class WindowRows(NamedTuple):
    """The rows of a window, or of a chunk without windows, or of several, as delivered."""

    row_group: Int64Array
    row: Int64Array
    row_in_share: Int64Array  # before permuting
    valid: NDArray[np.bool_]


def delivered_rows(share: Share) -> Iterator[WindowRows]:
    """Yield the rows of a share, window by window."""
    windows = share.windows
    all_chunks, counts = share.in_windows()
    chunk = first = 0
    for window, count in enumerate(counts.tolist()):
        chunks = all_chunks.pick(slice(chunk, chunk + count))
        rows = chunks.num_rows
        row_group = np.repeat(chunks.row_group, rows)
        # For each chunk 0, 1, 2, ...
        within = np.arange(len(row_group)) - np.repeat(np.cumsum(rows) - rows, rows)
        row = np.repeat(chunks.row_begin, rows) + within
        order = np.arange(len(row_group))
        if windows is not None and len(row_group):
            permuted = window_order(int(windows.key[window]), len(row_group))
            order = permuted[int(windows.begin[window]) : int(windows.end[window])].astype(np.int64)
        valid = np.repeat(chunks.valid, rows)
        yield WindowRows(row_group[order], row[order], first + order, valid[order])
        chunk, first = chunk + count, first + len(order)


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
    rows = first_windows(share, num_rows)
    return rows.row_group[:num_rows], rows.row[:num_rows]
