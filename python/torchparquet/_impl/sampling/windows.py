"""Windows over consecutive rows: which rows are anchors, and which rows each window needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.plan.plan_options import Int64Array
from torchparquet._impl.sampling.policy import Policy, RowOrder, equal_bounds
from torchparquet.options import Window

_PART = 2**18  # anchors whose rows are looked up at once
# A block reads up to one window of rows more than it has anchors.
_LEAST_WINDOWS = 16
# Marks are faster than sorting, by 6 times for neighbours, up to about so many places for each.
_MARKS_PER_ROW = 16


@dataclass(frozen=True, eq=False)
class Episodes:
    """The rows of each episode, and the time of each row where offsets are times.

    `begins` is int64 `[E + 1]`, the number of rows last. `times` is float64 `[n]`, in the unit of
    offsets; it never descends, also from one episode to the next.
    """

    begins: Int64Array
    times: NDArray[np.float64] | None
    tolerance: float

    def around(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the first and the last row of the episode of each row, int64 `[n]` both."""
        episode = np.searchsorted(self.begins, rows, side="right")
        return self.begins[episode - 1], self.begins[episode] - 1

    def places(
        self, rows: Int64Array, offsets: Sequence[float]
    ) -> tuple[Int64Array, NDArray[np.bool_]]:
        """Return the rows at offsets from anchors, relative to these, and which are there.

        Both are `[n, T]`. In place of a row that is not there is the nearest one of the episode.
        """
        first, last = (of[:, None] for of in self.around(rows))
        anchors = rows[:, None]
        if self.times is None:
            wanted = anchors + np.array(offsets, np.int64)
            found = np.clip(wanted, first, last)
            return found - anchors, found == wanted
        moments = self.times[anchors] + np.array(offsets)
        after = np.searchsorted(self.times, moments)
        earlier, later = np.clip(after - 1, first, last), np.clip(after, first, last)
        is_earlier = moments - self.times[earlier] <= self.times[later] - moments
        # Before the first row and after the last one both are the same.
        found = np.where(is_earlier, earlier, later)
        # Of rows with the time of the anchor, the anchor itself.
        found = np.where(self.times[found] == self.times[anchors], anchors, found)
        return found - anchors, abs(self.times[found] - moments) <= self.tolerance


class Windows(Policy):
    """The anchors of windows, block after block of neighbours."""

    def __init__(
        self,
        order: RowOrder,
        episodes: Episodes,
        window: Window,
        block_rows: int,
        most_rows: int,
    ) -> None:
        """Make blocks of anchors among about `block_rows`, that need `most_rows` or one window."""
        self.order, self.episodes, self.window = order, episodes, window
        offsets = np.unique(np.concatenate([[0.0], *map(np.array, window.offsets_of.values())]))
        self._outermost: list[Any] = [offsets[0], offsets[-1]]
        if episodes.times is None:
            self._outermost = [int(of) for of in self._outermost]
        # Every row of a window is there, at its offset in rows.
        self.are_pieces = window.edges == "drop" and episodes.times is None
        self.anchors = self._anchors(offsets)
        ends = np.searchsorted(self.anchors, order.first_row + order.row_group_rows)
        # The anchors in the order of an epoch: numbered like rows, of the same row groups.
        self._order = RowOrder(np.diff(ends, prepend=0), order.options)
        if len(self.anchors):
            self.bounds = equal_bounds(
                len(self.anchors), self._anchors_of_block(block_rows, most_rows)
            )

    def rows(self, epoch: int, block: int) -> Int64Array:
        """Return the anchors of a block."""
        begin, end = self.bounds[block : block + 2].tolist()
        anchors = self.anchors[self._order.rows_between(epoch, begin, end)]
        return self.order.permuted(anchors, self.order.word(epoch, block))

    def needed(self, rows: Int64Array) -> Int64Array:
        """Return all rows from the first to the last of each window, ascending."""
        first, stop = self._spans(_ascending(rows))
        # The ends ascend too, so what a window adds begins where the one before ends.
        first[1:] = np.maximum(first[1:], stop[:-1])
        sizes = np.maximum(stop - first, 0)
        added: Int64Array = np.repeat(first - (np.cumsum(sizes) - sizes), sizes)
        return added + np.arange(len(added))

    def _spans(self, anchors: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the first row that each window needs, and the row after its last."""
        if self.are_pieces:
            return anchors + self._outermost[0], anchors + (self._outermost[1] + 1)
        parts = [
            part[:, None] + self.episodes.places(part, self._outermost)[0]
            for part in np.array_split(anchors, len(anchors) // _PART + 1)
        ]
        spans = np.concatenate(parts)
        return np.minimum(spans[:, 0], anchors), np.maximum(spans[:, 1], anchors) + 1

    def _anchors(self, offsets: NDArray[np.float64]) -> Int64Array:
        """Return the anchors, ascending."""
        episodes, stride = self.episodes, self.window.stride
        begins, ends = episodes.begins[:-1], episodes.begins[1:]
        if self.window.edges == "drop" and episodes.times is not None:
            return self._whole(offsets)
        if self.are_pieces:
            begins, ends = begins - int(offsets[0]), ends - int(offsets[-1])
        counts = np.maximum(-(-(ends - begins) // stride), 0)
        firsts = begins - (np.cumsum(counts) - counts) * stride
        found: Int64Array = np.repeat(firsts, counts)
        return found + np.arange(len(found)) * stride

    def _whole(self, offsets: NDArray[np.float64]) -> Int64Array:
        """Return the anchors with a row near each offset."""
        num_rows = int(self.episodes.begins[-1])
        parts = np.array_split(np.arange(num_rows), num_rows * len(offsets) // _PART + 1)
        are_whole = [self.episodes.places(part, offsets.tolist())[1].all(axis=1) for part in parts]
        rows = np.flatnonzero(np.concatenate(are_whole))
        number = np.arange(len(rows)) - np.searchsorted(rows, self.episodes.around(rows)[0])
        found: Int64Array = rows[number % self.window.stride == 0]
        return found

    def _anchors_of_block(self, block_rows: int, most_rows: int) -> int:
        first, stop = self._spans(self.anchors)
        longest = int((stop - first).max())
        added = stop - np.maximum(first, np.concatenate([first[:1], stop[:-1]]))
        total = np.concatenate([[0], np.cumsum(np.maximum(added, 0))])
        num_row_groups = np.count_nonzero(self._order.row_group_rows)
        wanted = max(block_rows, _LEAST_WINDOWS * longest) * len(self.anchors)
        low, high = 1, max(1, min(wanted // int(self.episodes.begins[-1]), len(self.anchors)))
        while low < high:
            middle = (low + high + 1) // 2
            # A window shares no row with the one before if another row group begins between.
            pieces = 2 + middle * num_row_groups // len(self.anchors)
            most = int((total[middle:] - total[:-middle]).max()) + pieces * longest
            low, high = (middle, high) if most <= most_rows else (low, middle - 1)
        return low


def _ascending(rows: Int64Array) -> Int64Array:
    first = int(rows.min())
    num_places = int(rows.max()) + 1 - first
    if num_places > _MARKS_PER_ROW * len(rows):
        return np.sort(rows)
    is_there = np.zeros(num_places, bool)
    is_there[rows - first] = True
    return np.flatnonzero(is_there) + first
