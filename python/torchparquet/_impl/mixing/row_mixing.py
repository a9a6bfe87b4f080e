"""Batches that mix the rows of several data sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchparquet._impl.batches.batch_rows import check_alike, joined
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.mixing.members import Mixable, rows_left
from torchparquet._impl.mixing.mix_order import MixOptions, MixProgress, RowOrder, with_item
from torchparquet._impl.mixing.mixture import Mixture
from torchparquet._impl.mixing.row_cursor import RowPlace, load_rows, row_cursor


@dataclass(frozen=True)
class RowsPosition:
    """The position of a mix of rows."""

    progress: MixProgress
    places: tuple[RowPlace, ...]


class RowMixture(Mixture[RowsPosition]):
    """One epoch of a mix whose every batch has rows of all data sets."""

    def __init__(
        self,
        options: MixOptions,
        datasets: Sequence[Mixable],
        progress: MixProgress,
        states: list[Any] | None,
        source_key: str | None,
    ) -> None:
        """Continue at `progress` with data sets at `states`; None for the start of an epoch."""
        super().__init__(options, datasets, progress, source_key)
        self._order = RowOrder(options)
        begun = [
            row_cursor(
                dataset, None if states is None else states[number], progress.epoch_of(number)
            )
            for number, dataset in enumerate(datasets)
        ]
        self._cursors = [cursor for cursor, _ in begun]
        self._rows_left = [place.left for _, place in begun]
        self._checked = False
        self._over_at: RowsPosition | None = None
        self._latest_granted: tuple[MixProgress | None, int, list[int]] = (None, 0, [])
        self.course.position = RowsPosition(progress, tuple(place for _, place in begun))

    @staticmethod
    def count(
        options: MixOptions,
        datasets: Sequence[Mixable],
        progress: MixProgress,
        states: list[Any] | None,
        num_workers: int,
    ) -> int:
        """Return the batches of all workers' epoch; see `Mixture.count`."""
        per_worker: list[list[int | None]] = [[] for _ in range(max(1, num_workers))]
        for number, dataset in enumerate(datasets):
            state = None if states is None else states[number]
            if state is not None:
                load_rows(dataset, state)
            taken = 0 if state is None else state.get("taken", 0)
            left = rows_left(dataset, progress.epoch_of(number), taken, num_workers)
            for worker, of_worker in enumerate(per_worker):
                # A data set that does not divide rows among workers is whole in each.
                of_worker.append(left[min(worker, len(left) - 1)])
        return _length(options, progress, per_worker)

    def _count_from(self, begin: MixProgress) -> int:
        return _length(self._options, begin, [self._rows_left])

    def _go_to(self, position: RowsPosition | None) -> RowsPosition:
        # Each data set goes back if its rows are not held any more.
        return self.begin()

    def _take(self, position: RowsPosition) -> tuple[Batch, RowsPosition]:
        wanted = self._options.batch_size
        assert wanted is not None  # noqa: S101
        for cursor, place in zip(self._cursors, position.places, strict=True):
            cursor.release(place)
        self._check(position)
        # An unreadable data set raises before rows of others are copied.
        list(self._read_ahead(position, wanted))
        pieces: list[Batch] = []
        while wanted and position.progress.active:
            position, found, num_rows = self._rows(position, wanted)
            pieces += found
            wanted -= num_rows
        return joined(pieces), position

    def _read_ahead(self, position: RowsPosition, wanted: int) -> Iterator[bool]:
        """Read the rows of a batch; yield for each data set True if it has as many."""
        granted = self._granted(position, wanted)
        for number, num_rows in zip(position.progress.active, granted, strict=True):
            yield self._cursors[number].available(position.places[number], num_rows) >= num_rows

    def _granted(self, position: RowsPosition, wanted: int) -> list[int]:
        """Return the number of the next rows that each active data set gives."""
        progress, num_rows, granted = self._latest_granted
        if progress is not position.progress or num_rows != wanted:
            granted = self._order.granted(position.progress, wanted)
            self._latest_granted = position.progress, wanted, granted
        return granted

    @property
    def over(self) -> bool:
        """True if no batch is left; may read one ahead to know."""
        position, stopping = self.begin(), self._options.stopping
        if self.closed or self._over_at is position:
            return True
        if stopping == "first_exhausted":
            assert self._options.batch_size is not None  # noqa: S101
            is_over = not all(self._read_ahead(position, self._options.batch_size))
        else:
            position = self._without_exhausted(position)
            self.course.position = position
            is_over = all(position.progress.rounds)
        if is_over:
            self._over_at = position
        return is_over

    def _without_exhausted(self, position: RowsPosition) -> RowsPosition:
        """Return the position after data sets without a row left have gone or begun anew."""
        progress = position.progress
        empty = [
            number
            for number in progress.active
            if not self._cursors[number].available(position.places[number], 1)
        ]
        if not empty:
            return position
        progress = progress.exhausted(empty)
        if self._options.stopping == "all_exhausted":
            progress = progress.without(empty)
        position = replace(position, progress=progress)
        if self._options.stopping == "repeat" and not all(progress.rounds):
            for number in empty:
                position = self._with_round_begun(position, number)
        return position

    def _iterators(self) -> Iterable[Any]:
        return [cursor.batches for cursor in self._cursors]

    def state_dicts(self) -> list[Any]:
        """Return the state of each data set."""
        places = self.begin().places
        return [
            cursor.state_dict(place) for cursor, place in zip(self._cursors, places, strict=True)
        ]

    def _rows(self, position: RowsPosition, wanted: int) -> tuple[RowsPosition, list[Batch], int]:
        """Return the position after rows of all data sets, the rows, and their number.

        They are fewer than wanted if a data set has no more and leaves.
        """
        empty: list[int] = []
        pieces: list[Batch] = []
        num_rows = 0
        granted = self._granted(position, wanted)
        for at, (number, left) in enumerate(zip(position.progress.active, granted, strict=True)):
            while left:
                available = self._cursors[number].available(position.places[number], left)
                if available:
                    position, found = self._with_rows(position, at, available)
                    pieces += found
                    num_rows += available
                    left -= available
                    continue
                progress = position.progress.exhausted([number])
                position = replace(position, progress=progress)
                if self._options.stopping == "all_exhausted":
                    empty.append(number)
                    break
                position = self._with_round_begun(position, number)
        return replace(position, progress=position.progress.without(empty)), pieces, num_rows

    def _with_rows(
        self, position: RowsPosition, at: int, num_rows: int
    ) -> tuple[RowsPosition, list[Batch]]:
        """Return the position after rows of the active data set `at`, and the rows."""
        progress = position.progress
        number = progress.active[at]
        pieces, place = self._cursors[number].rows(position.places[number], num_rows)
        counts = with_item(progress.counts, at, progress.counts[at] + num_rows)
        places = with_item(position.places, number, place)
        found = [self._marked(piece, number) for piece in pieces]
        return RowsPosition(replace(progress, counts=counts), places), found

    def _with_round_begun(self, position: RowsPosition, number: int) -> RowsPosition:
        cursor, epoch = self._cursors[number], position.progress.epoch_of(number)
        place = cursor.begin_round(position.places[number], epoch)
        if not cursor.available(place, 1):
            raise ValueError(f"data sets to be repeated must have rows, data set {number} has none")
        return replace(position, places=with_item(position.places, number, place))

    def _check(self, position: RowsPosition) -> None:
        if self._checked:
            return
        examples = {}
        for number in position.progress.active:
            self._cursors[number].available(position.places[number], 1)
            example = self._cursors[number].example
            if example is not None:
                examples[f"data set {number}"] = example
        check_alike(list(examples.values()), list(examples))
        self._checked = True


def _length(
    options: MixOptions, progress: MixProgress, per_worker: Sequence[Sequence[int | None]]
) -> int:
    assert options.batch_size is not None  # noqa: S101
    # All batches but the last are full.
    num = -(-progress.num_drawn // options.batch_size)
    for left in per_worker:
        known = [rows for number in progress.active if (rows := left[number]) is not None]
        if len(known) < len(progress.active):
            raise TypeError("a mix within batches has no len: a data set does not say its rows")
        num += RowOrder(options).count_all(progress, known)
    return num
