"""How long the waits for single batches were: a fixed histogram, and the longest one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import log2
from typing import Any

_NUM_BUCKETS = 64
_PER_OCTAVE = 2
_FIRST_END = 1e-6  # seconds; the last bucket begins above half an hour
# The lengths of `Waits` that metrics have as plain numbers.
LENGTHS = ("p50_seconds", "p95_seconds", "p99_seconds", "max_seconds")


def bucket_end(bucket: int) -> float:
    """Return the seconds at which a bucket ends."""
    return float(_FIRST_END * 2 ** (bucket / _PER_OCTAVE))


@dataclass(frozen=True)
class Waits:
    """The loop's waits for batches, each one counted; a batch that was ready waited for nothing.

    Attributes:
        counts: Waits by length. Bucket 0 has those below a microsecond; each further one is longer
            by a factor of the square root of 2, so that quantiles are exact to 19 %.
        max_seconds: The longest wait; of a difference, at most as long as its bucket's end.
    """

    counts: tuple[int, ...] = (0,) * _NUM_BUCKETS
    max_seconds: float = 0.0

    @property
    def p50_seconds(self) -> float:
        """The median wait."""
        return self.quantile(0.5)

    @property
    def p95_seconds(self) -> float:
        """The wait that 5 % of the batches exceed."""
        return self.quantile(0.95)

    @property
    def p99_seconds(self) -> float:
        """The wait that 1 % of the batches exceed."""
        return self.quantile(0.99)

    def quantile(self, q: float) -> float:
        """Return the seconds that a part `q`, from 0 to 1, of the waits does not exceed.

        Raises:
            ValueError: `q` is not from 0 to 1.
        """
        if not 0 <= q <= 1:
            raise ValueError(f"q must be from 0 to 1, got {q}")
        wanted = q * sum(self.counts)
        sums = accumulate(self.counts)
        bucket = next((n for n, so_far in enumerate(sums) if so_far >= wanted > 0), 0)
        # The middle of a bucket on a scale of logarithms is a quarter of an octave below its end.
        middle = bucket_end(bucket) / 2 ** (0.5 / _PER_OCTAVE)
        return min(middle, self.max_seconds) if bucket else 0.0

    def added(self, other: Waits, sign: int = 1) -> Waits:
        """Return the waits of both, or those that `other` does not have."""
        pairs = zip(self.counts, other.counts, strict=True)
        counts = tuple(max(0, a + sign * b) for a, b in pairs)
        longest = max(self.max_seconds, other.max_seconds)
        if sign < 0 and self.max_seconds <= other.max_seconds:
            last = max((n for n, count in enumerate(counts) if count), default=-1)
            longest = min(self.max_seconds, bucket_end(last)) if last >= 0 else 0.0
        return Waits(counts, longest)


@dataclass
class Gathered:
    """What a stage delivered that the reader has not read, and how long the loop waited for it."""

    rows: int = 0
    seconds: float = 0.0


class WaitCounter:
    """Counts the waits for batches of one stream, and remembers what the longest was for."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.counts = [0] * _NUM_BUCKETS
        self.max_seconds = 0.0
        self.late_seconds = 0.0  # the longest since somebody asked what it was for
        self.late_for: Any = None

    def count(self, seconds: float, what: object) -> None:
        """Count a wait for `what`."""
        bucket = int(_PER_OCTAVE * log2(seconds / _FIRST_END)) + 1 if seconds > _FIRST_END else 0
        self.counts[min(bucket, _NUM_BUCKETS - 1)] += 1
        if seconds > self.late_seconds:
            self.late_seconds, self.late_for = seconds, what
            if seconds > self.max_seconds:
                self.max_seconds = seconds

    def take_longest(self) -> tuple[float, Any]:
        """Return the longest wait since the last call, and what it was for; None for nothing."""
        taken = self.late_seconds, self.late_for
        self.late_seconds, self.late_for = 0.0, None
        return taken

    def waits(self, num_batches: int) -> Waits:
        """Return the waits for so many batches: those that were at hand are not counted."""
        ready = max(0, num_batches - sum(self.counts))
        return Waits((self.counts[0] + ready, *self.counts[1:]), self.max_seconds)
