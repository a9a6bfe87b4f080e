"""Drawing from several sources in exact proportion: each stays within one draw of its share.

After t draws source i, of weight w_i, has been drawn c_i times with |c_i - t * w_i| < 1. So its
j-th draw, counted from 0, is one of the draws floor(j / w_i) to ceil((j + 1) / w_i) - 1: it is
open from the first of them and due by the last. Such a sequence always exists. One way is to take
the open draw that is due first, Jackson's rule (Baruah, Cohen, Plaxton and Varvel, "Proportionate
progress", 1996; this is their Pfair condition). Weights are exact fractions, so nothing drifts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

# A draw that is not the first due must leave room for all draws due within so many.
_HORIZON = 256
_BLOCK = 1024
# Part of the counter, so that these random words differ from those that permute row groups.
_PURPOSE = 2**32


class Proportion:
    """Weights as exact fractions `parts[i] / whole`."""

    def __init__(self, weights: Sequence[Fraction]) -> None:
        """Set the weights, which are above 0 and of any scale."""
        total = sum(weights)
        shares = [weight / total for weight in weights]
        self.whole = math.lcm(*(share.denominator for share in shares))
        self.parts = [int(share * self.whole) for share in shares]

    def open_from(self, source: int, count: int) -> int:
        """Return the first draw that may take a source that was drawn `count` times."""
        return count * self.whole // self.parts[source]

    def due_by(self, source: int, count: int) -> int:
        """Return the number of draws by which the source must be drawn once more."""
        return -(-(count + 1) * self.whole // self.parts[source])

    def room(self, counts: Sequence[int], end: int) -> int:
        """Return how many draws before `end` are free after all draws due by then."""
        due = sum(
            max(0, end * part // self.whole - count)
            for part, count in zip(self.parts, counts, strict=True)
        )
        return end - sum(counts) - due

    def granted(self, counts: Sequence[int], num: int, words: Sequence[int]) -> list[int]:
        """Return the counts after `num` more draws: those due by then, then those due first."""
        end = sum(counts) + num
        after = [
            max(count, end * part // self.whole)
            for part, count in zip(self.parts, counts, strict=True)
        ]
        due = [
            (self.due_by(source, count), words[source], source)
            for source, count in enumerate(after)
            if self.open_from(source, count) < end
        ]
        for _, _, source in sorted(due)[: end - sum(after)]:
            after[source] += 1
        return after


class Draws:
    """A random sequence of sources, the same for the same key, in exact proportion."""

    def __init__(
        self,
        proportion: Proportion,
        key: tuple[int, int],
        counts: Sequence[int] | None = None,
        num_before: int = 0,
    ) -> None:
        """Begin, or resume after some draws."""
        self._proportion = proportion
        self._key = key
        self.counts = [0] * len(proportion.parts) if counts is None else list(counts)
        self._num = sum(self.counts)
        self._num_before = num_before
        self._open_from = [proportion.open_from(i, c) for i, c in enumerate(self.counts)]
        self._due_by = [proportion.due_by(i, c) for i, c in enumerate(self.counts)]
        self._fill_rooms()
        self._words: list[int] = []
        self._words_of = -1

    def next(self) -> int:
        """Draw the next source and count the draw."""
        now, proportion = self._num, self._proportion
        begin = now - self._rooms_begin
        if begin + _HORIZON > len(self._rooms):
            self._fill_rooms()
            begin = 0
        rooms = self._rooms[begin : begin + _HORIZON]
        tightest = int(rooms.argmin())
        # Before the first end without room, only sources due by then may be drawn.
        limit = now + 1 + tightest if rooms[tightest] == 0 else now + _HORIZON
        is_open = [source for source, first in enumerate(self._open_from) if first <= now]
        safe = [source for source in is_open if self._due_by[source] <= limit]
        safe = safe or [min(is_open, key=self._due_by.__getitem__)]
        drawn = self._pick(safe)
        rooms[: max(0, self._due_by[drawn] - 1 - now)] -= 1
        self.counts[drawn] += 1
        self._num = now + 1
        self._open_from[drawn] = proportion.open_from(drawn, self.counts[drawn])
        self._due_by[drawn] = proportion.due_by(drawn, self.counts[drawn])
        if begin + _HORIZON < len(self._rooms):
            end = self._num + _HORIZON
            self._rooms[begin + _HORIZON] = proportion.room(self.counts, end)
        return drawn

    def _fill_rooms(self) -> None:
        """Compute the room before each of the next ends of draws."""
        ends = range(self._num + 1, self._num + 1 + _HORIZON)
        self._rooms: NDArray[np.int64] = np.zeros(_HORIZON + _BLOCK, dtype=np.int64)
        self._rooms[:_HORIZON] = [self._proportion.room(self.counts, end) for end in ends]
        self._rooms_begin = self._num

    def _pick(self, sources: Sequence[int]) -> int:
        if len(sources) == 1:
            return sources[0]
        parts = self._proportion.parts
        point = self._word() * sum(parts[source] for source in sources) >> 64
        for source in sources:
            if point < parts[source]:
                return source
            point -= parts[source]
        raise AssertionError(point)

    def _word(self) -> int:
        block, place = divmod(self._num_before + self._num, _BLOCK)
        if block != self._words_of:
            self._words_of = block
            self._words = random_words(self._key, block, _BLOCK)
        return self._words[place]


def random_words(key: tuple[int, int], block: int, count: int) -> list[int]:
    """Return numbers in `[0, 2**64)` that depend only on the arguments."""
    counter = np.array([0, block, 0, _PURPOSE], dtype=np.uint64)
    generator = np.random.Philox(key=np.array(key, dtype=np.uint64), counter=counter)
    words: list[int] = generator.random_raw(count).tolist()
    return words
