"""Rows in proportion to weights, and classes in proportion, by systematic resampling.

The rows lie one after the other on a line, each as long as the number of samples that is expected
of it. Points at a distance of 1, from a random first one, take the rows that they hit: floor or
ceiling of the expectation. A block is a part of the line, so its rows are neighbours in the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.plan.draws import Draws, Proportion
from torchparquet._impl.plan.plan_options import Int64Array
from torchparquet._impl.sampling.policy import Policy, RowOrder, equal_bounds

# Expectations are counted in these, so that nothing drifts.
_ONE = 2**32
_MOST_SAMPLES = 2**30
_MOST_ROUND = 10_000
_NEAR = 1e-12


class Weighted(Policy):
    """Rows as often as their weights say."""

    def __init__(
        self, order: RowOrder, weights: NDArray[np.float64], num_samples: int, block_rows: int
    ) -> None:
        """Take checked weights, float64 `[n]`."""
        self.order = order
        self.bounds = equal_bounds(num_samples, block_rows)
        # A power of 2, so that no sum overflows and no bit is lost.
        weights = np.ldexp(weights, -np.frexp(weights.max())[1])
        lengths = weights * (num_samples / weights.sum() * _ONE)
        self._lengths: Int64Array = np.rint(lengths, out=lengths).astype(np.int64)
        # By rounding, the line is up to a fraction of a sample too short or too long.
        longest = int(self._lengths.argmax())
        self._lengths[longest] += num_samples * _ONE - int(self._lengths.sum())
        firsts = order.first_row
        has_rows = order.row_group_rows > 0
        self._of_row_group = np.zeros(len(firsts), np.int64)
        self._of_row_group[has_rows] = np.add.reduceat(self._lengths, firsts[has_rows])

    def rows(self, epoch: int, block: int) -> Int64Array:
        """Return the rows that the points of a block hit."""
        order = self.order
        first = _ONE - order.offset(epoch, 0, _ONE)
        begin, end = self.bounds[block : block + 2].tolist()
        row_groups = order.row_groups(epoch)
        ends = np.cumsum(self._of_row_group[row_groups])
        points = np.array([begin, end - 1]) * _ONE + first
        low, high = np.searchsorted(ends, points).tolist()
        near = order.rows(row_groups[low : high + 1])
        before = int(ends[low] - self._of_row_group[row_groups[low]])
        # A row is hit by the points up to its end, less those up to the end of the row before.
        passed = self._lengths[near]
        np.cumsum(passed, out=passed)
        passed += before - first + _ONE
        passed //= _ONE
        np.clip(passed, begin, end, out=passed)
        hits = np.diff(passed, prepend=begin)
        return order.permuted(np.repeat(near, hits), order.word(epoch, block))


class Classes(Policy):
    """Rows of each class in exact proportion, every `together` samples and nearly so in between."""

    def __init__(
        self,
        order: RowOrder,
        classes: NDArray[np.uint16],
        parts: Sequence[int],
        num_rounds: int,
        block_rows: int,
    ) -> None:
        """Take the class of each row, `len(parts)` for none, and the samples of a round."""
        self.order, self._classes, self._parts = order, classes, parts
        self.together = sum(parts)
        block_rows = max(1, block_rows // self.together) * self.together
        self.bounds = equal_bounds(num_rounds * self.together, block_rows)
        self._num_rounds = num_rounds
        width = len(parts) + 1
        sizes = order.row_group_rows
        cell = np.repeat(np.arange(len(sizes)) * width, sizes) + classes
        counts = np.bincount(cell, minlength=len(sizes) * width)
        self._counts = counts.reshape(-1, width)[:, :-1]  # [G, C]
        self._totals: list[int] = self._counts.sum(axis=0).tolist()
        self._latest: tuple[int, NDArray[np.intp]] | None = None

    def begin(self, epoch: int) -> None:
        """Draw the pattern."""
        self._pattern(epoch)

    def rows(self, epoch: int, block: int) -> Int64Array:
        """Return the rows of a block, whose classes follow one pattern."""
        order, (begin, end) = self.order, (self.bounds[block : block + 2] // self.together)
        rounds = int(end - begin)
        pattern = self._pattern(epoch)
        found = np.empty((rounds, self.together), np.int64)
        row_groups = order.row_groups(epoch)
        for number, part in enumerate(self._parts):
            samples = np.arange(int(begin) * part, int(end) * part)
            offset = order.offset(epoch, number, self._totals[number])
            place = (samples * self._totals[number] + offset) // (self._num_rounds * part)
            ends = np.cumsum(self._counts[row_groups, number])
            low, high = np.searchsorted(ends, place[[0, -1]], side="right").tolist()
            near = order.rows(row_groups[low : high + 1])
            own = near[self._classes[near] == number]
            before = int(ends[low] - self._counts[row_groups[low], number])
            key = order.word(epoch, block * len(self._parts) + number)
            chosen = order.permuted(own[place - before], key)
            found[:, pattern == number] = chosen.reshape(rounds, part)
        return found.reshape(-1)

    def _pattern(self, epoch: int) -> NDArray[np.intp]:
        """Return the class of each sample of a round, never a sample off its proportion."""
        latest = self._latest
        if latest is None or latest[0] != epoch:
            options = self.order.options
            proportion = Proportion([Fraction(part) for part in self._parts])
            draws = Draws(proportion, (options.seed, epoch if options.shuffle else 0))
            latest = epoch, np.array([draws.next() for _ in range(self.together)])
            self._latest = latest
        return latest[1]


def round_of(proportions: Sequence[float]) -> list[int]:
    """Return the samples of each class in the shortest round that has the proportions exactly."""
    shares = [Fraction(str(of)) for of in proportions]
    exact = [share / sum(shares) for share in shares]
    shares = [share.limit_denominator(_MOST_ROUND) for share in exact]
    # Thirds as floats are thirds.
    is_near = all(abs(one - near) < _NEAR for one, near in zip(exact, shares, strict=True))
    if is_near and sum(shares) == 1 and all(shares):
        parts = Proportion(shares).parts
        if sum(parts) <= _MOST_ROUND:
            return parts
    raise ValueError(
        f"proportions must be exact in {_MOST_ROUND:,} samples or fewer, round them: "
        f"{list(proportions)!r:.200}"
    )


def checked_length(length: int, num_rows: int) -> int:
    """Check a number of samples, so that no product of it overflows."""
    most: Any = min(_MOST_SAMPLES, 2**62 // max(num_rows, 1))
    if length > most:
        raise ValueError(f"an epoch must have {most:,} samples or fewer, got length={length}")
    return length
