"""One iteration over a data set: its epochs, batch by batch, with a place that can be saved."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from torchparquet.batches.batch_rows import check_rows, num_rows_of, sliced
from torchparquet.batches.tensors import Batch
from torchparquet.metrics.read_totals import ReadTotals
from torchparquet.metrics.wait_ranges import in_wait_range

if TYPE_CHECKING:
    from torchparquet.batches.transforms import Transforms
    from torchparquet.iteration.planner import Place
    from torchparquet.reading.batch_stream import BatchStream


class Source(Protocol):
    """What an iteration needs of its data set."""

    num_epochs: int | None
    transforms: Transforms | None
    totals: ReadTotals

    def begin_iteration(self) -> Place:
        """Begin the next epoch, or go on with one, and return where it stands."""

    def end_epoch(self, place: Place) -> None:
        """Take note that the epoch at `place` has no further batch."""

    def begin_epoch_behind(self, place: Place) -> Place:
        """Begin the epoch behind that of `place`, in the same iteration."""

    def open_stream(self, place: Place) -> BatchStream:
        """Open what is left of the epoch that stands at `place`."""

    def origin(self, place: Place, row: int | None = None) -> object:
        """Return where the next batch at `place` is from, or a row of it, to be shown."""

    def state_at(self, place: Place | None) -> dict[str, Any]:
        """Return the state of a place; None for that at which the next iteration begins."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iteration go on where `state` was taken."""

    def sought(self, place: Place, step: int) -> Place:
        """Return the place of batch `step` of the epoch that stands at `place`."""

    def return_to(self, place: Place, passed: Place) -> None:
        """Take note that the iteration at `passed` stands at `place` again, of an epoch before."""


# An iteration without end ends behind so many epochs that have no batch for it: by chance one may
# have none, with all rows on other ranks.
_MAX_EMPTY_EPOCHS = 100


