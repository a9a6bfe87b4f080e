"""Makes `next` count each item exactly once, whatever interrupts it.

A function of the user's or the handler of a signal may raise anywhere within `next`. Whoever
catches that goes on with the iterator, or saves a state: no item may be lost, and none may come
twice. One rule sees to it. Positions are immutable, and one assignment records the position after
an item when that item is delivered. An iterator whose open resources stand anywhere else than at
the recorded position brings them back to that position first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from threading import get_ident
from typing import Generic, TypeVar

_Item = TypeVar("_Item")
_Position = TypeVar("_Position")


class _Moved:
    """Stands for a position that somebody else than the iterator has recorded."""


_MOVED = _Moved()


class Course(Generic[_Position]):
    """The position of one iteration. It outlives the iterator, which drives it.

    Attributes:
        position: Everything before it was delivered, and nothing after it. None before the
            iteration begins.
        reached: The position that the iterator's open resources stand at, where that is known.
    """

    def __init__(self, position: _Position | None = None) -> None:
        """Stand at `position`, with nothing open."""
        self.position = position
        self.reached: _Position | _Moved | None = None
        self.has_ended = False

    def move(self, position: _Position | None) -> None:
        """Make the iterator resume at `position`; None makes it begin anew."""
        self.reached = _MOVED
        self.has_ended = False
        self.position = position


class ExactIterator(Iterator[_Item], Generic[_Item, _Position], ABC):
    """Delivers items, and counts each one at the moment when it is delivered."""

    def __init__(self, course: Course[_Position]) -> None:
        """Deliver the items after the position of `course`."""
        self.course = course
        self._in_next: int | None = None  # the thread in `next`

    def __next__(self) -> _Item:
        """Return the next item. After an exception that item is still the next one."""
        course = self.course
        try:
            self._enter()
            item, after = self._next_item()
        except BaseException:
            self._leave()
            raise
        # Within `next` a function of the user's may have moved the iterator: the move stays.
        if course.reached is not _MOVED:
            course.reached = course.position = after
        # No call follows, so that no signal's handler can raise between the count and the return.
        self._in_next = None
        return item

    def _enter(self) -> None:
        own = get_ident()
        # Of two threads one sees the mark of the other: nothing is called in between.
        if self._in_next is not None and self._in_next != own:
            raise RuntimeError(
                "another thread waits for the next item of this iterator: let one thread call "
                "next() and pass the items on, or hold a lock around next()"
            )
        self._in_next = own

    def _leave(self) -> None:
        if self._in_next == get_ident():
            self._in_next = None

    def _next_item(self) -> tuple[_Item, _Position]:
        course = self.course
        position = course.position
        if position is None or course.reached is not position:
            course.reached = None
            position = self._go_to(position)
        course.reached = None
        return self._take(position)

    def marked(self) -> _Position | None:
        """Return what `go_back` takes to deliver again what comes next; None where nothing can."""
        return self.begin()

    def go_back(self, mark: _Position) -> None:
        """Deliver again what was delivered since `mark`, which serves any number of times."""
        if self.course.position is not mark:
            self.course.move(mark)

    @abstractmethod
    def begin(self) -> _Position:
        """Begin the iteration where it has not begun, and return where it stands."""

    @abstractmethod
    def _go_to(self, position: _Position | None) -> _Position:
        """Bring what is open to the recorded position, and return it."""

    @abstractmethod
    def _take(self, position: _Position) -> tuple[_Item, _Position]:
        """Return the item at `position`, where what is open stands, and the position after it."""
