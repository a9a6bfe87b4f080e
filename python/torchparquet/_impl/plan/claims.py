"""Positions of an epoch that a rank takes one by one, where none are dealt to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

# More units than a row group has whose units nobody has counted.
MOST_UNITS = 1 << 31


class Claims:
    """The positions that this rank has taken of one pass over an epoch, and takes on demand.

    Nothing is taken before it is asked for, and what was taken stays: an iterator that goes back
    reads the same again. `begin` joins the pass of all ranks. It returns the positions to take, in
    order, and an iterator written in C, which counts from 1 over all ranks: each number is that of
    a position for this rank alone.
    """

    def __init__(
        self,
        begin: Callable[[], tuple[Sequence[int], Iterator[int]]],
        before: Sequence[int] | None = None,
        *,
        counts: Sequence[int] = (),
        drops_last: bool = False,
    ) -> None:
        """Begin with what was taken before the state that the rank goes on with, if it does.

        Args:
            counts: The units of the first of the positions that were taken, where no plan has them.
            drops_last: True to leave out a last batch that is not full.
        """
        self.before = before
        self.drops_last = drops_last
        self.taken = list(before or ())
        self.counts = list(counts)
        self._num_before = len(self.taken)
        self._begin = begin
        self._pass: tuple[Sequence[int], Iterator[int]] | None = None
        self._numbers: list[int] = []

    def at(self, number: int) -> int | None:
        """Return the position that was taken as this number, or take it; None if none is left."""
        if self._pass is None:
            self._pass = self._begin()
        positions, counter = self._pass
        while number >= len(self.taken):
            num_used = len(self.taken) - self._num_before
            if num_used == len(self._numbers):
                # In C alone: no signal's handler comes between the count and its record.
                self._numbers.extend(islice(counter, 1))
            place = self._numbers[num_used] - 1
            if place >= len(positions):
                return None
            self.taken.append(positions[place])
        return self.taken[number]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the pass, which a copy joins anew."""
        before = {"_num_before": len(self.taken), "_numbers": []}
        return self.__dict__ | before | {"_pass": None}
