"""Reads the rows of one data set, and makes states after the rows taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torchparquet._impl.batches.batch_rows import check_rows, num_rows_of, sliced
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.mixing.members import (
    Mixable,
    RowMixable,
    begin_epoch,
    go_back,
    mark_of,
    rows_left,
)
from torchparquet._impl.session.state import after_rows


@dataclass(frozen=True)
class BatchRecord:
    """A batch of a data set without its rows: the facts to read it again.

    Attributes:
        number: Number of the batch among all that the cursor reads; reading it again keeps the
            number.
        epoch: Epoch of the data set; None if it is not known before the batch is read.
        mark: Position of the iterator before the batch; None if it cannot go back.
        state: State of the data set before the batch. None if its states lead to rows, unless it
            has none for this epoch.
        end: Rows of the epoch that all ranks can take; None if the data set does not say.
    """

    number: int
    epoch: int | None
    mark: Any
    state: Any
    rows_before: int
    end: int | None
    num_rows: int | None = None


class RowPlace(NamedTuple):
    """The place of the next row of a data set.

    Attributes:
        batch: The batch of the row; or the batch before, which is then used up.
    """

    batch: BatchRecord
    used: int

    @property
    def taken(self) -> int:
        """Rows taken of the epoch."""
        return self.batch.rows_before + self.used

    @property
    def left(self) -> int | None:
        """Rows of the epoch that all ranks can still take; None if the data set does not tell."""
        return None if self.batch.end is None else self.batch.end - self.taken

    @property
    def is_at_end(self) -> bool:
        """True if the batch is used up."""
        return self.batch.num_rows is not None and self.used >= self.batch.num_rows


class _Held(NamedTuple):
    """A batch that was read."""

    record: BatchRecord
    batch: Batch


class _Read(NamedTuple):
    """The batches that were read and are kept, and the next one to read."""

    held: tuple[_Held, ...]
    following: BatchRecord


class RowCursor:
    """Reads the rows of one data set from any place, fastest in order.

    The caller keeps the places. The cursor holds the batches that were read and are not used up. It
    goes back if the caller asks for an earlier place.

    A state holds the data set's state before the first batch that is not used up, and the number of
    rows taken of this batch. It fits the same batches only.
    """

    def __init__(self, dataset: Mixable) -> None:
        """Read by iterations over `dataset`; see `begin`."""
        manifest = getattr(dataset, "manifest", None)
        packed = None if manifest is None else getattr(manifest, "packed", None)
        if packed is not None and packed.unit == "batch":
            raise ValueError(
                "a data set with batch_size=ByLength(...) has no rows one by one, and no mix "
                "within batches; give it a number of rows"
            )
        self.dataset: Any = dataset
        self.batches: Iterator[Batch]
        self._read: _Read

    def begin(
        self, epoch: int | None, used: int = 0, taken: int = 0, state: Any = None
    ) -> RowPlace:
        """Begin to iterate, and return the first place."""
        self.batches = iter(self.dataset)
        return self._first_place(epoch, used, taken, state)

    def restart(self, used: int = 0, state: Any = None) -> RowPlace:
        """Continue at the start of the data set's next iteration, and return its first place."""
        return self.begin(None, used, used, state)

    def _first_place(self, epoch: int | None, used: int, taken: int, state: Any) -> RowPlace:
        taken, end, state = self._limits(epoch, taken, state)
        place = RowPlace(BatchRecord(0, epoch, None, state, taken - used, end), used)
        self._read = _Read((), place.batch)
        return place

    def begin_round(self, place: RowPlace, epoch: int) -> RowPlace:
        """Continue with another epoch of the data set, and return its first place."""
        # Skips one number: the first batch of an epoch does not follow the last of another.
        first = BatchRecord(place.batch.number + 2, epoch, None, None, 0, None)
        # Set first, so that after an exception in between earlier places count as gone.
        self._read = _Read((), first)
        begin_epoch(self.dataset, epoch)
        self.batches = iter(self.dataset)
        _, end, _ = self._limits(epoch, 0, None)
        first = replace(first, end=end)
        self._read = _Read((), first)
        return RowPlace(first, 0)

    def available(self, place: RowPlace, wanted: int) -> int:
        """Return how many of `wanted` rows exist; reads batches to know."""
        if place.left is not None:
            wanted = min(wanted, place.left)
        if wanted <= 0:
            return 0
        at = self._index(place)
        num_held = -place.used if not place.is_at_end else 0
        while True:
            while at < len(self._read.held):
                num_held += self._read.held[at].record.num_rows or 0
                at += 1
            if num_held >= wanted or not self._read_batch():
                return max(0, min(wanted, num_held))

    def rows(self, place: RowPlace, wanted: int) -> tuple[list[Batch], RowPlace]:
        """Return the next rows, which must be available, in pieces, and the place after them."""
        pieces = []
        while wanted:
            found = self.batch_at(place)
            assert found is not None  # noqa: S101
            (record, used), batch = found
            end = min(record.num_rows or 0, used + wanted)
            pieces.append(sliced(batch, used, end))
            wanted -= end - used
            place = RowPlace(record, end)
        return pieces, place

    def batch_at(self, place: RowPlace) -> tuple[RowPlace, Batch] | None:
        """Return the batch of the row at `place`, and the place in it; None if no row is left."""
        at = self._index(place)
        used = 0 if place.is_at_end else place.used
        while True:
            if at >= len(self._read.held) and not self._read_batch():
                return None
            record, batch = self._read.held[at]
            if used < (record.num_rows or 0):
                return RowPlace(record, used), batch
            at, used = at + 1, 0

    def known(self, place: RowPlace) -> RowPlace:
        """Return the place with the known facts of its batch; reads nothing."""
        at = self._found(place)
        if not 0 <= at < len(self._read.held):
            return place
        return RowPlace(self._read.held[at].record, 0 if place.is_at_end else place.used)

    def release(self, place: RowPlace) -> None:
        """Give up the batches before `place`."""
        held, following = self._read
        at = place.batch.number + place.is_at_end
        if held and held[0].record.number < at:
            self._read = _Read(tuple(one for one in held if one.record.number >= at), following)

    @property
    def example(self) -> Batch | None:
        """A batch of the data set, if the cursor holds one."""
        return self._read.held[0].batch if self._read.held else None

    def _index(self, place: RowPlace) -> int:
        """Return the index of the held batch with the row; their number for the next batch."""
        at = self._found(place)
        if at < 0:
            self._go_back_to(place.batch)
            if place.is_at_end:
                # Reading this batch again leads to the batch after it.
                self._read_batch()
            at = self._found(place)
        return at

    def _found(self, place: RowPlace) -> int:
        held, following = self._read
        at = place.batch.number + place.is_at_end - following.number + len(held)
        return at if at <= len(held) else -1

    def _go_back_to(self, record: BatchRecord) -> None:
        if record.mark is None and record.num_rows is not None:
            raise RuntimeError(
                "this iteration over a mix was interrupted within a batch by an exception, and its "
                "rows are lost to it: iterate again, from a state that was taken before"
            )
        if record.epoch != self._read.following.epoch and record.epoch is not None:
            begin_epoch(self.dataset, record.epoch)
            self.batches = iter(self.dataset)
        self._read = _Read((), replace(record, num_rows=None))

    def _read_batch(self) -> bool:
        """Read the next batch; return True if there was one."""
        batches = self.batches
        self._settle_read()
        read = self._read
        following = read.following
        state = self._state_before(following)
        batch = next(batches, None)
        if batch is None:
            return False
        check_rows(batch, getattr(batches, "num_rows_read", None))
        num_rows = num_rows_of(batch)
        if self._read is not read:
            raise RuntimeError("the data set was moved while a batch of it was read")
        record = self._entered(replace(following, state=state, num_rows=num_rows))
        after = replace(
            record,
            number=record.number + 1,
            mark=mark_of(batches),
            state=None,
            rows_before=record.rows_before + num_rows,
            num_rows=None,
        )
        self._read = _Read((*read.held, _Held(record, batch)), after)
        return True

    def _settle_read(self) -> None:
        """Bring the iterator to the next batch to read."""
        held, following = self._read
        if following.mark is None:
            # From here on an exception cannot lose the first batch.
            mark = mark_of(self.batches)
            if mark is not None:
                self._read = _Read(held, replace(following, mark=mark))
        else:
            go_back(self.batches, following.mark)

    def settle(self) -> None:
        """Bring the data set back to the next batch to read."""
        go_back(self.batches, self._read.following.mark)

    def _limits(self, epoch: int | None, taken: int, state: Any) -> tuple[int, int | None, Any]:
        """Return the rows taken of the epoch, its end, and the state before the next batch."""
        if epoch is None:
            return taken, None, state
        (left,) = rows_left(self.dataset, epoch, taken)
        return taken, None if left is None else taken + left, state

    def _entered(self, record: BatchRecord) -> BatchRecord:
        """Return the record of a batch that was read, which may have begun another epoch."""
        return record

    def _state_before(self, following: BatchRecord) -> Any:
        return self.dataset.state_dict()

    def state_dict(self, place: RowPlace) -> dict[str, Any]:
        """Return a state of the data set that `load_rows` brings back to `place`."""
        at, used = self._index(place), 0 if place.is_at_end else place.used
        if at < len(self._read.held):
            state = self._read.held[at].record.state
        else:
            self.settle()
            state = self.dataset.state_dict()
        return {"state": state, "used": used, "taken": place.taken}


