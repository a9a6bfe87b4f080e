"""An iteration that begins with its first item, and takes its epoch with the second."""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from torchparquet._impl.metrics.read_metrics import Metrics
from torchparquet._impl.ranks.sharding import in_worker
from torchparquet._impl.session.exact_iterator import ExactIterator, Item

if TYPE_CHECKING:
    from torchparquet._impl.session.session import Session


class _OfEpoch(Protocol):
    @property
    def epoch(self) -> int: ...


Position = TypeVar("Position", bound=_OfEpoch)


class Totals(Protocol):
    """What was read, added up."""

    def metrics(self) -> Metrics:
        """Return what was read so far."""


class SessionIterator(ExactIterator[Item, Position]):
    """An iteration over a data set or a mix.

    The first `next` begins it, and the second one takes its epoch: an iterator that is dropped
    before is a look, which leaves epochs and other ranks alone. One that a mix leads leaves the
    epochs of its data set alone.
    """

    totals: Totals
    _session: Session[Position]

    def __init__(self, session: Session[Position], led_at: tuple[Any, int] | None) -> None:
        """Prepare to iterate; the last act of a subclass is `session.follow(self)`."""
        super().__init__()
        self._session = session
        self.led_at = led_at
        self.is_held = self.is_led  # does not take its epoch by itself
        self._begun: Position | None = None  # where it began, until it takes the epoch
        self._looks = False
        self._owner_pid = os.getpid()
        self._closed = False

    @property
    def is_led(self) -> bool:
        """True if a mix leads the iteration."""
        return self.led_at is not None

    @property
    def num_rows_read(self) -> int | None:
        """Rows of the latest batch for the user's functions to keep; None without functions."""
        return None

    @abstractmethod
    def origin(self, row: int | None = None) -> object:
        """Return where the latest item is from, or row `row` of it, to be shown."""

    @abstractmethod
    def _first_position(self) -> Position:
        """Return where the iteration begins."""

    @abstractmethod
    def _agree(self, begun: Position) -> None:
        """Take the epoch on all ranks or on none."""

    @abstractmethod
    def _go_on(self, begun: Position) -> None:
        """Take note that the epoch was taken."""

    def begin(self) -> Position:
        """Begin the iteration where it has not begun, and return where it stands."""
        session, position = self._session, self.progress.position
        if position is None:
            if not self.is_led:
                session.take_epoch_of_look()
            position = self._begun = self._first_position()
            self.progress.position = position
            if not self.is_led:
                session.count_look(position)
        session.follow_begun(self.progress)
        return position

    def take_epoch(self) -> None:
        """Take the epoch, which all ranks begin or none; not again."""
        self.begin()
        begun = self._begun
        if begun is not None:
            self._agree(begun)
            if not self.is_led:
                self._session.commit(self.progress)
                self._session.count_look(None)
            self._go_on(begun)
            self._begun = None
        self._looks = False

    @property
    def is_look(self) -> bool:
        """True if it began, here or in a worker's parent, and has not taken its epoch."""
        is_inherited = self._owner_pid != os.getpid()
        return self._looks and not self.closed and (not is_inherited or in_worker())

    @property
    def closed(self) -> bool:
        """True if the iterator was closed or has ended."""
        return self._closed or self.progress.has_ended

    def _check_usable(self) -> None:
        if os.getpid() != self._owner_pid:
            raise RuntimeError(
                "this iterator was made in another process; begin a new iteration in this process"
            )
        if self.progress.has_ended:
            raise StopIteration
        if self._closed:
            raise RuntimeError(
                f"the {self._session.what} was closed while this iterator was in use: begin a new "
                "iteration"
            )

    def go_back(self, mark: Position) -> None:
        """Deliver again what was delivered since `mark`, which serves any number of times."""
        position = self.begin()
        if position is not mark:
            if not self.is_led and position.epoch != mark.epoch:
                self._session.number_next(self.progress, mark.epoch)
            self.progress.move(mark)

    def state_dict(self) -> dict[str, Any]:
        """Return where this iterator stands; see `ParquetDataset.state_dict`."""
        return self._session.state_at(self.progress.position)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`; see `ParquetDataset.load_state_dict`."""
        self._session.load_state_dict(state)
        self.progress.move(None)
