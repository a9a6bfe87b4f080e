"""One iteration, row by row, over the batches of a data set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn, Protocol

from torchparquet._impl.batches.batch_rows import check_rows, num_rows_of
from torchparquet._impl.batches.rows import Row, Texts, split_rows
from torchparquet._impl.functions.transforms import Transforms
from torchparquet._impl.mixing.members import close_iterator
from torchparquet._impl.mixing.row_cursor import BatchRecord, RowCursor, RowPlace
from torchparquet._impl.session.course import Course, ExactIterator
from torchparquet._impl.session.dynamic import DynamicIteration


class EpochRowCursor(RowCursor):
    """The rows of one iteration over a `ParquetDataset`, which may have several epochs.

    Rows are counted over the epoch in the present world. Each rank returns equally many, and a
    longer share leaves out its last rows. With `even="none"` or "dynamic" the numbers differ.
    """

    batches: Any

    def _settle_read(self) -> None:
        super()._settle_read()
        read = self._read
        if read.following.epoch is None:
            num_rows, end = self._reach()
            following = replace(
                read.following, epoch=self.batches.begin().epoch, rows_before=num_rows, end=end
            )
            self._read = read._replace(following=following)

    def _entered(self, record: BatchRecord) -> BatchRecord:
        epoch = self.batches.begin().epoch
        if epoch == record.epoch:
            return record
        return replace(record, epoch=epoch, rows_before=0, end=self._reach()[1])

    def _reach(self) -> tuple[int, int | None]:
        """Return the rows taken of the epoch, and the rows that all ranks can take."""
        if isinstance(self.batches, DynamicIteration):
            return 0, None
        (reach,) = self.dataset.reaches()
        return reach.num_rows, reach.end_rows

    def _state_before(self, following: BatchRecord) -> Any:
        return None

    def restart(self, used: int = 0, state: Any = None) -> RowPlace:
        """Go on where the next iteration over the data set begins, and return its first place."""
        # A DataLoader worker loads a state into its existing iterator.
        self.batches.course.move(None)
        return self._first_place(None, used, used, state)


class States(Protocol):
    """The data set of rows as its iteration sees it."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the latest iteration."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the latest iteration, and the next one, resume at `state`."""


class RowIteration(ExactIterator[Row, RowPlace]):
    """The rows of one iteration over a data set.

    `next` raises:
        StopIteration: After the last row.
        TransformError: A user's function failed. The iterator stays before the row, as it does
            before an unreadable batch.
    """

    def __init__(
        self,
        states: States,
        cursor: RowCursor,
        course: Course[RowPlace],
        transforms: Transforms | None,
        texts: Texts,
    ) -> None:
        """Prepare to iterate."""
        super().__init__(course)
        self.cursor = cursor
        self._states = states
        self._transforms = transforms
        self._texts = texts
        # A batch, its rows, and the number of rows to return.
        self._split: tuple[BatchRecord | None, list[Row], int] = (None, [], 0)

    def begin(self) -> RowPlace:
        """Return the position of the iteration; it begins when the iterator is made."""
        position = self.course.position
        assert position is not None  # noqa: S101
        return position

    def _go_to(self, position: RowPlace | None) -> RowPlace:
        # The cursor goes back if the row is not held any more.
        return self.begin()

    def _take(self, position: RowPlace) -> tuple[Row, RowPlace]:
        record, used = position
        of_rows, rows, end = self._split
        if record is not of_rows or used >= end:
            record, used = self._split_batch(position)
            rows = self._split[1]
        row = rows[used]
        if self._transforms is not None:
            place = RowPlace(record, used)
            row = self._transforms.apply(row, lambda _: self._origin(place))
        return row, RowPlace(record, used + 1)

    def _split_batch(self, place: RowPlace) -> RowPlace:
        """Split the batch of the next row, and return the place of that row."""
        self.cursor.release(place)
        while True:
            found = self.cursor.batch_at(place)
            if found is None:
                self.course.has_ended = True
                raise StopIteration
            place, batch = found
            num_rows = num_rows_of(batch)
            end = num_rows if place.left is None else min(num_rows, place.used + place.left)
            if place.used < end:
                break
            # Other ranks have no counterpart for the rest.
            self.course.position = place = RowPlace(place.batch, num_rows)
            self.cursor.release(place)
        check_rows(batch, num_rows)
        self._split = (place.batch, split_rows(batch, self._texts), end)
        return place

    def _origin(self, place: RowPlace) -> object:
        if isinstance(self.cursor, EpochRowCursor):
            return self.cursor.batches.origin(place.used - (place.batch.num_rows or 0))
        return f"row {place.used} of a batch of {self.cursor.dataset!r}"

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this iterator, which must be the latest."""
        return self._states.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume at `state`; a DataLoader worker loads it after it has begun to iterate."""
        self._states.load_state_dict(state)

    def close(self) -> None:
        """Join the threads and give up the batches in flight. Idempotent."""
        close_iterator(self.cursor.batches)

    def __reduce__(self) -> NoReturn:
        """Refuse to pickle: threads and their memory cannot be copied. A state can."""
        raise TypeError("cannot pickle an iterator over rows; its data set's state can travel")
