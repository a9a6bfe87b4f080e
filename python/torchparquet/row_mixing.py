"""Batches of which each has rows of several data sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from torchparquet.batch_rows import check_alike, joined, num_rows_of
from torchparquet.mix_order import MixOptions, Progress, RowOrder
from torchparquet.mix_sources import Mixable, close_iterator, rows_left
from torchparquet.row_sources import load_source, row_source
from torchparquet.tensors import Batch


class RowMixture(Iterator[Batch]):
    """One epoch of a mix whose every batch has rows of all data sets.

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
        self._options = options
        self._order = RowOrder(options, progress)
        self.progress = progress
        self._source_key = source_key
        self._sources = [
            row_source(
                dataset, None if states is None else states[number], progress.epoch_of(number)
            )
            for number, dataset in enumerate(datasets)
        ]
        self._begun_at = progress.copied(), [source.left for source in self._sources]
        self._length: int | None = None
        self._checked = False
        self._over = False
        self.closed = False

    @staticmethod
    def count(
        options: MixOptions,
        datasets: Sequence[Mixable],
        progress: Progress,
        states: list[Any] | None,
        num_workers: int,
    ) -> int:
        """Return the batches of all workers' epoch, with those before `progress`.

        Raises:
            TypeError: A data set does not say how many rows it has.
        """
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

    @property
    def length(self) -> int:
        """The batches of the epoch, with those before a state was loaded.

        Raises:
            TypeError: A data set does not say how many rows it has.
        """
        if self._length is None:
            progress, left = self._begun_at
            self._length = _length(self._options, progress, [left])
        return self._length

    def __next__(self) -> Batch:
        """Return the next batch.

        Raises:
            SchemaMismatchError: Two data sets differ in their columns.
            StopIteration: After the last batch.
        """
        if self.over:
            self.close()
            raise StopIteration
        self._check()
        wanted = self._options.batch_size
        assert wanted is not None  # noqa: S101
        pieces: list[Batch] = []
        while wanted and self.progress.active:
            taken = self._take(wanted)
            pieces += taken
            wanted -= sum(map(num_rows_of, taken))
        return joined(pieces)

    @property
    def over(self) -> bool:
        """Whether there is no further batch; may read one ahead to know."""
        progress, stopping = self.progress, self._options.stopping
        if self._over:
            return True
        if stopping == "first_exhausted":
            assert self._options.batch_size is not None  # noqa: S101
            granted = self._order.granted(self._options.batch_size)
            self._over = any(
                source.available(num_rows) < num_rows
                for source, num_rows in zip(self._sources, granted, strict=True)
            )
            return self._over
        empty = [number for number in progress.active if not self._sources[number].available(1)]
        for number in empty:
            progress.rounds[number] += 1
        if stopping == "all_exhausted":
            progress.leave(empty)
        self._over = all(progress.rounds)
        if stopping == "repeat" and not self._over:
            for number in empty:
                self._begin_round(number)
        return self._over

    def close(self) -> None:
        """End the iterations over the data sets. Idempotent."""
        self._over = self.closed = True
        for source in self._sources:
            close_iterator(source.batches)

    def state_dicts(self) -> list[dict[str, Any]]:
        """Return where each data set stands."""
        return [source.state_dict() for source in self._sources]

    def _take(self, num_rows: int) -> list[Batch]:
        """Return rows of all data sets; fewer than asked for where one has no more and leaves."""
        progress, pieces, empty = self.progress, [], []
        granted = self._order.granted(num_rows)
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

    def _marked(self, batch: Batch, number: int) -> Batch:
        return marked(batch, self._source_key, number)

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
    options: MixOptions, progress: Progress, per_worker: Sequence[Sequence[int | None]]
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


def marked(batch: Batch, source_key: str | None, number: int) -> Batch:
    """Return the batch with the number of its data set for each row, int64 `[B]`, if asked for.

    Raises:
        ValueError: The batch has a column of that name.
    """
    if source_key is None:
        return batch
    if source_key in batch:
        raise ValueError(f"source_key must be the name of no column, got {source_key!r}")
    return batch | {source_key: torch.full((num_rows_of(batch),), number, dtype=torch.int64)}
