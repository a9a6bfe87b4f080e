"""Batches that mix the rows of several data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from torchparquet._impl.batches.batch_rows import check_alike, joined
from torchparquet._impl.batches.fields import Field
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.mixing.mix_order import (
    MixProgress,
    num_row_batches,
    rows_granted,
    with_item,
)
from torchparquet._impl.mixing.mix_session import Ended, Member, MixPosition, MixSession
from torchparquet._impl.mixing.mixture import Mixture
from torchparquet._impl.mixing.row_cursor import BatchRecord, RowCounter, RowCursor, RowPlace
from torchparquet._impl.session.session_iterator import Skipping
from torchparquet.errors import SchemaMismatchError

_CursorOf: TypeAlias = Callable[[MixPosition, int], RowCursor | RowCounter]


class RowMixture(Mixture):
    """One epoch of a mix whose every batch has rows of all data sets; places are those of rows."""

    def __init__(self, session: MixSession, led_at: tuple[Any, int] | None = None) -> None:
        """Prepare to iterate; reads nothing yet."""
        self._cursors: dict[int, RowCursor] = {}
        self._checked = False
        self._over_at: MixPosition | None = None
        self._latest_granted: tuple[MixProgress | None, int, list[int]] = (None, 0, [])
        super().__init__(session, led_at)

    @staticmethod
    def begun(
        session: MixSession, position: MixPosition, worker: tuple[int, int] | None
    ) -> MixPosition:
        """Return a position with the next row of each data set."""
        places = [
            None if at is None else _row_place(member, at, worker)
            for member, at in zip(session.members, position.places, strict=True)
        ]
        return replace(position, places=tuple(places))

    @staticmethod
    def batches_left(position: MixPosition) -> int:
        """Return the batches of the epoch that are left."""
        left = _known_left(position)
        if left is None:
            raise TypeError("a mix within batches has no len: a data set does not say its rows")
        return num_row_batches(position.options, position.progress, left)

    @staticmethod
    def is_over(position: MixPosition) -> bool:
        """Return True if no batch is left, as far as that is known without reading."""
        progress, left = position.progress, _known_left(position)
        if progress.over or left is None:
            return progress.over
        if position.options.stopping == "first_exhausted":
            granted = rows_granted(position.options, progress, _batch_size(position))
            return any(num < rows for num, rows in zip(left, granted, strict=True))
        for number, num in zip(progress.active, left, strict=True):
            progress = progress if num else progress.exhausted([number])
        return all(progress.rounds)

    def _lead(self, number: int, state: Any, epoch: int) -> Any:
        self._cursors.pop(number, None)
        return super()._lead(number, state, epoch)

    def _cursor(self, position: MixPosition, number: int) -> RowCursor:
        if number not in self._cursors:
            made = RowCursor(
                self._session.members[number], self._iterator(number), position.places[number]
            )
            self._cursors[number] = made
        return self._cursors[number]

    def _take(self, position: MixPosition) -> tuple[Batch, MixPosition]:
        for number, cursor in self._cursors.items():
            cursor.release(position.places[number])
        self._check(position)
        # An unreadable data set raises before rows of others are copied.
        for number, rows in self._granted(position, _batch_size(position)):
            self._cursor(position, number).available(position.places[number], rows)
        pieces, position = self._pieces(position, self._cursor)
        return joined(pieces), position

    def _pieces(
        self, position: MixPosition, cursor_of: _CursorOf
    ) -> tuple[list[Batch], MixPosition]:
        """Return the rows of the next batch in pieces, and the position after it."""
        wanted = _batch_size(position)
        pieces: list[Batch] = []
        while wanted and position.progress.active:
            position, found, num_rows = self._rows(position, wanted, cursor_of)
            pieces += found
            wanted -= num_rows
        return pieces, position

    def pass_over(self, num_items: int) -> int:
        """Go on after the next batches, which are not read; return how many of them there are."""
        session, position, passed = self._session, self.begin(), 0
        while True:
            is_over, position = self._without_ended(position)
            if is_over or passed == num_items:
                break
            _, position = self._pieces(position, lambda *_: RowCounter())
            passed += 1
        if is_over:
            position = replace(position, progress=replace(position.progress, over=True))
        elif passed:
            # As a resumed mix finds the batches of the next rows.
            position = session.placed(session.state_of(position), position.epoch)
        self._cursors.clear()
        self.progress.move(position)
        return passed

    def _granted(self, position: MixPosition, wanted: int) -> Iterator[tuple[int, int]]:
        """Yield the active data sets, and how many of the next rows each gives."""
        progress, num_rows, granted = self._latest_granted
        if progress is not position.progress or num_rows != wanted:
            granted = rows_granted(position.options, position.progress, wanted)
            self._latest_granted = position.progress, wanted, granted
        yield from zip(position.progress.active, granted, strict=True)

    def _has(self, position: MixPosition, number: int, wanted: int) -> bool:
        """Return whether a data set has as many rows left; reads batches if nobody knows."""
        place = position.places[number]
        if place.left is not None:
            return bool(place.left >= wanted)
        return self._cursor(position, number).available(place, wanted) >= wanted

    @property
    def over(self) -> bool:
        """True if no batch is left; may read one ahead to know."""
        position = self.begin()
        if self._over_at is position:
            return True
        is_over, self.progress.position = self._without_ended(position)
        if is_over:
            self._over_at = self.progress.position
        return is_over

    def _without_ended(self, position: MixPosition) -> tuple[bool, MixPosition]:
        """Return whether no batch is left, and the position without data sets that have ended."""
        if position.progress.over:
            return True, position
        if self._session.options.stopping == "first_exhausted":
            granted = self._granted(position, _batch_size(position))
            return not all(self._has(position, *each) for each in granted), position
        position = self._without_exhausted(position)
        return all(position.progress.rounds), position

    def _without_exhausted(self, position: MixPosition) -> MixPosition:
        """Return the position after data sets without a row left have gone or begun anew."""
        progress = position.progress
        empty = [number for number in progress.active if not self._has(position, number, 1)]
        if not empty:
            return position
        progress = progress.exhausted(empty)
        if position.options.stopping == "all_exhausted":
            progress = progress.without(empty)
        position = replace(position, progress=progress)
        if position.options.stopping == "repeat" and not all(progress.rounds):
            for number in empty:
                position = self._with_round_begun(position, number)
        return position

    def _rows(
        self, position: MixPosition, wanted: int, cursor_of: _CursorOf
    ) -> tuple[MixPosition, list[Batch], int]:
        """Return the position after rows, these, and their number: fewer if a data set leaves."""
        empty: list[int] = []
        pieces: list[Batch] = []
        num_rows = 0
        for number, left in list(self._granted(position, wanted)):
            while left:
                cursor = cursor_of(position, number)
                available = cursor.available(position.places[number], left)
                if available:
                    found, place = cursor.rows(position.places[number], available)
                    pieces += [self._marked(piece, number) for piece in found]
                    progress = position.progress
                    at = progress.active.index(number)
                    counts = with_item(progress.counts, at, progress.counts[at] + available)
                    position = replace(
                        position,
                        progress=replace(progress, counts=counts),
                        places=with_item(position.places, number, place),
                    )
                    num_rows += available
                    left -= available
                    continue
                position = replace(position, progress=position.progress.exhausted([number]))
                if position.options.stopping == "all_exhausted":
                    empty.append(number)
                    break
                position = self._with_round_begun(position, number)
        return replace(position, progress=position.progress.without(empty)), pieces, num_rows

    def _with_round_begun(self, position: MixPosition, number: int) -> MixPosition:
        member = self._session.members[number]
        mark: Any = member.placed(None, position.progress.epoch_of(number))
        # Skips one number: the first batch of an epoch does not follow the last of another.
        before = position.places[number].batch.number
        place = RowPlace(BatchRecord(before + 2, mark, 0, member.rows(mark)[1]), 0)
        position = replace(position, places=with_item(position.places, number, place))
        if not self._has(position, number, 1):
            raise ValueError(f"data sets to be repeated must have rows, data set {number} has none")
        return position

    def _check(self, position: MixPosition) -> None:
        if self._checked:
            return
        examples = {}
        for number in position.progress.active:
            cursor = self._cursor(position, number)
            cursor.available(position.places[number], 1)
            if cursor.example is not None:
                examples[f"data set {number}"] = cursor.example
        check_alike(list(examples.values()), list(examples))
        _check_numbers_alike([member.fields for member in self._session.members])
        self._checked = True


class SkippingRowMixture(Skipping[MixPosition], RowMixture):
    """A mix of rows for a loader that drops the first batches."""


def _check_numbers_alike(fields_of: Sequence[Sequence[Field]]) -> None:
    """Check that a value becomes the same number in all data sets."""
    first: dict[str, Field] = {}
    for number, fields in enumerate(fields_of):
        for field in fields:
            other = first.setdefault(field.name, field)
            if (other.words, other.transforms) != (field.words, field.transforms):
                raise SchemaMismatchError(
                    "data sets that are mixed within a batch need the same words and transforms of "
                    f"a column, such as vocab=dataset.fields[0].words: {field.name!r} has others "
                    f"in data set {number}"
                )


def _batch_size(position: MixPosition) -> int:
    batch_size = position.options.batch_size
    assert batch_size is not None  # noqa: S101
    return batch_size


def _row_place(member: Member, at: Any, worker: tuple[int, int] | None) -> RowPlace:
    """Return the place of the next row of a data set, from its position and the rows to skip."""
    if isinstance(at, Ended):
        return RowPlace(BatchRecord(0, at, 0, 0), 0)
    mark, used = at
    taken, end = member.rows(mark, worker)
    if end is None and any(world_size > 1 for world_size, _ in member.worlds()):
        raise ValueError(
            "rows of a mix cannot be mixed with others on several ranks, which may differ in their "
            "number: mix the rows of its data sets, each by the product of its weights"
        )
    place = RowPlace(BatchRecord(0, mark, taken, end), used)
    place.state(member)  # raises here, not later, if no state leads to a row
    return place


def _known_left(position: MixPosition) -> list[int] | None:
    """Return the rows left of each active data set; None if one does not say."""
    left = [position.places[number].left for number in position.progress.active]
    return None if None in left else left
