"""A mix whose batches are those of its data sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from torchparquet.batches.tensors import Batch
from torchparquet.mixing.mix_order import BatchOrder, MixOptions, MixProgress
from torchparquet.mixing.mix_sources import Mixable, batches_left, go_back, mark_of
from torchparquet.mixing.mixture import Mixture


class _Before(NamedTuple):
    """How things stood before a batch was taken."""

    iterator: Any
    mark: Any
    progress: MixProgress
    num_batches: list[int]


class BatchMixture(Mixture):
    """One epoch of a mix whose batches are those of its data sets."""

    def __init__(
        self,
        options: MixOptions,
        datasets: Sequence[Mixable],
        progress: MixProgress,
        states: list[Any] | None,
        source_key: str | None,
    ) -> None:
        """Go on at `progress` with data sets at `states`; None for the start of an epoch."""
        super().__init__(options, datasets, progress, source_key)
        _load(datasets, progress, states)
        # A length is that of the iteration under way, so these come first.
        self._of_source = {number: iter(datasets[number]) for number in progress.active}
        (self._num_batches,) = _num_batches(datasets, progress, 0)
        self._order = BatchOrder(options, progress, self._num_batches)
        self._before: _Before | None = None  # while a batch is taken, or lost
        self._is_taking = False
        # Data sets whose next round is to begin, when something is asked of them.
        self._to_begin = tuple(self._order.begun_again)
        self._settle()

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
        return _length(self._options, begin, [self._num_batches])

    def _make_next(self) -> Batch:
        self._settle()
        order, number = self._order, self._order.source
        assert number is not None  # noqa: S101
        iterator = self._of_source[number]
        self._is_taking = True
        try:
            self._before = _Before(
                iterator, mark_of(iterator), self.progress.copied(), list(order.num_batches)
            )
            batch = next(iterator, None)
            if batch is None:
                raise RuntimeError(
                    f"data set {number} ended after {self.progress.delivered[number]} batches, "
                    f"its length is {order.num_batches[number]}"
                )
            batch = self._marked(batch, number)
            to_begin = (number,) if order.count() else ()
            # No call follows, so that no signal's handler can raise behind this.
            self._before, self._to_begin = None, to_begin
            return batch
        finally:
            self._is_taking = False

    def _settle(self) -> None:
        """Give up what an exception has left half done, and begin the rounds that are next."""
        before = self._before
        if self.closed or self._is_taking:  # a user's function may ask within `next`
            return
        if before is not None:
            go_back(before.iterator, before.mark)
            self.progress = before.progress.copied()
            self._order = BatchOrder(self._options, self.progress, before.num_batches)
            self._before = None
        for number in self._to_begin:
            self._begin_round(number)
        self._to_begin = ()

    @property
    def over(self) -> bool:
        """Whether there is no further batch."""
        self._settle()
        return self._order.source is None

    def _iterators(self) -> Iterable[Any]:
        return self._of_source.values()

    def state_dicts(self) -> list[Any]:
        """Return where each data set stands; None for those that have left the mix."""
        self._settle()
        active = self.progress.active
        return [
            dataset.state_dict() if number in active else None
            for number, dataset in enumerate(self._datasets)
        ]

    def _begin_round(self, number: int) -> None:
        dataset, epoch = self._datasets[number], self.progress.epoch_of(number)
        dataset.set_epoch(epoch)
        self._of_source[number] = iter(dataset)
        (self._order.num_batches[number],) = batches_left(dataset, epoch, 0)


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
    # A data set that does not know of workers is whole in each.
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
        num += BatchOrder(options, progress.copied(), num_batches).count_all()
    return num
