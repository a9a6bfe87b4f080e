"""The order in which a mix takes batches from its data sets: arithmetic on their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from torchparquet._impl.plan.draws import Draws, Proportion, random_words

Stopping = Literal["first_exhausted", "all_exhausted", "repeat"]

# Each round within an epoch of a mix adds this to the number of a data set's epoch.
ROUND_EPOCHS = 2**32
# Keeps the words that break ties between rows apart from those of draws.
_ROWS_BLOCK = 2**40


@dataclass(frozen=True)
class MixOptions:
    """The options that shape the order of a mix, together with the sizes of its data sets.

    Attributes:
        weights: Weight of each data set, in any scale; one of weight 0 is left out.
        batch_size: Rows of a batch that mixes rows; None if batches are those of the data sets.
    """

    weights: tuple[Fraction, ...]
    seed: int
    stopping: Stopping
    batch_size: int | None


@dataclass(frozen=True)
class MixProgress:
    """The progress of an epoch of a mix.

    Attributes:
        counts: Batches, or rows, of each active data set since the last one left.
        delivered: Batches of the present round of each data set; 0 if rows are mixed.
        over: True if a DataLoader worker has delivered its last batch of the epoch.
    """

    epoch: int
    active: tuple[int, ...]
    counts: tuple[int, ...]
    before: int = 0
    rounds: tuple[int, ...] = ()
    delivered: tuple[int, ...] = ()
    over: bool = False

    @staticmethod
    def begin(epoch: int, weights: Sequence[Fraction]) -> MixProgress:
        """Return the start of an epoch; data sets of weight 0 count as exhausted."""
        active = tuple(number for number, weight in enumerate(weights) if weight)
        rounds = tuple(int(not weight) for weight in weights)
        return MixProgress(epoch, active, (0,) * len(active), 0, rounds, (0,) * len(weights))

    @staticmethod
    def read(value: dict[str, Any]) -> MixProgress:
        """Return the progress in a dict by `to_dict`; older releases wrote more keys."""
        known = {name: item for name, item in value.items() if name != "sizes"}
        try:
            for name in ("active", "counts", "rounds", "delivered"):
                known[name] = tuple(known.get(name, ()))
            progress = MixProgress(**known)
        except TypeError as error:
            raise ValueError(f"the saved state of the mix is damaged: {error}") from None
        num = len(progress.rounds)
        lengths = [len(progress.counts), len(progress.delivered)]
        if lengths != [len(progress.active), num] or not set(progress.active) <= set(range(num)):
            raise ValueError(f"progress of a mix contradicts itself: {value}")
        return progress

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as JSON values."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @property
    def num_drawn(self) -> int:
        """Batches, or rows, of the epoch so far."""
        return self.before + sum(self.counts)

    def epoch_of(self, number: int) -> int:
        """Return the epoch of a data set that is its present round."""
        return self.epoch + self.rounds[number] * ROUND_EPOCHS

    def exhausted(self, numbers: Sequence[int]) -> MixProgress:
        """Return the progress after rounds of data sets have ended."""
        if not numbers:
            return self
        rounds = tuple(of + (number in numbers) for number, of in enumerate(self.rounds))
        return replace(self, rounds=rounds)

    def without(self, numbers: Sequence[int]) -> MixProgress:
        """Return the progress without some data sets; the others keep their proportion."""
        if not numbers:
            return self
        active = tuple(number for number in self.active if number not in numbers)
        return replace(self, active=active, before=self.num_drawn, counts=(0,) * len(active))


def with_item(items: tuple[Any, ...], index: int, item: Any) -> tuple[Any, ...]:
    """Return a tuple with one item replaced."""
    return (*items[:index], item, *items[index + 1 :])


class BatchOrder:
    """The data set of each batch; `next` is that of the next one, or None at the end."""

    def __init__(
        self, options: MixOptions, progress: MixProgress, num_batches: Sequence[int]
    ) -> None:
        """Continue at `progress`."""
        self._options = options
        self.progress = progress
        self.num_batches = list(num_batches)
        self.next: int | None = None
        if options.stopping == "repeat":
            self._begin_again()
        if options.stopping == "all_exhausted":
            self.progress = progress.without([of for of in progress.active if not self._left(of)])
        self._begin_draws()
        self._choose()

    def _begin_again(self) -> None:
        """Begin another round of data sets that have no batch for the rest in this world."""
        progress = self.progress
        empty = [number for number in progress.active if not self._left(number)]
        if empty and not progress.num_drawn:
            raise ValueError(f"data sets to be repeated must have batches, got {self.num_batches}")
        self.progress = progress = progress.exhausted(empty)
        if not all(progress.rounds):
            for number in empty:
                delivered = with_item(self.progress.delivered, number, 0)
                self.progress = replace(self.progress, delivered=delivered)
                self.num_batches[number] = max(1, self.num_batches[number])

    def count(self) -> None:
        """Count a batch of the data set `next`."""
        number, before = self.next, self.progress
        assert number is not None  # noqa: S101
        at = before.active.index(number)
        progress = MixProgress(
            before.epoch,
            before.active,
            with_item(before.counts, at, before.counts[at] + 1),
            before.before,
            before.rounds,
            with_item(before.delivered, number, before.delivered[number] + 1),
        )
        self.progress = progress
        if not self._left(number) and self._options.stopping != "first_exhausted":
            self.progress = progress = progress.exhausted([number])
            if self._options.stopping == "all_exhausted":
                self.progress = progress.without([number])
                self._begin_draws()
            elif not all(progress.rounds):
                delivered = with_item(progress.delivered, number, 0)
                self.progress = replace(progress, delivered=delivered)
        self._choose()

    def count_all(self) -> int:
        """Return the number of batches from here on, and go to the end."""
        num = 0
        while self.next is not None:
            self.count()
            num += 1
        return num

    def _left(self, number: int) -> int:
        return self.num_batches[number] - self.progress.delivered[number]

    def _begin_draws(self) -> None:
        progress = self.progress
        if progress.active:
            proportion = Proportion([self._options.weights[i] for i in progress.active])
            key = (self._options.seed, progress.epoch)
            self._draws = Draws(proportion, key, list(progress.counts), progress.before)

    def _choose(self) -> None:
        self.next = None
        if self.progress.active and not all(self.progress.rounds):
            drawn = self.progress.active[self._draws.next()]
            self.next = drawn if self._left(drawn) else None


def rows_granted(options: MixOptions, progress: MixProgress, num_rows: int) -> list[int]:
    """Return the number of the next `num_rows` rows that each active data set gives."""
    proportion = Proportion([options.weights[i] for i in progress.active])
    words = random_words(
        (options.seed, progress.epoch), _ROWS_BLOCK + progress.num_drawn, len(progress.active)
    )
    after = proportion.granted(list(progress.counts), num_rows, words)
    return [new - old for new, old in zip(after, progress.counts, strict=True)]


def num_row_batches(options: MixOptions, progress: MixProgress, left: Sequence[int]) -> int:
    """Return the number of batches of mixed rows from `progress` on."""
    batch_size = options.batch_size
    assert batch_size is not None  # noqa: S101
    if options.stopping == "all_exhausted":
        return -(-sum(left) // batch_size)
    ends = [count + rows for count, rows in zip(progress.counts, left, strict=True)]
    has_ended = [progress.rounds[number] > 0 for number in progress.active]
    num = 0
    while True:
        pairs = list(zip(progress.counts, ends, strict=True))
        reached = [old or n >= end for old, (n, end) in zip(has_ended, pairs, strict=True)]
        if options.stopping == "repeat" and all(reached):
            return num
        granted = rows_granted(options, progress, batch_size)
        after = tuple(old + new for old, new in zip(progress.counts, granted, strict=True))
        if options.stopping == "first_exhausted" and any(
            count > end for count, end in zip(after, ends, strict=True)
        ):
            return num
        num += 1
        progress = replace(progress, counts=after)
