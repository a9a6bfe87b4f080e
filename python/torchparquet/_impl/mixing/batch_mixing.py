"""A mix whose batches are those of its data sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.mixing.members import Mixable, batches_left, begin_epoch, go_back, mark_of
from torchparquet._impl.mixing.mix_order import BatchOrder, MixOptions, MixProgress, with_item
from torchparquet._impl.mixing.mixture import Mixture


@dataclass(frozen=True)
class BatchPosition:
    """The position of a mix of batches.

    Attributes:
        epochs: The epoch of each data set. If `progress` has another one, the data set has ended
            and begins its next round.
        marks: The position of each data set's iterator; None if it has not begun or cannot go back.
    """

    progress: MixProgress
    num_batches: tuple[int, ...]
    epochs: tuple[int, ...]
    marks: tuple[Any, ...]


class BatchMixture(Mixture[BatchPosition]):
    """One epoch of a mix whose batches are those of its data sets."""

    def __init__(
        self,
        options: MixOptions,
        datasets: Sequence[Mixable],
        progress: MixProgress,
        states: list[Any] | None,
        source_key: str | None,
    ) -> None:
        """Continue at `progress` with data sets at `states`; None for the start of an epoch."""
        super().__init__(options, datasets, progress, source_key)
        _load(datasets, progress, states)
        # The length depends on the iteration under way, so these come first.
        self._iterator_of = {number: iter(datasets[number]) for number in progress.active}
        numbers = range(len(datasets))
        epochs = tuple(progress.epoch_of(number) for number in numbers)
        # The epochs of the iterators, and the starts of those that have begun.
        self._epoch_of = dict(enumerate(epochs))
        self._first_marks: dict[int, Any] = {}
        (self._begun_with,) = _num_batches(datasets, progress, 0)
        self._order = BatchOrder(options, progress, self._begun_with)
        self.course.position = BatchPosition(
            self._order.progress, tuple(self._order.num_batches), epochs, (None,) * len(datasets)
        )
        self._settled()

    @staticmethod
    def count(
        options: MixOptions,
        datasets: Sequence[Mixable],
        progress: MixProgress,
        states: list[Any] | None,
        num_workers: int,
    ) -> int:
        """Return the batches of all workers' epoch; see `Mixture.count`."""
        _load(datasets, progress, states)
        per_worker = _num_batches(datasets, progress, num_workers)
        return _length(options, progress, per_worker)

    def _count_from(self, begin: MixProgress) -> int:
        return _length(self._options, begin, [self._begun_with])

    def _go_to(self, position: BatchPosition | None) -> BatchPosition:
        return self._settled()

    def _settled(self) -> BatchPosition:
        """Bring the data sets to the position, begin the next rounds, and return the result."""
        position = self.begin()
        if self.closed:
            return position
        if self._order.progress is not position.progress:
            self._order = BatchOrder(self._options, position.progress, position.num_batches)
        if self._order.next is None:
            return position
        progress = position.progress
        for number in progress.active:
            if position.epochs[number] != progress.epoch_of(number):
                position = self._with_round_begun(position, number)
                self._order.num_batches[number] = position.num_batches[number]
                self.course.position = position
            elif self._epoch_of[number] != position.epochs[number]:
                self._begin_round(number, position.epochs[number])
            go_back(
                self._iterator_of[number], position.marks[number] or self._first_marks.get(number)
            )
        return position

    def _with_round_begun(self, position: BatchPosition, number: int) -> BatchPosition:
        epoch = position.progress.epoch_of(number)
        self._begin_round(number, epoch)
        (left,) = batches_left(self._datasets[number], epoch, 0)
        return replace(
            position,
            num_batches=with_item(position.num_batches, number, left),
            epochs=with_item(position.epochs, number, epoch),
            marks=with_item(position.marks, number, None),
        )

    def _begin_round(self, number: int, epoch: int) -> None:
        dataset = self._datasets[number]
        begin_epoch(dataset, epoch)
        self._first_marks.pop(number, None)
        self._iterator_of[number] = iter(dataset)
        self._epoch_of[number] = epoch

    def _take(self, position: BatchPosition) -> tuple[Batch, BatchPosition]:
        position = self._settled()
        order, number = self._order, self._order.next
        assert number is not None  # noqa: S101
        iterator = self._iterator_of[number]
        if position.marks[number] is None:
            self._first_marks[number] = mark_of(iterator)
        batch = next(iterator, None)
        if batch is None:
            raise RuntimeError(
                f"data set {number} ended after {position.progress.delivered[number]} batches, "
                f"its length is {order.num_batches[number]}"
            )
        batch = self._marked(batch, number)
        order.count()
        marks = with_item(position.marks, number, mark_of(iterator))
        return batch, BatchPosition(order.progress, position.num_batches, position.epochs, marks)

    @property
    def over(self) -> bool:
        """True if no batch is left."""
        self._settled()
        return self._order.next is None

    def _iterators(self) -> Iterable[Any]:
        return self._iterator_of.values()

    def state_dicts(self) -> list[Any]:
        """Return the state of each data set; None for data sets that have left the mix."""
        active = self._settled().progress.active
        return [
            dataset.state_dict() if number in active else None
            for number, dataset in enumerate(self._datasets)
        ]


def _load(datasets: Sequence[Mixable], progress: MixProgress, states: list[Any] | None) -> None:
    for number in progress.active if states is not None else ():
        datasets[number].load_state_dict(states[number])  # type: ignore[index]


def _num_batches(
    datasets: Sequence[Mixable], progress: MixProgress, num_workers: int
) -> list[list[int]]:
    """Return, for each worker, the batches of the present round of each data set."""
    delivered, active = progress.delivered, progress.active
    left = {
        number: batches_left(
            datasets[number], progress.epoch_of(number), delivered[number], num_workers
        )
        for number in active
    }
    # A data set that does not divide rows among workers is whole in each.
    return [
        [
            delivered[number]
            + (left[number][min(worker, len(left[number]) - 1)] if number in left else 0)
            for number in range(len(datasets))
        ]
        for worker in range(max(1, num_workers))
    ]


def _length(options: MixOptions, progress: MixProgress, per_worker: list[list[int]]) -> int:
    num = progress.num_drawn
    for num_batches in per_worker:
        num += BatchOrder(options, progress, num_batches).count_all()
    return num
