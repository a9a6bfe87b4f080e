"""Makes `next` count each item exactly once, whatever interrupts it.

A function of the user's or the handler of a signal may raise anywhere within `next`. Whoever
catches that goes on with the iterator, or saves a state: no item may be lost, and none may come
twice. One rule sees to it. Positions are immutable, and one assignment records the position after
an item when that item is delivered. An iterator whose open resources stand anywhere else than at
the recorded position brings them back to that position first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from threading import get_ident
from time import perf_counter
from typing import Any, Generic, NoReturn, TypeVar

from torch._C._autograd import _profiler_enabled

Item = TypeVar("Item")
Position = TypeVar("Position")


class _Moved:
    """Stands for a position that somebody else than the iterator has recorded."""


_MOVED = _Moved()


class Progress(Generic[Position]):
    """How far one iteration is. It outlives the iterator, which alone moves it on.

    Attributes:
        position: Everything before it was delivered, and nothing after it. None before the
            iteration begins.
        reached: The position that the iterator's open resources stand at, where that is known.
    """

    def __init__(self, position: Position | None = None) -> None:
        """Stand at `position`, with nothing open."""
        self.position = position
        self.reached: Position | _Moved | None = None
        self.has_ended = False

    def move(self, position: Position | None) -> None:
        """Make the iterator resume at `position`; None makes it begin anew."""
        self.reached = _MOVED
        self.has_ended = False
        self.position = position


class ExactIterator(Iterator[Item], Generic[Item, Position], ABC):
    """Delivers items, and counts each one at the moment when it is delivered."""

    def __init__(self) -> None:
        """Stand before the beginning."""
        self.progress: Progress[Position] = Progress()
        # Items that `next` has only to return, and the position after each, while the iterator
        # stands where it has left it.
        self._at_hand: Iterable[tuple[Position, Item]] = ()
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

    def _settled(self) -> Position:
        """Return the recorded position, with what is open brought there."""
        progress = self.progress
        position = progress.position
        if position is None or progress.reached is not position:
            progress.reached = None
            position = self._go_to(position)
        progress.reached = None
        return position

    @abstractmethod
    def _next_item(self) -> tuple[Item, Position]:
        """Return the item at the recorded position, and the position after it."""

    @abstractmethod
    def _go_to(self, position: Position | None) -> Position:
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