class PreciseRowCursor(RowCursor):
    """Reads the rows of a data set whose own states lead to a row, also in another world."""

    def begin(
        self, epoch: int | None, used: int = 0, taken: int = 0, state: Any = None
    ) -> RowPlace:
        """Begin to iterate, and return the first place; see `RowCursor.begin`."""
        place = super().begin(epoch, used, taken, state)
        self.state_dict(place)  # Raises here, not later, if no state leads to a row.
        return place

    def _limits(self, epoch: int | None, taken: int, state: Any) -> tuple[int, int | None, Any]:
        (reach,) = self.dataset.reaches()
        if reach.epoch != epoch:
            # This world has no row left.
            return 0, 0, state
        return reach.num_rows, reach.end_rows, None

    def _state_before(self, following: BatchRecord) -> Any:
        return None

    def state_dict(self, place: RowPlace) -> dict[str, Any]:
        """Return a state of the data set that `load_rows` brings back to `place`."""
        if place.batch.state is not None:
            return {"state": place.batch.state}
        if self._found(place) < 0:
            self._go_back_to(place.batch)
        return {"state": self.dataset.state_at_row(place.taken)}


def row_cursor(
    dataset: Mixable, state: Mapping[str, Any] | None, epoch: int
) -> tuple[RowCursor, RowPlace]:
    """Return a cursor over a data set's `epoch` from `state` on; None for its start."""
    if isinstance(dataset, RowMixable):
        precise = PreciseRowCursor(dataset)
        if state is None:
            return precise, precise.begin(epoch)
        load_rows(dataset, state)
        return precise, precise.begin(epoch, state=state["state"])
    cursor = RowCursor(dataset)
    if state is None:
        return cursor, cursor.begin(epoch)
    load_rows(dataset, state)
    return cursor, cursor.begin(epoch, state["used"], state["taken"])


def load_rows(dataset: Mixable, state: Mapping[str, Any]) -> None:
    """Make a data set resume at a state by `RowCursor.state_dict`."""
    of_dataset = state["state"]
    if isinstance(dataset, RowMixable) and state.get("used"):
        of_dataset = after_rows(of_dataset, state["used"])
    dataset.load_state_dict(of_dataset)
