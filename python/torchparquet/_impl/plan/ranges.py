"""Row ranges in order, of which epochs and shares are made."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.plan.plan_options import Int64Array

# A damaged footer may claim so many rows that their pieces would not fit in memory. The bound is
# this many pieces, 250 bytes each, plus some for each range.
_MAX_PIECES = 1 << 17
_MAX_PIECES_PER_RANGE = 16


@dataclass(frozen=True, eq=False)
class Arrays:
    """Arrays `[n]` of one length, by name."""

    def arrays(self) -> tuple[Any, ...]:
        """Return all arrays."""
        return tuple(getattr(self, one.name) for one in fields(self))

    def pick(self, which: slice | NDArray[np.intp] | NDArray[np.bool_]) -> Self:
        """Return the entries of these indices, in their order, or those that are marked."""
        return type(self)(*(array[which] for array in self.arrays()))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the entries of all parts in turn; at least one."""
        return cls(*map(np.concatenate, zip(*(part.arrays() for part in parts), strict=True)))


@dataclass(frozen=True, eq=False)
class Ranges(Arrays):
    """Row ranges in order, one array `[n]` per property; rows are counted across them."""

    row_group: Int64Array
    row_begin: Int64Array
    num_rows: Int64Array
    valid: NDArray[np.bool_]  # False for repeats of rows that some share reads too

    @staticmethod
    def none() -> Ranges:
        """Return an empty sequence of ranges."""
        empty = np.zeros(0, dtype=np.int64)
        return Ranges.whole(empty, empty)

    @staticmethod
    def whole(row_group: Int64Array, num_rows: Int64Array) -> Ranges:
        """Return whole row groups, int64 `[n]` each."""
        return Ranges(row_group, np.zeros_like(num_rows), num_rows, np.ones(len(num_rows), bool))

    @cached_property
    def ends(self) -> Int64Array:
        """The number of rows up to the end of each range, int64 `[n]`."""
        return np.cumsum(self.num_rows)

    def rows(self, begin: int, end: int) -> Ranges:
        """Return the ranges of rows `[begin, end)`; the first and last one are cut to fit.

        If `begin` is 0, leading empty ranges stay, so that chunks keep their positions.
        """
        if begin >= end:
            return self.pick(slice(0))
        first = int(np.searchsorted(self.ends, begin, side="right")) if begin else 0
        stop = int(np.searchsorted(self.ends, end, side="left")) + 1
        row_begin, num_rows = self.row_begin[first:stop].copy(), self.num_rows[first:stop].copy()
        skipped = begin - (self.ends[first] - num_rows[0])
        row_begin[0] += skipped
        num_rows[0] -= skipped
        num_rows[-1] -= self.ends[stop - 1] - end
        return Ranges(self.row_group[first:stop], row_begin, num_rows, self.valid[first:stop])

    def cut_at(self, bounds: Int64Array) -> Ranges:
        """Return the same rows, cut also after these numbers of rows; without empty ranges."""
        ends = np.unique(np.concatenate([self.ends, bounds]))
        ends = ends[(ends > 0) & (ends <= self.ends[-1:].sum())]
        source = np.searchsorted(self.ends, ends)
        cut, num_rows = self.pick(source), np.diff(ends, prepend=0)
        skipped = (ends - num_rows) - (self.ends - self.num_rows)[source]
        return replace(cut, row_begin=cut.row_begin + skipped, num_rows=num_rows)

    def then(self, other: Ranges) -> Ranges:
        """Return these ranges followed by those of `other`."""
        return Ranges.joined([self, other])

    def without_empty(self) -> Ranges:
        """Return the ranges that have rows."""
        return self.pick(np.flatnonzero(self.num_rows))

    def without_empty_tail(self) -> Ranges:
        """Return the ranges up to the last that has rows."""
        filled = np.flatnonzero(self.num_rows)
        return self.pick(slice(filled[-1] + 1 if filled.size else 0))

    def repeated(self, num_rows: int) -> Ranges:
        """Return `num_rows` rows, in repeated rounds of these; none is valid."""
        rounds, rest = divmod(num_rows, int(self.ends[-1]))
        ranges = self.pick(np.tile(np.arange(len(self.ends)), rounds)).then(self.rows(0, rest))
        return replace(ranges, valid=np.zeros_like(ranges.valid))

    def cut_longer_than(self, bound: int, except_for: NDArray[np.bool_] | None = None) -> Ranges:
        """Return the same rows; ranges of more than `bound` rows are cut into near-equal ones."""
        too_long = self.num_rows > bound
        if except_for is not None:
            too_long &= ~except_for
        if not too_long.any():
            return self
        pieces = np.where(too_long, -(-self.num_rows // bound), 1)
        most = _MAX_PIECES + _MAX_PIECES_PER_RANGE * len(pieces)
        if pieces.sum(dtype=np.float64) > most:
            raise ValueError(
                f"a row group of {int(self.num_rows.max())} rows is too large to be permuted in "
                f"ranges of {bound} rows; shuffle_window=0 permutes row groups only"
            )
        return self._cut(pieces)

    def cut_into(self, count: int) -> Ranges:
        """Return `count` ranges of the same rows; the largest are cut into near-equal pieces.

        `longest` is the least bound for which cutting every range into pieces of at most
        `longest` rows needs at most `count` pieces. Remaining pieces go to the first ranges that a
        bound of `longest - 1` would cut further. `count` must be at least the number of non-empty
        ranges and at most the number of rows. Empty ranges are dropped.
        """

        def pieces_within(bound: int) -> Int64Array:
            return -(-self.num_rows // bound)

        by_size = np.sort(self.num_rows)[::-1]
        low, high, spare = 1, int(by_size[0]), count - np.count_nonzero(by_size)
        if spare < len(by_size):
            # At most `spare` ranges can be cut, so the next largest range fits the bound whole.
            # A bound of half the largest cuts no range more than once.
            low = max(int(by_size[spare]), 1)
            high = max(low, -(-high // 2))
        bounds = range(low, high + 1)
        longest = bounds[bisect_left(bounds, True, key=lambda b: pieces_within(b).sum() <= count)]
        pieces = pieces_within(longest)
        further = pieces_within(max(longest - 1, 1)) - pieces
        pieces += np.clip(count - pieces.sum() - (np.cumsum(further) - further), 0, further)
        return self._cut(pieces)

    def _cut(self, pieces: Int64Array) -> Ranges:
        """Return each range `i` cut into `pieces[i]` near-equal ones, larger ones first."""
        source = np.repeat(np.arange(len(pieces)), pieces)
        place = np.arange(len(source)) - (np.cumsum(pieces) - pieces)[source]
        size, larger = np.divmod(self.num_rows[source], pieces[source])
        begin = self.row_begin[source] + place * size + np.minimum(place, larger)
        return Ranges(self.row_group[source], begin, size + (place < larger), self.valid[source])
