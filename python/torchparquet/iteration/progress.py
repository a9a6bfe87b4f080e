"""How far the iterations over a data set have come, and where the next one begins."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from torch.utils.data import get_worker_info

from torchparquet.iteration.epochs import EpochCounter
from torchparquet.iteration.planner import EpochPlanner, Place
from torchparquet.iteration.state import State
from torchparquet.plan.topology import Topology


@dataclass(frozen=True)
class _Start:
    """Where an iteration is to begin.

    Attributes:
        iteration: Its number.
        state: To go on from; None for the start of an epoch.
        step: Which batch of the epoch to begin with, where there is no state.
    """

    iteration: int
    state: State | None
    step: int = 0


class Progress:
    """Where the latest iteration stands, and where the next one is to begin.

    A copy that a DataLoader worker gets shares the numbering of iterations with its original.
    """

    def __init__(self, planner: EpochPlanner) -> None:
        """Begin before the first epoch."""
        self._planner = planner
        self._epochs = EpochCounter()
        self._start: _Start | None = None
        self._place: Place | None = None

    def own_copy(self) -> Progress:
        """Return a copy that numbers its iterations by itself."""
        made = copy.copy(self)
        made._epochs = copy.deepcopy(self._epochs)
        return made

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` that of the next iteration, unless that goes on with a state of it."""
        start = self._next_start()
        if start is None or start.state is None or start.state.epoch != epoch:
            self._start = self._place = None
        self._epochs.set(epoch)

    def load(self, state: State) -> None:
        """Make the next iteration go on with `state`."""
        self._begin_next_at(state, 0)
        self._epochs.set(state.epoch)

    def move(self, step: int, *, by: bool = False) -> None:
        """Make the next iteration begin at batch `step`, or that many behind where it would.

        Raises:
            ValueError: It is to go on with a state.
        """
        start = self._next_start()
        if start is not None and start.state is not None:
            raise ValueError("seek on the iterator: a state was loaded that it is to go on with")
        before = start.step if by and start is not None else 0
        self._begin_next_at(None, before + step)

    def _begin_next_at(self, state: State | None, step: int) -> None:
        self._start = _Start(self._epochs.see(), state, step)
        self._place = None

    def _next_start(self) -> _Start | None:
        """Return where the next iteration is to begin; None for the start of its epoch."""
        return self._start_of(self._epochs.num_iterations())

    def _start_of(self, iteration: int) -> _Start | None:
        # A start is for one iteration, which workers may have begun in copies of the data set.
        start = self._start
        return start if start is not None and start.iteration == iteration else None

    def next_place(self, topology: Topology) -> Place:
        """Return where the next iteration begins in this world.

        Raises:
            ValueError: A state, or a step, does not fit the epoch.
        """
        return self._resolved(self._next_start(), self._epochs.next(), topology)

    def _resolved(self, start: _Start | None, epoch: int, topology: Topology) -> Place:
        if start is None or start.state is None:
            return self._planner.begin(epoch, topology, 0 if start is None else start.step)
        place = self._planner.resume(start.state, topology)
        # Behind the last batch of its epoch a state leads to the next one.
        return place or self._planner.begin(start.state.epoch + 1, topology)

    def begin(self, topology: Topology) -> Place:
        """Return where an iteration that begins stands; it has when that is told by `begun`.

        Raises:
            ValueError: A state, or a step, does not fit the epoch, which is the next one's then.
        """
        number = self._epochs.begin()
        place = self._resolved(self._start_of(number), self._epochs.epoch_of(number), topology)
        if place.epoch != self._epochs.epoch_of(number):
            self._epochs.set_epoch_of(number, place.epoch)
        return place

    def begun(self, place: Place) -> None:
        """Take note that the iteration of the latest `begin` has begun, at `place`."""
        self._epochs.begun()
        self._start, self._place = None, place

    def begin_behind(self, place: Place, topology: Topology) -> Place:
        """Begin the epoch behind that of `place` within the same iteration."""
        self._epochs.set_epoch_of(self._epochs.num_iterations(), place.epoch + 2)
        self._place = self._planner.begin(place.epoch + 1, topology)
        return self._place

    def seek(self, place: Place, topology: Topology, step: int) -> Place:
        """Return the place of batch `step` of the epoch that stands at `place`."""
        self._place = self._planner.sought(place, topology, step)
        return self._place

    def return_to(self, place: Place, passed: Place) -> None:
        """Take note that the iteration at `passed` stands at `place` again, of an epoch before."""
        if self._place is passed:  # else another iteration has begun since
            self._epochs.set_epoch_of(self._epochs.num_iterations(), place.epoch + 1)
            self._place = place

    def latest_state(self, topology: Topology) -> State:
        """Return the state of the latest iteration, or that at which the next one begins.

        Raises:
            RuntimeError: DataLoader workers have iterated, and only they know how far.
        """
        self._epochs.check_seen("data set")
        return self.state_of(self._place, topology)

    def check_own(self, what: str, wanted: str) -> None:
        """Make sure that the latest iteration was this process's; see `EpochCounter`."""
        self._epochs.check_own(what, wanted)

    def state_of(self, place: Place | None, topology: Topology) -> State:
        """Return the state of a place; None for that at which the next iteration begins."""
        start = self._next_start()
        if place is None and start is not None and start.state is not None:
            return start.state
        return self._planner.state_of(place or self.next_place(topology), _own_worker())

    def state_of_row(self, place: Place | None, num_rows: int, topology: Topology) -> State:
        """Return the state of an epoch behind `num_rows` rows of the present world.

        Args:
            place: In the epoch under way; None for that of the latest iteration, or else the next.
            num_rows: Of this rank.
            topology: Of this process.

        Raises:
            RuntimeError: DataLoader workers have iterated, and only they know how far.
        """
        self._epochs.check_seen("data set")
        place = place or self._place or self.next_place(topology)
        return self._planner.state_of_row(place, num_rows, _own_worker())


def _own_worker() -> int | None:
    worker = get_worker_info()
    return None if worker is None else worker.id