class Iteration(Iterator[Batch]):
    """The batches of one iteration over a `ParquetDataset`.

    The epoch is begun by the first `next`, so that an iterator which is never used takes none.
    Threads end with the iterator, with `close`, and at interpreter exit.
    """

    def __init__(self, source: Source) -> None:
        """Prepare to iterate; reads nothing yet."""
        self._source = source
        self.totals = ReadTotals(source.totals)
        self._owner_pid = os.getpid()
        self._place: Place | None = None
        self._stream: BatchStream | None = None
        self._first_step = 0  # of the stream
        self._num_rows_read: int | None = None
        self._closed = False
        self._ended = False

    def __next__(self) -> Batch:
        """Return the next batch.

        Raises:
            StopIteration: After the last batch of the last epoch.
            CorruptFileError: A file is damaged, or changed since it was planned.
            NullValueError: A null stands where none may.
            TransformError: A function of the user's failed. The iterator stays before the batch.
            RuntimeError: The iterator was closed, or was begun in another process.
        """
        try:
            batch, place = in_wait_range(self._next)
            # No call follows, so that no signal's handler can raise behind the count.
            place.num_rows = 0
            place.steps += 1
            return batch
        except BaseException:
            stream, at = self._stream, self._place
            if (
                stream is not None
                and at is not None
                and stream.num_taken != at.steps - self._first_step
            ):
                # A batch was taken and not delivered: the next call reads it again.
                self._close_stream()
                self._stream = None
            raise

    def _next(self) -> tuple[Batch, Place]:
        """Return the next batch, and its place."""
        while True:
            stream, place = self._stream, self._place
            if stream is None or place is None or place.steps >= place.end:
                self._open()
                continue
            batch = next(stream, None)
            if batch is None:
                raise RuntimeError(
                    f"the epoch ended after {place.steps} batches of {place.end} that were planned"
                )
            if self._source.transforms is not None:
                batch = self._transformed(batch, place)
            if place.num_rows:
                batch = sliced(batch, place.num_rows, num_rows_of(batch))
            return batch, place

    def _transformed(self, batch: Batch, place: Place) -> Batch:
        """Return what the user's functions make of the whole batch."""
        made = self._apply(batch, partial(self._source.origin, place))
        if place.num_rows:
            check_rows(made, self._num_rows_read)
            self._num_rows_read = num_rows_of(made) - place.num_rows
        return made

    def _apply(self, batch: Batch, origin: Callable[[], object]) -> Batch:
        transforms = self._source.transforms
        if transforms is None:
            return batch
        self._num_rows_read = num_rows_of(batch)
        return transforms.apply(batch, origin)

    def _open(self) -> None:
        """Open the rest of the epoch, or the next epoch that this iteration is to go on with."""
        self._check_usable()
        self._close_stream()
        place = self.begun()
        num_empty = 0
        while place.steps >= place.end:
            self._source.end_epoch(place)
            num_epochs = self._source.num_epochs
            num_empty = num_empty + 1 if place.end == 0 else 0
            is_last = num_epochs is not None and (place.epoch + 1) % num_epochs == 0
            if is_last or (num_epochs is None and num_empty > _MAX_EMPTY_EPOCHS):
                self._ended = True
                raise StopIteration
            self._place = place = self._source.begin_epoch_behind(place)
        self._first_step = place.steps
        self._stream = self._source.open_stream(place)
        self.totals.add(self._stream)
        if self._closed:
            # Another thread closed the iterator meanwhile.
            self._close_stream()

    def _check_usable(self) -> None:
        if os.getpid() != self._owner_pid:
            raise RuntimeError(
                "this iterator was made in another process; begin a new iteration in this process"
            )
        if self._ended:
            raise StopIteration
        if self._closed:
            raise RuntimeError("the reader was closed")

    def begun(self) -> Place:
        """Return where the epoch stands, which is begun if it was not yet."""
        if self._place is None:
            self._place = self._source.begin_iteration()
        return self._place

    @property
    def place(self) -> Place | None:
        """Where the epoch stands; None before it is begun."""
        return self._place

    @property
    def num_rows_read(self) -> int | None:
        """Rows of the latest batch for the user's functions to keep; None without functions."""
        return self._num_rows_read

    @property
    def closed(self) -> bool:
        """Whether the iterator was closed or has ended."""
        return self._closed or self._ended

    def state_dict(self) -> dict[str, Any]:
        """Return where this iterator stands; see `ParquetDataset.state_dict`."""
        return self._source.state_at(self._place)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`; see `ParquetDataset.load_state_dict`."""
        self._source.load_state_dict(state)
        self.rewind(None)

    def seek(self, step: int) -> None:
        """Make batch `step` of the epoch the next one; what lies between is not read.

        Raises:
            TypeError: `step` is not an int.
            ValueError: The epoch has no such batch, or another world has delivered it.
        """
        self.rewind(self._source.sought(self.begun(), step))

    def origin(self, row: int | None = None) -> object:
        """Return where the latest batch is from, or a row of it, to be shown."""
        place = self.begun()
        return self._source.origin(replace(place, steps=place.steps - 1), row)

    def marked(self) -> Place | None:
        """Return where to `go_back` to for what comes next; None where that cannot be."""
        return replace(self.begun())

    def go_back(self, mark: Place) -> None:
        """Return again what was returned since `mark`, which can be used as often as is needed."""
        place = self.begun()
        if place.epoch == mark.epoch:
            self.rewind(place)
            place.steps, place.num_rows = mark.steps, mark.num_rows
        else:
            before = replace(mark)
            self._source.return_to(before, place)
            self.rewind(before)

    def rewind(self, place: Place | None) -> None:
        """Go on from `place`; None for where the next iteration of the data set begins."""
        self._close_stream()
        self._stream = None
        self._place = place
        self._ended = False

    def __reduce__(self) -> NoReturn:
        """Refuse: threads and their memory have no copy; a state has."""
        raise TypeError(
            "cannot pickle an iterator of a ParquetDataset; its state_dict() can travel"
        )

    def close(self) -> None:
        """Join the threads and give up what is in flight. Idempotent."""
        self._closed = True
        self._close_stream()

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
