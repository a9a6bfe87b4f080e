"""Iterators that count each item exactly once, and take their epoch with the second one."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar

from torch._C._autograd import _profiler_enabled

from torchparquet._impl.metrics.read_metrics import Metrics
from torchparquet._impl.ranks.sharding import in_worker

if TYPE_CHECKING:
    from torchparquet._impl.session.session import Session

Item = TypeVar("Item")
At = TypeVar("At")


class _OfEpoch(Protocol):
    @property
    def epoch(self) -> int: ...


Position = TypeVar("Position", bound=_OfEpoch)


class Totals(Protocol):
    """What was read, added up."""

    def metrics(self) -> Metrics:
        """Return what was read so far."""


_MOVED: Any = object()  # stands for a position that somebody else than the iterator has recorded


class Progress(Generic[At]):
    """How far one iteration is. It outlives the iterator, which alone moves it on."""

    def __init__(self, position: At | None = None) -> None:
        """Stand at `position`, with nothing open; None before the iteration begins."""
        self.position = position  # Everything before it was delivered, and nothing after it.
        # The position that the iterator's open resources stand at, where that is known.
        self.reached: At | None = None
        self.has_ended = False

    def move(self, position: At | None) -> None:
        """Make the iterator resume at `position`; None makes it begin anew."""
        self.reached = _MOVED
        self.has_ended = False
        self.position = position


class ExactIterator(Iterator[Item], Generic[Item, At], ABC):
    """Delivers items, and counts each one at the moment when it is delivered."""

    def __init__(self) -> None:
        """Stand before the beginning."""
        self.progress: Progress[At] = Progress()
        # Items that `next` has only to return, and the position after each, while the iterator
        # stands where it has left it.
        self._at_hand: Iterable[tuple[At, Item]] = ()
        self._seconds_at_hand = 0.0  # within `next` for them
        self._in_next: int | None = None  # the thread in `next`

    def __next__(self) -> Item:
        """Return the next item. After an exception that item is still the next one."""
        progress, own = self.progress, get_ident()
        try:
            # Of two threads one sees the mark of the other: nothing is called in between.
            if self._in_next is not None and self._in_next != own:
                raise RuntimeError(
                    "another thread is in next() of this iterator, which serves one thread at a "
                    "time: give each thread its own iterator, let one thread pass the items on, "
                    "or hold a lock around next()"
                )
            self._in_next = own
            if progress.reached is progress.position and not _profiler_enabled():
                progress.reached = None
                begin = perf_counter()
                for after, item in self._at_hand:
                    self._seconds_at_hand += perf_counter() - begin
                    if progress.reached is None:
                        progress.reached = progress.position = after
                    self._in_next = None
                    return item
                progress.reached = progress.position
            item, after = self._next_item()
        except BaseException:
            if self._in_next == own:
                self._in_next = None
            raise
        # Within `next` a function of the user's may have moved the iterator: the move stays.
        if progress.reached is not _MOVED:
            progress.reached = progress.position = after
        # No call follows, so that no signal's handler can raise between the count and the return.
        self._in_next = None
        return item

    def _settled(self) -> At:
        """Return the recorded position, with what is open brought there."""
        progress = self.progress
        position = progress.position
        if position is None or progress.reached is not position:
            progress.reached = None
            position = self._go_to(position)
        progress.reached = None
        return position

    @abstractmethod
    def _next_item(self) -> tuple[Item, At]:
        """Return the item at the recorded position, and the position after it."""

    @abstractmethod
    def _go_to(self, position: At | None) -> At:
        """Bring what is open to the recorded position, and return it."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return where this iterator stands, as the data set's `state_dict` does."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`; the data set's next iteration does too."""

    @abstractmethod
    def seek(self, step: int) -> None:
        """Make batch `step` of the epoch the next one, where batches have such numbers."""

    @abstractmethod
    def close(self) -> None:
        """Join the threads and give up what is in flight. Idempotent."""

    def __reduce__(self) -> NoReturn:
        """Refuse: threads and their memory have no copy; a state has."""
        raise TypeError("cannot pickle an iterator of a data set; its state_dict() can travel")


class SessionIterator(ExactIterator[Item, Position]):
    """An iteration over a data set or a mix, which takes its epoch with the second `next`."""

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

    @abstractmethod
    def pass_over(self, num_items: int) -> int:
        """Go on after the next items, which are not read; return how many of them there are."""

    def state_dict(self) -> dict[str, Any]:
        """Return where this iterator stands; see `ParquetDataset.state_dict`."""
        return self._session.state_at(self.progress.position)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`; see `ParquetDataset.load_state_dict`."""
        self._session.load_state_dict(state)
        self.progress.move(None)


class Skipping(SessionIterator[dict[str, Any], Position]):
    """Of a loader that drops its first batches, an iteration in which these are empty, not read.

    A DataLoader worker passes over those of them that the loader takes from it.
    """

    def __init__(self, session: Any, num_dropped: int) -> None:
        """Prepare to iterate; the loader drops so many batches."""
        super().__init__(session, None)
        self._num_to_skip, self._num_dropped = num_dropped, 0

    def __next__(self) -> dict[str, Any]:
        """Return the next batch; `{}` for one that is dropped."""
        if self._num_to_skip:
            num_to_skip, self._num_to_skip = self._num_to_skip, 0
            self.begin()
            self._num_dropped = self.pass_over(self._session.own_steps(num_to_skip))
        if self._num_dropped:
            self._num_dropped -= 1
            return {}
        return super().__next__()
