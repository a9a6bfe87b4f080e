"""In which order a mix takes batches from its data sets: arithmetic on their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

from torchparquet.plan.draws import Draws, Proportion, random_words

Stopping = Literal["first_exhausted", "all_exhausted", "repeat"]

# What a round within an epoch of a mix adds to the number of a data set's epoch.
ROUND_EPOCHS = 2**32
# Keeps the words that decide between equal rows apart from those of draws.
_ROWS_BLOCK = 2**40


@dataclass(frozen=True)
class MixOptions:
    """All that shapes the order of a mix beside the sizes of its data sets.

    Attributes:
        weights: Of each data set, above 0, in any scale.
        seed: Of the draws.
        stopping: What happens when a data set has no batch left.
        batch_size: Rows of a batch with rows of all data sets; None for their own batches.
    """

    weights: tuple[Fraction, ...]
    seed: int
    stopping: Stopping
    batch_size: int | None


@dataclass
class MixProgress:
    """How far an epoch of a mix is.

    Attributes:
        epoch: Of the mix.
        active: The data sets that are still in the mix.
        counts: Batches, or rows, of each of those since one left last.
        before: Batches, or rows, of all before that.
        rounds: How often each data set has been exhausted.
        delivered: Batches of the present round of each data set; 0 where rows are mixed.
        over: Whether a DataLoader worker has delivered its last batch of the epoch.
    """

    epoch: int
    active: list[int]
    counts: list[int]
    before: int = 0
    rounds: list[int] = field(default_factory=list)
    delivered: list[int] = field(default_factory=list)
    over: bool = False

    @staticmethod
    def begin(epoch: int, num_sources: int) -> MixProgress:
        """Return the start of an epoch."""
        zeros = [0] * num_sources
        sources = list(range(num_sources))
        return MixProgress(epoch, sources, list(zeros), 0, list(zeros), list(zeros))

    @staticmethod
    def read(value: dict[str, Any]) -> MixProgress:
        """Return what `dataclasses.asdict` made; an older one has the sizes of the data sets.

        Raises:
            ValueError: It is something else.
        """
        known = {name: item for name, item in value.items() if name != "sizes"}
        try:
            progress = MixProgress(**known).copied()
        except TypeError as error:
            raise ValueError(f"progress of a mix is not what it was: {error}") from None
        num = len(progress.rounds)
        lengths = [len(progress.counts), len(progress.delivered)]
        if lengths != [len(progress.active), num] or not set(progress.active) <= set(range(num)):
            raise ValueError(f"progress of a mix contradicts itself: {value}")
        return progress

    def copied(self) -> MixProgress:
        """Return a copy that can go on by itself."""
        lists = (self.active, self.counts, self.rounds, self.delivered)
        active, counts, rounds, delivered = map(list, lists)
        return replace(self, active=active, counts=counts, rounds=rounds, delivered=delivered)

    @property
    def num_drawn(self) -> int:
        """Batches, or rows, of the epoch so far."""
        return self.before + sum(self.counts)

    def epoch_of(self, source: int) -> int:
        """Return the number that the present round has among the epochs of a data set."""
        return self.epoch + self.rounds[source] * ROUND_EPOCHS

    def leave(self, sources: Sequence[int]) -> None:
        """Take data sets out of the mix; the others go on in their proportion."""
        if sources:
            self.active = [source for source in self.active if source not in sources]
            self.before = self.num_drawn
            self.counts = [0] * len(self.active)


class BatchOrder:
    """From which data set each batch comes.

    Attributes:
        source: The data set of the next batch; None when the epoch is over.
        num_batches: Of the present round of each data set.
        begun_again: Data sets that begin another round before the next batch, because this world
            has no batch for what is left of theirs.
    """

    def __init__(self, options: MixOptions, progress: MixProgress, num_batches: list[int]) -> None:
        """Go on at `progress`, which is kept up to date.

        Raises:
            ValueError: A data set to be repeated has no batch.
        """
        self._options = options
        self._progress = progress
        self.num_batches = list(num_batches)
        self.source: int | None = None
        self.begun_again: list[int] = []
        if options.stopping == "repeat":
            self._begin_again()
        if options.stopping == "all_exhausted":
            progress.leave([source for source in progress.active if not self._left(source)])
        self._begin_draws()
        self._choose()

    def _begin_again(self) -> None:
        progress = self._progress
        empty = [source for source in progress.active if not self._left(source)]
        if empty and not progress.num_drawn:
            raise ValueError(f"data sets to be repeated must have batches, got {self.num_batches}")
        for source in empty:
            progress.rounds[source] += 1
        if not all(progress.rounds):
            for source in empty:
                progress.delivered[source] = 0
                self.num_batches[source] = max(1, self.num_batches[source])
            self.begun_again = empty

    def count(self) -> bool:
        """Count a batch of `source`; return whether that data set begins another round."""
        source, progress = self.source, self._progress
        assert source is not None  # noqa: S101
        progress.delivered[source] += 1
        progress.counts[progress.active.index(source)] += 1
        again = False
        if not self._left(source) and self._options.stopping != "first_exhausted":
            progress.rounds[source] += 1
            if self._options.stopping == "all_exhausted":
                progress.leave([source])
                self._begin_draws()
            elif not all(progress.rounds):
                progress.delivered[source] = 0
                again = True
        self._choose()
        return again

    def count_all(self) -> int:
        """Return how many batches there are from here on, and go to the end."""
        num = 0
        while self.source is not None:
            self.count()
            num += 1
        return num

    def _left(self, source: int) -> int:
        return self.num_batches[source] - self._progress.delivered[source]

    def _begin_draws(self) -> None:
        progress = self._progress
        if progress.active:
            proportion = Proportion([self._options.weights[i] for i in progress.active])
            key = (self._options.seed, progress.epoch)
            self._draws = Draws(proportion, key, progress.counts, progress.before)

    def _choose(self) -> None:
        self.source = None
        if self._progress.active and not all(self._progress.rounds):
            drawn = self._progress.active[self._draws.next()]
            self.source = drawn if self._left(drawn) else None


class RowOrder:
    """How many rows of each data set the next batch has."""

    def __init__(self, options: MixOptions, progress: MixProgress) -> None:
        """Go on at `progress`."""
        self._options = options
        self._progress = progress

    def granted(self, num_rows: int) -> list[int]:
        """Return how many of the next `num_rows` rows each active data set gives."""
        progress = self._progress
        proportion = Proportion([self._options.weights[i] for i in progress.active])
        block = _ROWS_BLOCK + progress.num_drawn
        key = (self._options.seed, progress.epoch)
        words = random_words(key, block, len(progress.active))
        after = proportion.granted(progress.counts, num_rows, words)
        return [new - old for new, old in zip(after, progress.counts, strict=True)]

    def count_all(self, left: Sequence[int]) -> int:
        """Return how many batches there are from here on, and go to the end.

        Args:
            left: Rows that are left of the present round of each data set.
        """
        batch_size, progress = self._options.batch_size, self._progress
        assert batch_size is not None  # noqa: S101
        if self._options.stopping == "all_exhausted":
            return -(-sum(left[source] for source in progress.active) // batch_size)
        ends = [count + rows for count, rows in zip(progress.counts, left, strict=True)]
        num = 0
        while True:
            reached = [
                rounds > 0 or count >= end
                for rounds, count, end in zip(progress.rounds, progress.counts, ends, strict=True)
            ]
            if self._options.stopping == "repeat" and all(reached):
                return num
            granted = self.granted(batch_size)
            after = [old + new for old, new in zip(progress.counts, granted, strict=True)]
            beyond = [count > end for count, end in zip(after, ends, strict=True)]
            if self._options.stopping == "first_exhausted" and any(beyond):
                return num
            num += 1
            progress.counts = after
