"""One iteration row by row over the batches of a data set, with a place that can be saved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from torchparquet.batches.batch_rows import check_rows, num_rows_of
from torchparquet.batches.rows import Row, Texts, split_rows
from torchparquet.batches.transforms import Transforms
from torchparquet.iteration.dynamic import DynamicIteration
from torchparquet.mixing.mix_sources import close_iterator, go_back, mark_of


@dataclass
class RowsTaken:
    """What an iteration has returned; outlives its iterator.

    Attributes:
        num_rows: Rows; see the iterations for what they are counted from.
        counts: Whether a state must count them: the data set's own one is of batches.
        before: The data set's state before the batch; None where states lead to rows.
    """

    num_rows: int = 0
    counts: bool = False
    before: dict[str, Any] | None = None


class Source(Protocol):
    """What an iteration needs of the data set of rows that it is of."""

    @property
    def dataset(self) -> Any:
        """The data set of batches."""

    def state_dict(self) -> dict[str, Any]:
        """Return where the latest iteration stands."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the latest iteration, and the next one, go on where `state` was taken."""


class RowIteration(Iterator[Row]):
    """The rows of one iteration over a data set whose states lead to batches.

    Rows are counted from the start of their batch, and the state is that before the batch.
    """

    # Whether rows count behind a batch too.
    _always_counts = False

    def __init__(
        self,
        source: Source,
        transforms: Transforms | None,
        texts: Texts,
        taken: RowsTaken,
        skipped: int = 0,
    ) -> None:
        """Prepare to iterate.

        Args:
            source: Whose next iteration it is.
            transforms: The user's functions on rows.
            texts: Which columns hold strings or binary.
            taken: Is kept up to date.
            skipped: Rows of the first batch to pass over.
        """
        self._source = source
        self._dataset = source.dataset
        self._transforms = transforms
        self._texts = texts
        self._begin(taken, skipped)
        self._batches: Any = iter(source.dataset)

    def _begin(self, taken: RowsTaken, skipped: int) -> None:
        self._taken = taken
        self._skipped = skipped
        self._rows: list[Row] = []  # of the batch, from `_first` on
        self._first = self._next = 0
        self._end = 0  # in the batch
        self._before_read: Any = None  # while a batch is read, or lost
        self._is_reading = False  # a user's function may ask for the state within `next`

    def __next__(self) -> Row:
        """Return the next row.

        Raises:
            StopIteration: After the last row.
            TransformError: A function of the user's failed. The iterator stays before the row, as
                it does before a batch that cannot be read.
        """
        while self._next >= self._end:
            self.settle()
            self._is_reading = True
            try:
                self._read()
            finally:
                self._is_reading = False
        row = self._rows[self._next]
        if self._transforms is not None:
            row = self._transforms.apply(row, self._origin)
        # No call follows, so that no signal's handler can raise behind the count.
        self._next += 1
        self._taken.num_rows += 1
        self._taken.counts = self._always_counts or self._next < self._end
        return row

    def settle(self) -> None:
        """Have a batch again that an exception has lost between reading and holding it."""
        if self._before_read is None or self._is_reading:
            return
        if not getattr(self._batches, "closed", False):  # by a newer iteration
            self._dataset.load_state_dict(self._before_read)
            self._batches = iter(self._dataset)
        self._before_read = None

    def _read(self) -> None:
        """Take the next batch."""
        before = self._dataset.state_dict()
        self._before_read = before
        try:
            batch = next(self._batches)
        except StopIteration:
            self._before_read = None
            raise
        check_rows(batch, num_rows_of(batch))
        rows = split_rows(batch, self._texts)
        end = len(rows)
        first = min(self._skipped, end)
        # No call among these, so that no signal's handler can raise between them.
        self._rows, self._next, self._end, self._skipped = rows, first, end, 0
        self._taken.before, self._taken.num_rows = before, first
        self._taken.counts = first < end
        self._before_read = None

    def _origin(self) -> object:
        return f"row {self._next} of a batch of {self._dataset!r}"

    def rewind(self, taken: RowsTaken, skipped: int) -> None:
        """Go on where the data set's next iteration begins, `skipped` rows into its batch."""
        self._begin(taken, skipped)
        self._batches = iter(self._dataset)

    def close(self) -> None:
        """Join the threads and give up what is in flight. Idempotent."""
        close_iterator(self._batches)

    def __reduce__(self) -> NoReturn:
        """Refuse: threads and their memory have no copy; a state has."""
        raise TypeError("cannot pickle an iterator over rows; its data set's state can travel")


class PreciseRowIteration(RowIteration):
    """The rows of one iteration over a `ParquetDataset`, whose own states lead to rows.

    Rows are counted over the epoch in the present world. Ranks return as many each, unless
    `even="none"` or "dynamic": what a share has beyond the shortest one is left out.
    """

    # At the same row ranks may stand within a batch or behind one.
    _always_counts = True

    def _begin(self, taken: RowsTaken, skipped: int) -> None:
        super()._begin(taken, skipped)
        self._epoch = -1
        self._end_rows: int | None = None

    def settle(self) -> None:
        """Have a batch again that an exception has lost between reading and holding it."""
        if self._before_read is not None and not self._is_reading:
            mark, self._epoch, self._end_rows, num_rows, counts = self._before_read
            go_back(self._batches, mark)
            self._taken.num_rows, self._taken.counts = num_rows, counts
            self._before_read = None

    def _read(self) -> None:
        taken = self._taken
        self._enter(self._batches.begin().epoch)
        mark = mark_of(self._batches)
        self._before_read = (mark, self._epoch, self._end_rows, taken.num_rows, taken.counts)
        try:
            batch = next(self._batches)
        except StopIteration:
            taken.counts, self._before_read = False, None
            raise
        self._enter(self._batches.begin().epoch)
        check_rows(batch, self._batches.num_rows_read)
        rows = split_rows(batch, self._texts)
        end = len(rows)
        if self._end_rows is not None:
            end = max(0, min(end, self._end_rows - taken.num_rows))
        # No call among these, so that no signal's handler can raise between them.
        self._rows, self._next, self._end = rows, 0, end
        self._before_read = None

    def _enter(self, epoch: int) -> None:
        """Count the rows of an epoch, which another one begins where iterations have several."""
        if epoch == self._epoch:
            return
        if isinstance(self._batches, DynamicIteration):
            num_rows, self._end_rows = 0, None
        else:
            (reach,) = self._dataset.reaches()
            # The first time nothing was read; later ones are at the start of an epoch.
            num_rows = reach.num_rows if self._epoch < 0 else 0
            self._end_rows = reach.end_rows
        self._epoch, self._taken.num_rows, self._taken.counts = epoch, num_rows, True

    def state_dict(self) -> dict[str, Any]:
        """Return where this iterator stands, which must be the latest."""
        return self._source.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`; a DataLoader worker loads it when it has begun to iterate."""
        self._source.load_state_dict(state)

    def _origin(self) -> object:
        return self._batches.origin(self._next - len(self._rows))

    def rewind(self, taken: RowsTaken, skipped: int) -> None:
        """Go on where the data set's next iteration begins."""
        self._begin(taken, skipped)
        self._batches.course.move(None)
