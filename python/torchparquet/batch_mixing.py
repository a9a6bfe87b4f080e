"""A mix whose batches are those of its data sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torchparquet.mix_order import BatchOrder, MixOptions, Progress
from torchparquet.mix_sources import Mixable, batches_left, close_iterator
from torchparquet.row_mixing import marked
from torchparquet.tensors import Batch


class BatchMixture(Iterator[Batch]):
    """One epoch of a mix whose batches are those of its data sets.

    Attributes:
        closed: Whether the iterations over the data sets have ended.
    """

    def __init__(
        self,
        options: MixOptions,
        datasets: Sequence[Mixable],
        progress: Progress,
        states: list[Any] | None,
        source_key: str | None,
    ) -> None:
        """Go on at `progress` with data sets at `states`; None for the start of an epoch."""
        self._datasets = datasets
        self._source_key = source_key
        self.progress = progress
        _load(datasets, progress, states)
        # A length is that of the iteration under way, so these come first.
        self._iterators = {number: iter(datasets[number]) for number in progress.active}
        (num_batches,) = _num_batches(datasets, progress, 0)
        self._begun_at = options, progress.copied(), num_batches
        self._length: int | None = None
        self._order = BatchOrder(options, progress, num_batches)
        for number in self._order.begun_again:
            self._begin_round(number)
        self.closed = False

    @staticmethod
    def count(
        options: MixOptions,
        datasets: Sequence[Mixable],
        progress: Progress,
        states: list[Any] | None,
        num_workers: int,
    ) -> int:
        """Return the batches of all workers' epoch, with those before `progress`."""
        _load(datasets, progress, states)
        per_worker = _num_batches(datasets, progress, num_workers)
        return _length(options, progress, per_worker)

    @property
    def length(self) -> int:
        """The batches of the epoch, with those before a state was loaded."""
        if self._length is None:
            options, progress, num_batches = self._begun_at
            self._length = _length(options, progress, [num_batches])
        return self._length

    def __next__(self) -> Batch:
        """Return the next batch.

        Raises:
            RuntimeError: A data set has fewer batches than it said.
            StopIteration: After the last batch.
        """
        number = self._order.source
        if self.closed or number is None:
            self.close()
            raise StopIteration
        batch = next(self._iterators[number], None)
        if batch is None:
            raise RuntimeError(
                f"data set {number} ended after {self.progress.delivered[number]} batches, "
                f"its length is {self._order.num_batches[number]}"
            )
        if self._order.count():
            self._begin_round(number)
        return marked(batch, self._source_key, number)

    @property
    def over(self) -> bool:
        """Whether there is no further batch."""
        return self._order.source is None

    def close(self) -> None:
        """End the iterations over the data sets. Idempotent."""
        self.closed = True
        for iterator in self._iterators.values():
            close_iterator(iterator)

    def state_dicts(self) -> list[Any]:
        """Return where each data set stands; None for those that have left the mix."""
        active = self.progress.active
        return [
            dataset.state_dict() if number in active else None
            for number, dataset in enumerate(self._datasets)
        ]

    def _begin_round(self, number: int) -> None:
        dataset, epoch = self._datasets[number], self.progress.epoch_of(number)
        dataset.set_epoch(epoch)
        self._iterators[number] = iter(dataset)
        (self._order.num_batches[number],) = batches_left(dataset, epoch, 0)


def _load(datasets: Sequence[Mixable], progress: Progress, states: list[Any] | None) -> None:
    for number in progress.active if states is not None else ():
        datasets[number].load_state_dict(states[number])  # type: ignore[index]


def _num_batches(
    datasets: Sequence[Mixable], progress: Progress, num_workers: int
) -> list[list[int]]:
    """Return, for each worker, the batches of the present round of each data set."""
    delivered, active = progress.delivered, progress.active
    left = {
        number: batches_left(
            datasets[number], progress.epoch_of(number), delivered[number], num_workers
        )
        for number in active
    }
    # A data set that does not know of workers is whole in each.
    return [
        [
            delivered[number]
            + (left[number][min(worker, len(left[number]) - 1)] if number in left else 0)
            for number in range(len(datasets))
        ]
        for worker in range(max(1, num_workers))
    ]


def _length(options: MixOptions, progress: Progress, per_worker: list[list[int]]) -> int:
    num = progress.num_drawn
    for num_batches in per_worker:
        num += BatchOrder(options, progress.copied(), num_batches).count_all()
    return num
