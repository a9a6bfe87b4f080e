"""Batches of which each has rows of several data sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torchparquet.batches.batch_rows import check_alike, joined, num_rows_of
from torchparquet.batches.tensors import Batch
from torchparquet.mixing.mix_order import MixOptions, MixProgress, RowOrder
from torchparquet.mixing.mix_sources import Mixable, rows_left
from torchparquet.mixing.mixture import Mixture
from torchparquet.mixing.row_sources import load_source, row_source


class RowMixture(Mixture):
    """One epoch of a mix whose every batch has rows of all data sets."""

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
        self._order = RowOrder(options, progress)
        self._sources = [
            row_source(
                dataset, None if states is None else states[number], progress.epoch_of(number)
            )
            for number, dataset in enumerate(datasets)
        ]
        self._rows_left = [source.left for source in self._sources]
        self._checked = False
        self._over = False
        self._is_torn = False  # while rows are taken for a batch, or rounds begun

    @staticmethod
    def count(
        options: MixOptions,
        datasets: Sequence[Mixable],
        progress: MixProgress,
        states: list[Any] | None,
        num_workers: int,
    ) -> int:
        """Return the batches of all workers' epoch; see `Mixture.count`."""
        per_worker: list[list[int | None]] = [[] for _ in range(max(1, num_workers))]
        for number, dataset in enumerate(datasets):
            state = None if states is None else states[number]
            if state is not None:
                load_source(dataset, state)
            taken = 0 if state is None else state.get("taken", 0)
            left = rows_left(dataset, progress.epoch_of(number), taken, num_workers)
            for worker, of_worker in enumerate(per_worker):
                # A data set that does not know of workers is whole in each.
                of_worker.append(left[min(worker, len(left) - 1)])
        return _length(options, progress, per_worker)

    def _count_from(self, begin: MixProgress) -> int:
        return _length(self._options, begin, [self._rows_left])

    def _make_next(self) -> Batch:
        self._check()
        wanted = self._options.batch_size
        assert wanted is not None  # noqa: S101
        # Read first: what cannot be read leaves all sources where they are.
        granted = self._order.granted(wanted)
        for number, num_rows in zip(self.progress.active, granted, strict=True):
            self._sources[number].available(num_rows)
        self._is_torn = True
        pieces = self._take(granted)
        while (left := wanted - sum(map(num_rows_of, pieces))) and self.progress.active:
            pieces += self._take(self._order.granted(left))
        batch = joined(pieces)
        # No call follows, so that no signal's handler can raise behind this.
        self._is_torn = False
        return batch

    def _check_whole(self) -> None:
        if self._is_torn and not self.closed:
            raise RuntimeError(
                "this iteration over a mix was interrupted within a batch by an exception, and its "
                "rows are lost to it: iterate anew, from a state that was taken before"
            )

    @property
    def over(self) -> bool:
        """Whether there is no further batch; may read one ahead to know."""
        progress, stopping = self.progress, self._options.stopping
        if self._over:
            return True
        self._check_whole()
        if stopping == "first_exhausted":
            assert self._options.batch_size is not None  # noqa: S101
            granted = self._order.granted(self._options.batch_size)
            self._over = any(
                source.available(num_rows) < num_rows
                for source, num_rows in zip(self._sources, granted, strict=True)
            )
            return self._over
        empty = [number for number in progress.active if not self._sources[number].available(1)]
        self._is_torn = bool(empty)
        self._leave_or_begin_anew(empty)
        self._is_torn = False
        return self._over

    def _leave_or_begin_anew(self, empty: list[int]) -> None:
        progress, stopping = self.progress, self._options.stopping
        for number in empty:
            progress.rounds[number] += 1
        if stopping == "all_exhausted":
            progress.leave(empty)
        self._over = all(progress.rounds)
        if stopping == "repeat" and not self._over:
            for number in empty:
                self._begin_round(number)

    def close(self) -> None:
        """End the iterations over the data sets. Idempotent."""
        self._over = True
        super().close()

    def _iterators(self) -> Iterable[Any]:
        return [source.batches for source in self._sources]

    def state_dicts(self) -> list[Any]:
        """Return where each data set stands."""
        self._check_whole()
        return [source.state_dict() for source in self._sources]

    def _take(self, granted: list[int]) -> list[Batch]:
        """Return rows of all data sets; fewer than granted where one has no more and leaves."""
        progress, empty = self.progress, []
        pieces: list[Batch] = []
        for place, (number, wanted) in enumerate(zip(list(progress.active), granted, strict=True)):
            source = self._sources[number]
            while wanted:
                available = source.available(wanted)
                if available == 0:
                    if self._options.stopping == "all_exhausted":
                        progress.rounds[number] += 1
                        empty.append(number)
                        break
                    progress.rounds[number] += 1
                    self._begin_round(number)
                    continue
                pieces += [self._marked(piece, number) for piece in source.take(available)]
                progress.counts[place] += available
                wanted -= available
        progress.leave(empty)
        return pieces

    def _begin_round(self, number: int) -> None:
        source = self._sources[number]
        source.begin_round(self.progress.epoch_of(number))
        if not source.available(1):
            raise ValueError(f"data sets to be repeated must have rows, data set {number} has none")

    def _check(self) -> None:
        if self._checked:
            return
        examples = {}
        for number in self.progress.active:
            self._sources[number].available(1)
            example = self._sources[number].example
            if example is not None:
                examples[f"data set {number}"] = example
        check_alike(list(examples.values()), list(examples))
        self._checked = True


def _length(
    options: MixOptions, progress: MixProgress, per_worker: Sequence[Sequence[int | None]]
) -> int:
    assert options.batch_size is not None  # noqa: S101
    # All batches but the last are full.
    num = -(-progress.num_drawn // options.batch_size)
    for left in per_worker:
        known = [rows for rows in left if rows is not None]
        if len(known) < len(left):
            raise TypeError("a mix within batches has no len: a data set does not say its rows")
        num += RowOrder(options, progress.copied()).count_all(known)
    return num
