"""How far the iterations over a data set have come, and where the next one begins."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any

from torch.utils.data import get_worker_info

from torchparquet._impl.plan.topology import Topology
from torchparquet._impl.ranks.membership import Membership
from torchparquet._impl.session.course import Course
from torchparquet._impl.session.epoch_counter import EpochCounter
from torchparquet._impl.session.planner import EpochPlanner, Place
from torchparquet._impl.session.state import State
from torchparquet.errors import users_level


@dataclass(frozen=True)
class _Start:
    """The start of an iteration.

    Attributes:
        step: The first batch of the epoch to deliver, if there is no state.
    """

    iteration: int
    state: State | None
    step: int = 0


class Progress:
    """The numbers of epochs, where the latest iteration stands, and where the next one begins.

    `begin` starts an iteration, which takes its epoch with `commit`: what fails in between, or ends
    after a look at one batch, takes none. A copy that a DataLoader worker gets shares the numbers
    with its original.
    """

    def __init__(self, planner: EpochPlanner, membership: Membership) -> None:
        """Stand before the first epoch."""
        self._planner = planner
        self._membership = membership
        self._epochs = EpochCounter()
        self._start: _Start | None = None
        self._beginning: Course[Place] | None = None
        self._latest: Course[Place] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Let a copy stand where this one does; it does not move with this one's iterations."""
        latest = None if self._latest is None else Course(self._latest.position)
        return self.__dict__ | {"_beginning": None, "_latest": latest}

    def own_copy(self) -> Progress:
        """Return a copy that numbers its iterations by itself."""
        made = copy.copy(self)
        made._epochs = copy.deepcopy(self._epochs)
        return made

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` that of the next iteration, unless that goes on with a state of it."""
        start = self._next_start()
        goes_on = start is not None and start.state is not None and start.state.epoch == epoch
        if start is not None and start.state is not None and not self._leads_to(epoch):
            warn_of_dropped_state(epoch, start.state.epoch)
        self._forget(start if goes_on else None)
        self._epochs.set(epoch)

    def _leads_to(self, epoch: int) -> bool:
        try:
            return self.next_place().epoch == epoch
        except ValueError:
            return False  # the state does not fit

    def begin_at(self, epoch: int) -> None:
        """Make the next iteration begin with `epoch`, whatever state was loaded."""
        self._forget(None)
        self._epochs.set(epoch)

    def load(self, state: State) -> None:
        """Make the next iteration resume at `state`."""
        self._begin_next_at(state, 0)
        self._epochs.set(state.epoch)

    def move(self, step: int, *, by: bool = False) -> None:
        """Make the next iteration begin at batch `step`, or that many after where it would."""
        start = self._next_start()
        if start is not None and start.state is not None:
            raise ValueError("seek on the iterator, since a loaded state begins it")
        before = start.step if by and start is not None else 0
        self._begin_next_at(None, before + step)

    def _begin_next_at(self, state: State | None, step: int) -> None:
        self._forget(_Start(self._epochs.see(), state, step))

    def _forget(self, start: _Start | None) -> None:
        self._beginning = self._latest = None
        self._start = start

    def _next_start(self) -> _Start | None:
        """Return where the next iteration is to begin; None for the start of its epoch."""
        return self._start_of(self._epochs.num_iterations())

    def _start_of(self, iteration: int) -> _Start | None:
        # A start is for one iteration, which workers may have begun in copies of the data set.
        start = self._start
        return start if start is not None and start.iteration == iteration else None

    def next_place(self, topology: Topology | None = None) -> Place:
        """Return where the next iteration begins in a world; None for the present one."""
        topology = topology or self._membership.topology()
        return self._resolved(self._next_start(), self._epochs.next(), topology)

    def _resolved(self, start: _Start | None, epoch: int, topology: Topology) -> Place:
        if start is None or start.state is None:
            return self._planner.begin(epoch, topology, 0 if start is None else start.step)
        place = self._planner.resume(start.state, topology)
        # After the last batch of its epoch a state leads to the next one.
        return place or self._planner.begin(start.state.epoch + 1, topology)

    def begin(self, course: Course[Place], topology: Topology) -> Place:
        """Return where the next iteration, which is that of `course`, begins in a world."""
        self._beginning = course
        number = self._epochs.begin()
        place = self._resolved(self._start_of(number), self._epochs.epoch_of(number), topology)
        if place.epoch != self._epochs.epoch_of(number):
            self._epochs.set_epoch_of(number, place.epoch)
        return place

    def commit(self, course: Course[Place]) -> None:
        """Record that the iteration of the latest `begin` takes its epoch.

        It may be called again, and for any course: only the one that begins is recorded.
        """
        if self._beginning is course:
            # In this order: states are right after each of these, wherever an exception comes.
            self._latest = course
            self._epochs.commit()
            self._start = None
            self._beginning = None

    def follow(self, course: Course[Place]) -> None:
        """Let the states of the data set be those of `course`."""
        self._latest = course

    def follow_begun(self, course: Course[Place]) -> None:
        """The same for the iteration of the latest `begin`, once its course has a place."""
        if self._beginning is course:
            self._latest = course

    def begin_after(self, course: Course[Place], place: Place, topology: Topology) -> Place:
        """Return the start of the epoch after that of `place`, within the same iteration."""
        following = self._planner.begin(place.epoch + 1, topology)
        self._epochs.set_epoch_of(self._epochs.num_iterations(), place.epoch + 2)
        self.follow(course)
        return following

    def return_to(self, course: Course[Place], epoch: int) -> None:
        """Take note that an iteration goes back to an earlier epoch."""
        if self._latest is course:  # else another iteration has begun since
            self._epochs.set_epoch_of(self._epochs.num_iterations(), epoch + 1)

    def check_own(self, what: str, wanted: str) -> None:
        """Make sure that the latest iteration was this process's; see `EpochCounter`."""
        self._epochs.check_own(what, wanted)

    def latest_state(self) -> State:
        """Return the state of the latest iteration, or that at which the next one begins."""
        self._epochs.check_seen("data set")
        return self.state_of(self._latest_place)

    @property
    def _latest_place(self) -> Place | None:
        return None if self._latest is None else self._latest.position

    def state_of(self, place: Place | None) -> State:
        """Return the state of a place; None for that at which the next iteration begins."""
        start = self._next_start()
        if place is None and start is not None and start.state is not None:
            return start.state
        return self._planner.state_of(place or self.next_place(), _own_worker())

    def state_of_row(self, place: Place | None, num_rows: int) -> State:
        """Return the state of an epoch after `num_rows` rows of the present world."""
        self._epochs.check_seen("data set")
        place = place or self._latest_place or self.next_place()
        return self._planner.state_of_row(place, num_rows, _own_worker())


def warn_of_dropped_state(epoch: int, epoch_of_state: int) -> None:
    """Warn that `set_epoch`, the caller of the caller, leaves out the rest of an epoch."""
    warnings.warn(
        "set_epoch drops a loaded state of another epoch, the rest of which is not read: load "
        "the state after set_epoch, or go on with its epoch. A framework that sets epochs by "
        "itself resumes from its own checkpoints (in Lightning, fit(..., ckpt_path=...)). Got "
        f"set_epoch({epoch}) after a state of epoch {epoch_of_state}",
        stacklevel=users_level(),
    )


def _own_worker() -> int | None:
    worker = get_worker_info()
    return None if worker is None else worker.id
