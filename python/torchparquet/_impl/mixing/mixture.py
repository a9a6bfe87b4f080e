"""One epoch of a mix, of batches or of rows."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from torchparquet._impl.batches.batch_rows import num_rows_of
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.mixing.members import Mixable, close_iterator, hold_epoch
from torchparquet._impl.mixing.mix_order import MixOptions, MixProgress
from torchparquet._impl.session.course import Course, ExactIterator
from torchparquet.jagged import Jagged


class MixPosition(Protocol):
    """The position of an epoch of a mix, with that of its data sets."""

    @property
    def progress(self) -> MixProgress:
        """How far the epoch is."""


_Position = TypeVar("_Position", bound=MixPosition)


class Mixture(ExactIterator[Batch, _Position]):
    """One epoch of a mix.

    `next` raises:
        RuntimeError: A data set has fewer batches than its length, or the iterator was closed.
            Another iteration of the mix, `set_epoch` and `load_state_dict` close it too.
        SchemaMismatchError: Rows are mixed, and two data sets differ in their columns.
        StopIteration: After the last batch.
    """

    def __init__(
        self,
        options: MixOptions,
        datasets: Sequence[Mixable],
        begun_at: MixProgress,
        source_key: str | None,
    ) -> None:
        """Continue at `begun_at`; the course has no position yet."""
        super().__init__(Course())
        self._options = options
        self._datasets = datasets
        self._source_key = source_key
        self._begun_at = begun_at
        self._length: int | None = None
        self.closed = False
        self._take_epoch: Callable[[], None] | None = None
        self._looks = False

    @staticmethod
    @abstractmethod
    def count(
        options: MixOptions,
        datasets: Sequence[Mixable],
        progress: MixProgress,
        states: list[Any] | None,
        num_workers: int,
    ) -> int:
        """Return the batches of all workers' epoch, including those before `progress`."""

    @property
    def length(self) -> int:
        """The batches of the epoch, including those before a loaded state."""
        if self._length is None:
            self._length = self._count_from(self._begun_at)
        return self._length

    @property
    def progress(self) -> MixProgress:
        """How far the epoch is."""
        return self.begin().progress

    def begin(self) -> _Position:
        """Return the position of the epoch; it begins when the iterator is made."""
        position = self.course.position
        assert position is not None  # noqa: S101
        return position

    def _next_item(self) -> tuple[Batch, _Position]:
        if self.course.has_ended:
            raise StopIteration
        if self.closed:
            if self._has_given_all():
                raise StopIteration
            raise RuntimeError(
                "this iterator of a mix was closed: there is one at a time, which set_epoch, "
                "load_state_dict and close end too; begin a new iteration"
            )
        if self._looks:
            self._end_look()
        if self.over:
            self._end_look()
            self.close()
            self.course.has_ended = True
            raise StopIteration
        self._looks = self._take_epoch is not None
        return super()._next_item()

    def look_first(self, take_epoch: Callable[[], None]) -> None:
        """Call `take_epoch` before the second batch, or the end: one batch is only a look."""
        self._take_epoch = take_epoch
        for iterator in self._iterators():
            hold_epoch(iterator, True)

    def _end_look(self) -> None:
        if self._take_epoch is not None:
            self._take_epoch()
            for iterator in self._iterators():
                hold_epoch(iterator, False)
        self._take_epoch, self._looks = None, False

    def _has_given_all(self) -> bool:
        """Return True if the last batch was delivered, as far as known without reading."""
        try:
            num_batches = self.length
        except TypeError:
            return False
        return math.ceil(self.progress.num_drawn / (self._options.batch_size or 1)) >= num_batches

    @property
    @abstractmethod
    def over(self) -> bool:
        """True if no batch is left; may read one ahead to know."""

    def close(self) -> None:
        """End the iterations over the data sets. Idempotent."""
        self.closed = True
        for iterator in self._iterators():
            close_iterator(iterator)

    @abstractmethod
    def state_dicts(self) -> list[Any]:
        """Return where each data set stands; None for those that have left the mix."""

    @abstractmethod
    def _count_from(self, begin: MixProgress) -> int:
        """Return the batches of the epoch, including those before its start at `begin`."""

    @abstractmethod
    def _iterators(self) -> Iterable[Any]:
        """Return the iterations over the data sets."""

    def _marked(self, batch: Batch, number: int) -> Batch:
        """Return the batch; if wanted, with the number of its data set per row, int64 `[B]`."""
        key = self._source_key
        if key is None:
            return batch
        if key in batch:
            raise ValueError(f"source_key must be the name of no column, got {key!r}")
        leaves = (v.offsets if isinstance(v, Jagged) else v for v in batch.values())
        device = next((leaf.device for leaf in leaves if isinstance(leaf, Tensor)), None)
        numbers = torch.full((num_rows_of(batch),), number, dtype=torch.int64, device=device)
        return batch | {key: numbers}
