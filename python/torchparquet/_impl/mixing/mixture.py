"""One epoch of a mix of whole batches."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchparquet._impl.batches.batch_rows import num_rows_of
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.mixing.mix_order import BatchOrder, with_item
from torchparquet._impl.mixing.mix_session import Ended, MixPosition, MixSession, MixTotals
from torchparquet._impl.session.session import Start
from torchparquet._impl.session.session_iterator import SessionIterator, Skipping


class Mixture(SessionIterator[Batch, MixPosition]):
    """One epoch of a mix whose batches are those of its data sets; `RowMixture` is another kind.

    `next` raises:
        RuntimeError: A data set has fewer batches than its length, or the iterator was closed.
        SchemaMismatchError: Rows are mixed, and two data sets differ in their columns.
        StopIteration: After the last batch.
    """

    _session: MixSession
    totals: MixTotals

    def __init__(self, session: MixSession, led_at: tuple[Any, int] | None = None) -> None:
        """Prepare to iterate; reads nothing yet."""
        super().__init__(session, led_at)
        self.totals = session.new_totals()
        self.first: MixPosition | None = None
        # By number. They begin with the mix, so that ranks which cannot begin say so.
        self._iterators: dict[int, SessionIterator[Batch, Any]] = {}
        self._latest_order: BatchOrder | None = None
        session.follow(self)

    def _first_position(self) -> MixPosition:
        session = self._session
        if self.led_at is None:
            self.first = session.begin(self.progress, partial(session.resolved, place=self._lead))
        else:
            state, epoch = self.led_at
            start = None if state is None else Start(None, session.read_state(state))
            self.first = session.resolved(start, epoch, self._lead)
        return self.first

    def _lead(self, number: int, state: Any, epoch: int) -> Any:
        """Begin to iterate over a data set, and return its place."""
        if number in self._iterators:
            self._iterators.pop(number).close()
        made = self._session.members[number].lead(state, epoch)
        self._iterators[number] = made
        self.totals.parts[number] = made.totals
        return made.begin()

    def _iterator(self, number: int) -> SessionIterator[Batch, Any]:
        """Return the iterator of a data set, also of one that comes to the mix with a position."""
        if number not in self._iterators:
            self._lead(number, None, self.begin().progress.epoch_of(number))
            self._iterators[number].is_held = self.is_held
        return self._iterators[number]

    def _agree(self, begun: MixPosition) -> None:
        """Each data set compares its ranks when it takes its own epoch."""

    def _go_on(self, begun: MixPosition) -> None:
        for iterator in self._iterators.values():
            iterator.is_held = False

    def _next_item(self) -> tuple[Batch, MixPosition]:
        if self.closed:
            self._check_usable()
        if self._looks and not self.is_held:
            self.take_epoch()
        position = self._settled()
        if self.over:
            self.take_epoch()
            if not self.is_led:  # else the mix that leads it may go on with its next epoch
                self._close_all()
            self.progress.has_ended = True
            raise StopIteration
        return self._take(self.progress.position or position)

    def _go_to(self, position: MixPosition | None) -> MixPosition:
        self._check_usable()
        position = self.begin()
        self._looks = self._begun is not None
        return position

    def _check_usable(self) -> None:
        position = self.progress.position
        if self._closed and position is not None and self._session.mixing.is_over(position):
            raise StopIteration
        super()._check_usable()

    @staticmethod
    def begun(
        session: MixSession, position: MixPosition, worker: tuple[int, int] | None
    ) -> MixPosition:
        """Return a position with the batches of each data set."""
        progress = position.progress
        num_batches = [
            progress.delivered[number] + _left(session, number, place, worker)
            for number, place in enumerate(position.places)
        ]
        order = BatchOrder(position.options, progress, num_batches)
        position = replace(position, progress=order.progress, num_batches=tuple(order.num_batches))
        return _with_rounds(session, position, order, worker)

    @staticmethod
    def batches_left(position: MixPosition) -> int:
        """Return the batches of the epoch that are left."""
        return _order_at(position).count_all()

    @staticmethod
    def is_over(position: MixPosition) -> bool:
        """Return True if no batch is left, as far as that is known without reading."""
        return position.progress.over or _order_at(position).next is None

    @property
    def over(self) -> bool:
        """True if no batch is left; may read one ahead to know, and move the position on."""
        position = self.begin()
        return position.progress.over or self._order(position).next is None

    def _order(self, position: MixPosition) -> BatchOrder:
        order = self._latest_order
        if order is None or order.progress is not position.progress:
            self._latest_order = order = _order_at(position)
        return order

    def _take(self, position: MixPosition) -> tuple[Batch, MixPosition]:
        """Return the batch at a position, and the position after it."""
        order = self._order(position)
        number = order.next
        assert number is not None  # noqa: S101
        iterator = self._iterator(number)
        iterator.go_back(position.places[number])
        batch = next(iterator, None)
        if batch is None:
            raise RuntimeError(
                f"data set {number} ended after {position.progress.delivered[number]} batches, "
                f"its length is {order.num_batches[number]}"
            )
        batch = self._marked(batch, number)
        return batch, _counted(self._session, position, order, iterator.progress.position)

    def pass_over(self, num_items: int) -> int:
        """Go on after the next batches, which are not read; return how many of them there are."""
        position, passed = self.begin(), 0
        owed = [0] * len(position.places)  # by data set: batches between its place and the next one
        while passed < num_items and (number := self._order(position).next) is not None:
            place = position.places[number]
            position = _counted(self._session, position, self._order(position), place)
            owed[number] = owed[number] + 1 if position.places[number] is place else 0
            passed += 1
        for number in filter(owed.__getitem__, range(len(owed))):
            iterator, places = self._iterator(number), position.places
            iterator.go_back(places[number])
            iterator.pass_over(owed[number])
            place = iterator.progress.position
            position = replace(position, places=with_item(places, number, place))
        self.progress.move(position)
        return passed

    def origin(self, row: int | None = None) -> object:
        """Return where the latest batch is from, or row `row` of it, to be shown."""
        batch = f"batch {self.begin().progress.num_drawn - 1} of a mix"
        return batch if row is None else f"row {row} of {batch}"

    def seek(self, step: int) -> None:
        """Refuse: what comes before a batch says which data set it is of."""
        raise TypeError(
            "a mix has no step to go to: load a state of the mix, or seek in a data set alone"
        )

    def close(self) -> None:
        """End the iterations over the data sets. Idempotent."""
        self._closed = True
        self._close_all()

    def _close_all(self) -> None:
        for iterator in self._iterators.values():
            iterator.close()

    def _marked(self, batch: Batch, number: int) -> Batch:
        """Return the batch; if wanted, with the number of its data set per row, int64 `[B]`."""
        key = self._session.source_key
        if key is None:
            return batch
        if key in batch:
            raise ValueError(f"source_key must be the name of no column, got {key!r}")
        leaves = (getattr(value, "values", value) for value in batch.values())
        device = next((leaf.device for leaf in leaves if isinstance(leaf, Tensor)), None)
        numbers = torch.full((num_rows_of(batch),), number, dtype=torch.int64, device=device)
        return batch | {key: numbers}


class SkippingMixture(Skipping[MixPosition], Mixture):
    """A mix of batches for a loader that drops the first of them."""


def _order_at(position: MixPosition) -> BatchOrder:
    return BatchOrder(position.options, position.progress, position.num_batches)


def _left(session: MixSession, number: int, place: Any, worker: tuple[int, int] | None) -> int:
    """Return the batches that a data set has left."""
    if place is None or isinstance(place, Ended):
        return 0
    return session.members[number].batches_left(place, worker)


def _counted(
    session: MixSession, position: MixPosition, order: BatchOrder, place: Any
) -> MixPosition:
    """Return the position after the next batch, after which its data set is at `place`."""
    number = order.next
    assert number is not None  # noqa: S101
    order.count()
    places = with_item(position.places, number, place)
    after = MixPosition(order.progress, position.options, places, position.num_batches)
    return _with_rounds(session, after, order, None)


def _with_rounds(
    session: MixSession, position: MixPosition, order: BatchOrder, worker: tuple[int, int] | None
) -> MixPosition:
    """Return the position with the next rounds begun of data sets that are to be repeated."""
    if position.options.stopping != "repeat" or order.next is None:
        return position
    for number in position.progress.active:
        epoch = position.progress.epoch_of(number)
        if position.places[number].epoch != epoch:
            place = session.members[number].placed(None, epoch, worker)
            order.num_batches[number] = _left(session, number, place, worker)
            position = replace(
                position,
                places=with_item(position.places, number, place),
                num_batches=tuple(order.num_batches),
            )
    return position
