"""Batches of which each has rows of several data sets."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from torchparquet.batch_rows import check_alike, joined, num_rows_of, sliced
from torchparquet.mix_order import MixOptions, Progress, RowOrder
from torchparquet.tensors import Batch

if TYPE_CHECKING:
    from torchparquet.mixing import Mixable

# What a round within an epoch of a mix adds to the number of a data set's epoch.
ROUND_EPOCHS = 2**32


def rows_per_epoch(dataset: Any) -> int | None:
    """Return how many rows of a data set each rank can take, the same on all ranks.

    Of shares that differ it is the least, unless `even="none"` asks for all; None where the data
    set does not say.
    """
    if not hasattr(dataset, "plan") or not hasattr(dataset, "topology"):
        return None
    plan, topology = dataset.plan(), dataset.topology()
    options = plan.options
    ranks = [topology.rank] if options.even == "none" else range(options.world_size)
    workers = range(options.num_workers)
    worker = min(topology.worker_id, options.num_workers - 1)
    rows = [
        int(plan.share_rows[list(options.shares_of(rank, of))].sum())
        for rank in ranks
        for of in (workers if options.even != "none" else [worker])
    ]
    batch_size = options.batch_size
    return min(rows) if batch_size is None else min(*rows, len(dataset) * batch_size)


class _RowSource:
    """The rows of one data set, and where they were taken from."""

    def __init__(self, dataset: Mixable, state: dict[str, Any] | None) -> None:
        self.dataset = dataset
        self._skipped = self.taken = 0
        if state is not None:
            dataset.load_state_dict(state["state"])
            self._skipped, self.taken = state["used"], state["taken"]
        self._begin()

    def _begin(self) -> None:
        self.batches: Iterator[Batch] = iter(self.dataset)
        # Batches that are not used up, each with the state of its data set before it.
        self._held: deque[tuple[dict[str, Any], Batch, int]] = deque()
        self._used = 0  # rows of the first of them
        self._held_rows = 0
        self.limit = rows_per_epoch(self.dataset)

    def begin_round(self, epoch: int) -> None:
        """Go on with another epoch of the data set."""
        self.dataset.set_epoch(epoch)
        self.taken = 0
        self._begin()

    def available(self, wanted: int) -> int:
        """Return how many of `wanted` rows there are, after reading as many batches as it takes."""
        if self.limit is not None:
            wanted = min(wanted, self.limit - self.taken)
        while self._held_rows < wanted:
            state = self.dataset.state_dict()
            batch = next(self.batches, None)
            if batch is None:
                break
            num_rows = num_rows_of(batch)
            self._held.append((state, batch, num_rows))
            self._held_rows += num_rows - self._skipped
            self._used += self._skipped
            self._skipped = 0
        return max(0, min(wanted, self._held_rows))

    def take(self, wanted: int) -> list[Batch]:
        """Return the next rows, which must be available, in pieces."""
        pieces = []
        self.taken += wanted
        self._held_rows -= wanted
        while wanted:
            _, batch, num_rows = self._held[0]
            end = min(num_rows, self._used + wanted)
            pieces.append(sliced(batch, self._used, end))
            wanted -= end - self._used
            self._used = end
            if end == num_rows:
                self._held.popleft()
                self._used = 0
        return pieces

    @property
    def example(self) -> Batch | None:
        """A batch of the data set, if one was read and is not used up."""
        return self._held[0][1] if self._held else None

    def state_dict(self) -> dict[str, Any]:
        """Return from where on rows have not been taken."""
        used = self._used + self._skipped
        state = self._held[0][0] if self._held else self.dataset.state_dict()
        return {"state": state, "used": used, "taken": self.taken}


class RowMixture(Iterator[Batch]):
    """One epoch of a mix whose every batch has rows of all data sets."""

    def __init__(
        self,
        options: MixOptions,
        datasets: list[Mixable],
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
            _RowSource(dataset, None if states is None else states[number])
            for number, dataset in enumerate(datasets)
        ]
        progress.sizes = progress.sizes or [source.limit for source in self._sources]
        self._checked = False
        self._over = False

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
        self._over = True
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
        source.begin_round(self.progress.epoch + self.progress.rounds[number] * ROUND_EPOCHS)
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


def close_iterator(iterator: Any) -> None:
    """End the threads of an iterator that has any."""
    close = getattr(iterator, "close", None)
    if close is not None:
        close()


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
