"""The rows of a data set one by one, over the batches of one of its iterations."""

from __future__ import annotations

from typing import Any

from torchparquet._impl.batches.batch_rows import Row, check_rows, num_rows_of, split_rows, texts_of
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.functions.transforms import Transforms
from torchparquet._impl.mixing.mix_session import Member, MixSession
from torchparquet._impl.mixing.row_cursor import BatchRecord, RowCursor, RowPlace
from torchparquet._impl.mixing.session_dataset import SessionDataset
from torchparquet._impl.session.session_iterator import ExactIterator, Progress, SessionIterator

_FORMAT = "torchparquet.UnbatchedDataset"


def rows_to_skip(session: Member, *, is_beginning: bool = False) -> int:
    """Return the rows of the first batch that were delivered before a state was taken."""
    start = session.next_start()
    if not isinstance(session, MixSession) or start is None or start.state is None:
        return 0
    num_rows, world = start.state.skipped
    if num_rows and is_beginning and world != session.worlds():
        raise ValueError(
            "a state within a batch of a mix fits the same ranks and workers only, got "
            f"[world_size, num_workers] of its data sets {world}, here {session.worlds()}; take it "
            "between two batches"
        )
    return int(num_rows)


def state_of_rows(session: Member, progress: Progress[RowPlace] | None) -> dict[str, Any]:
    """Return the state of an iteration, or of the data set if none is under way.

    Of a mix it leads to the batch, and says how many of its rows were delivered.
    """
    place = None if progress is None or progress.has_ended else progress.position
    num_rows = 0
    if place is None or place.batch.mark is None:
        state, num_rows = session.latest_state(), rows_to_skip(session)
    elif place.batch.num_rows is None and not place.used:
        state = session.state_at(place.batch.mark)
    else:
        found = place.state(session)
        state, num_rows = found["state"], found.get("used", 0)
    if not isinstance(session, MixSession):
        return state
    return {"format": _FORMAT, "state": state, "rows": num_rows, "world": session.worlds()}


def load_state_of_rows(session: Member, state: dict[str, Any]) -> None:
    """Make the next iteration, and a live one, resume at `state`."""
    if not isinstance(session, MixSession):
        session.load_state_dict(state)
        return
    if not isinstance(state, dict):
        raise TypeError(f"state must be a dict, got {type(state).__name__}")
    if state.get("format") != _FORMAT:
        raise ValueError(f"state must be a state of the rows of a mix, got keys {sorted(state)}")
    session.load_state_dict(state["state"], (state["rows"], state["world"]))


class RowIteration(ExactIterator[Row, RowPlace]):
    """The rows of one iteration over a data set.

    `next` raises:
        StopIteration: After the last row.
        TransformError: A user's function failed. The iterator stays before the row, as it does
            before an unreadable batch.
    """

    def __init__(
        self,
        rows: SessionDataset[Row],
        session: Member,
        batches: SessionIterator[Batch, Any],
        transforms: Transforms | None,
    ) -> None:
        """Prepare to iterate; reads nothing yet."""
        super().__init__()
        self.batches = batches
        self._rows = rows
        self._session = session
        self._transforms = transforms
        self._texts = texts_of(session.fields)
        self._cursor: RowCursor | None = None
        # A batch, its rows, and the number of rows to return.
        self._split: tuple[BatchRecord | None, list[Row], int] = (None, [], 0)

    def _next_item(self) -> tuple[Row, RowPlace]:
        record, used = self._settled()
        of_rows, rows, end = self._split
        if record is not of_rows or used >= end:
            record, used = self._split_batch(RowPlace(record, used))
            rows = self._split[1]
        row, transforms = rows[used], self._transforms
        if transforms is not None:
            place = RowPlace(record, used)
            row = transforms.apply(row, lambda _: self._origin(place))
        return row, RowPlace(record, used + 1)

    def _settled(self) -> RowPlace:
        progress = self.progress
        if progress.position is None or self.batches.progress.position is None:
            # It begins, or goes on at a state that was loaded meanwhile.
            skipped = rows_to_skip(self._session, is_beginning=True)
            progress.move(RowPlace(BatchRecord(0, None, 0, None), skipped))
        place = super()._settled()
        if progress.has_ended:
            raise StopIteration
        return place

    def _go_to(self, position: RowPlace | None) -> RowPlace:
        assert position is not None  # noqa: S101
        if position.batch.mark is None:
            # Nothing is read before the mark is recorded: no exception can lose the first batch.
            mark = self.batches.begin()
            taken, end = self._session.rows(mark)
            position = RowPlace(BatchRecord(0, mark, taken, end), position.used)
            self._cursor = RowCursor(self._session, self.batches, position)
            self.progress.position = position
        return position

    def _split_batch(self, place: RowPlace) -> RowPlace:
        """Split the batch of the next row, and return the place of that row."""
        cursor = self._cursor
        assert cursor is not None  # noqa: S101
        cursor.release(place)
        while True:
            found = cursor.batch_at(place)
            if found is None:
                self.progress.has_ended = True
                raise StopIteration
            place, batch = found
            num_rows = num_rows_of(batch)
            end = num_rows if place.left is None else min(num_rows, place.used + place.left)
            if place.used < end:
                break
            # Other ranks have no counterpart for the rest.
            self.progress.position = place = RowPlace(place.batch, num_rows)
            cursor.release(place)
        check_rows(batch, num_rows)
        self._split = (place.batch, split_rows(batch, self._texts), end)
        return place

    def _origin(self, place: RowPlace) -> object:
        return self.batches.origin(place.used - (place.batch.num_rows or 0))

    def state_dict(self) -> dict[str, Any]:
        """Return where this iterator stands."""
        if self.progress.position is None:
            return self._rows.state_dict()
        return state_of_rows(self._session, self.progress)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume at `state`; a DataLoader worker loads it after it has begun to iterate."""
        load_state_of_rows(self._session, state)
        self.batches.progress.move(None)

    def seek(self, step: int) -> None:
        """Refuse: rows have no steps."""
        raise TypeError(
            "rows one by one have no step to go to: load a state, or seek in the data set of "
            "batches before iter()"
        )

    def close(self) -> None:
        """Join the threads and give up the batches in flight. Idempotent."""
        self.batches.close()
