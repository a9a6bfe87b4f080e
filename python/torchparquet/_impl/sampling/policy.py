"""An epoch as samples, each the number of a row, in blocks that the plan deals like row groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.native import keyed_rows, window_order
from torchparquet._impl.plan.order import epoch_order, philox
from torchparquet._impl.plan.plan_options import Int64Array, PlanOptions

# Parts of the counter, so that these random words differ from those of the plan.
_ORDER, _OFFSETS, _KEYS = 4, 5, 6
# Beyond so many rows, an order is not sorted by random words but computed row by row.
_SORTED_ROWS = 1 << 16
_NUM_ROUNDS = 6
_LARGEST_BLOCK, _MANY_BLOCKS = 1 << 14, 64


@dataclass(frozen=True, eq=False)
class RowOrder:
    """The rows of all row groups, in an order of row groups that differs by epoch if shuffled.

    Rows are numbered without those that are not selected. A place is an index into the order.
    """

    row_group_rows: Int64Array
    options: PlanOptions

    @property
    def first_row(self) -> Int64Array:
        """The number of the first row of each row group, int64 `[G]`."""
        return np.cumsum(self.row_group_rows) - self.row_group_rows

    def row_groups(self, epoch: int) -> Int64Array:
        """Return the row groups in the order of an epoch, int64 `[G]`."""
        return epoch_order(len(self.row_group_rows), replace(self.options, epoch=epoch))

    def rows(self, row_groups: Int64Array) -> Int64Array:
        """Return the numbers of all rows of row groups, in their order."""
        sizes = self.row_group_rows[row_groups]
        firsts = self.first_row[row_groups] - (np.cumsum(sizes) - sizes)
        return np.repeat(firsts, sizes) + np.arange(int(sizes.sum()))

    def rows_between(self, epoch: int, begin: int, end: int) -> Int64Array:
        """Return the numbers of the rows at places `[begin, end)` of an epoch."""
        order = self.row_groups(epoch)
        ends = np.cumsum(self.row_group_rows[order])
        first = int(np.searchsorted(ends, begin, side="right"))
        stop = int(np.searchsorted(ends, end, side="left")) + 1
        skipped = begin - int(ends[first] - self.row_group_rows[order[first]])
        return self.rows(order[first:stop])[skipped : skipped + end - begin]

    def word(self, epoch: int, place: int) -> int:
        """Return a random word of a block; without `shuffle` the same in each epoch."""
        of = replace(self.options, epoch=epoch if self.options.shuffle else 0)
        return int(philox(of, place, 0, _ORDER).random_raw(1)[0])

    def offset(self, epoch: int, of: int, bound: int) -> int:
        """Return a random number below `bound`, another one in each epoch."""
        word = philox(replace(self.options, epoch=epoch), of, 0, _OFFSETS).random_raw(1)[0]
        return int(word) * bound >> 64

    def permuted(self, rows: Int64Array, key: int) -> Int64Array:
        """Return rows in a random order of a key; as they are without `shuffle`."""
        return rows[window_order(key, len(rows))] if self.options.shuffle else rows


class Policy(ABC):
    """A rule by which an epoch has its samples.

    Attributes:
        order: The rows that there are.
        bounds: int64 `[b + 1]`, the first sample of each block, and the number of samples.
        together: Samples that are dealt together: the bounds are multiples.
        rows_of_unit: Samples of what the plan counts: 1, or those of a batch.
        most_threads: Threads that may call `rows` at once, as each takes memory.
        rules: Values that differ for other samples of the same rows, as JSON.
    """

    order: RowOrder
    bounds: Int64Array
    together = 1
    rows_of_unit = 1
    most_threads = 64
    rules: list[Any]

    def begin(self, epoch: int) -> None:  # noqa: B027  # most have nothing to do
        """Make what all blocks of an epoch need; after that, several threads may call `rows`."""

    @abstractmethod
    def rows(self, epoch: int, block: int) -> Int64Array:
        """Return the rows of a block in order, int64; the same in every process."""

    def part(self, epoch: int, block: int, begin: int, end: int) -> Int64Array:
        """Return the rows of a block at places `[begin, end)`."""
        return self.rows(epoch, block)[begin:end]

    def chosen(self, epoch: int, block: int) -> Int64Array:
        """Return the rows of a block in any order."""
        return self.rows(epoch, block)

    def needed(self, rows: Int64Array) -> Int64Array:
        """Return the rows that are read for samples of a block; one may be there twice."""
        return rows

    @property
    def units(self) -> Int64Array:
        """The samples, or batches, of each block, int64 `[b]`."""
        return -(-np.diff(self.bounds) // self.rows_of_unit)


def equal_bounds(num_samples: int, block_rows: int) -> Int64Array:
    """Return the bounds of blocks of one size; the last may be shorter."""
    return np.append(np.arange(0, num_samples, block_rows, dtype=np.int64), num_samples)


class GlobalOrder(Policy):
    """All rows once, in a permutation of all of them that each epoch draws anew.

    With `window_rows`, blocks of epoch 0 are neighbours in the order of row groups instead.
    """

    def __init__(self, order: RowOrder, window_rows: int = 0) -> None:
        """Cut the permutation into blocks, which are small where rows are few."""
        self.order = order
        self.num_rows = int(order.row_group_rows.sum())
        small = max(1, min(_LARGEST_BLOCK, self.num_rows // _MANY_BLOCKS))
        self.block_rows = window_rows or small
        self.bounds = equal_bounds(self.num_rows, self.block_rows)
        self._has_windows = window_rows > 0
        self.rules = ["global", *["windows first"][: self._has_windows]]
        # Of the latest epoch the keys, or its rows in order; or the rows of the latest window.
        self._latest: tuple[tuple[int, int], NDArray[Any]] = (-1, 0), np.zeros(0, np.int64)

    def is_by_windows(self, epoch: int) -> bool:
        """True if the blocks of an epoch are windows."""
        return self._has_windows and epoch == 0

    def rows(self, epoch: int, block: int) -> Int64Array:
        """Return the rows of a block in order, int64."""
        return self.part(epoch, block, 0, int(np.diff(self.bounds)[block]))

    def part(self, epoch: int, block: int, begin: int, end: int) -> Int64Array:
        """Return the rows of a block at places `[begin, end)`, int64."""
        first, stop = self.bounds[block : block + 2].tolist()
        by_windows = self.is_by_windows(epoch)
        of = epoch, block if by_windows else 0
        latest, known = self._latest  # once, as another thread may have another epoch
        if latest != of:
            if by_windows:
                near = self.order.rows_between(epoch, first, stop)
                known = self.order.permuted(near, self.order.word(epoch, block))
            else:
                known = self._of_epoch(epoch)
            self._latest = of, known
        if by_windows:
            return known[begin:end]
        if self.num_rows > _SORTED_ROWS:
            rows: Int64Array = keyed_rows(known, self.num_rows, first + begin, end - begin)
            return rows
        return known[first + begin : first + end]

    def _of_epoch(self, epoch: int) -> NDArray[Any]:
        """Return the keys of an epoch, or all its rows in order."""
        words = philox(replace(self.order.options, epoch=epoch), 0, 0, _KEYS)
        if self.num_rows > _SORTED_ROWS:
            return words.random_raw(_NUM_ROUNDS)
        return np.argsort(words.random_raw(self.num_rows), kind="stable").astype(np.int64)
