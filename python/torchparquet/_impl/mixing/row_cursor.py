"""Takes the rows of one data set from its batches, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from torchparquet._impl.batches.batch_rows import check_rows, num_rows_of, sliced
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.session.planner import Place

if TYPE_CHECKING:
    from torchparquet._impl.mixing.mix_session import Member
    from torchparquet._impl.session.session_iterator import SessionIterator


@dataclass(frozen=True)
class BatchRecord:
    """A batch of a data set without its rows: the facts to read it again.

    Attributes:
        number: Number of the batch among all that the cursor reads; the same if read again.
        mark: Position of the iterator before the batch; None before it has begun.
        end: Rows of the epoch that all ranks can take; None if that is not known before.
        num_rows: Rows of the batch; None before it was read.
        after: Position of the iterator after the batch, once it was read.
    """

    number: int
    mark: Any
    rows_before: int
    end: int | None
    num_rows: int | None = None
    after: Any = None


class RowPlace(NamedTuple):
    """The place of the next row: its batch, or the one before, which is then used up."""

    batch: BatchRecord
    used: int

    @property
    def taken(self) -> int:
        """Rows taken of the epoch."""
        return self.batch.rows_before + self.used

    @property
    def left(self) -> int | None:
        """Rows of the epoch that all ranks can still take; None if that is not known before."""
        return None if self.batch.end is None else self.batch.end - self.taken

    @property
    def is_at_end(self) -> bool:
        """True if the batch is used up."""
        return self.batch.num_rows is not None and self.used >= self.batch.num_rows

    def state(self, session: Member) -> dict[str, Any]:
        """Return a state of the data set that leads to the row; see `state_of_row`."""
        if self.is_at_end:
            return session.state_of_row(self.batch.after, 0, self.taken)
        return session.state_of_row(self.batch.mark, self.used, self.taken)


class _Read(NamedTuple):
    """The batches that were read and are kept, and the next one to read."""

    held: tuple[tuple[BatchRecord, Batch], ...]
    following: BatchRecord


class RowCursor:
    """Reads the rows of one data set from any place, fastest in order; the caller keeps the places.

    It holds the batches that were read and are not used up.
    """

    def __init__(
        self, session: Member, batches: SessionIterator[Batch, Any], first: RowPlace
    ) -> None:
        """Read from `first` on; nothing is read yet."""
        self.batches = batches
        self._session = session
        self._read = _Read((), first.batch)

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
                num_held += self._read.held[at][0].num_rows or 0
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

    def release(self, place: RowPlace) -> None:
        """Give up the batches before `place`."""
        held, following = self._read
        at = place.batch.number + place.is_at_end
        if held and held[0][0].number < at:
            self._read = _Read(tuple(one for one in held if one[0].number >= at), following)

    @property
    def example(self) -> Batch | None:
        """A batch of the data set, if the cursor holds one."""
        return self._read.held[0][1] if self._read.held else None

    def _index(self, place: RowPlace) -> int:
        """Return the index of the held batch with the row; their number for the next batch."""
        held, following = self._read
        at = place.batch.number + place.is_at_end - following.number + len(held)
        if 0 <= at <= len(held):
            return at
        record = _following(place.batch, place.taken) if place.is_at_end else place.batch
        self._read = _Read((), replace(record, num_rows=None, after=None))
        return 0

    def _read_batch(self) -> bool:
        """Read the next batch; return True if there was one."""
        batches, read = self.batches, self._read
        following = read.following
        # After an exception the batch is read again.
        batches.go_back(following.mark)
        batch = next(batches, None)
        if batch is None:
            return False
        check_rows(batch, batches.num_rows_read)
        if self._read is not read:
            raise RuntimeError("the data set was moved while a batch of it was read")
        after: Any = batches.progress.position
        num_rows = num_rows_of(batch)
        record = replace(following, num_rows=num_rows, after=after)
        if after.epoch != following.mark.epoch:
            mark: Any = self._session.placed(None, after.epoch)
            if isinstance(mark, Place):
                mark = mark._replace(claims=after.claims)
            record = replace(record, mark=mark, rows_before=0, end=self._session.rows(mark)[1])
        held = (*read.held, (record, batch))
        self._read = _Read(held, _following(record, record.rows_before + num_rows))
        return True


class RowCounter:
    """Stands for a `RowCursor` where rows are counted, not read, and their number is known."""

    def available(self, place: RowPlace, wanted: int) -> int:
        """Return how many of `wanted` rows exist."""
        assert place.left is not None  # noqa: S101
        return min(wanted, place.left)

    def rows(self, place: RowPlace, wanted: int) -> tuple[list[Batch], RowPlace]:
        """Return no rows, and the place after them: only its state knows of which batch it is."""
        return [], RowPlace(place.batch, place.used + wanted)


def _following(record: BatchRecord, taken: int) -> BatchRecord:
    return BatchRecord(record.number + 1, record.after, taken, record.end)
