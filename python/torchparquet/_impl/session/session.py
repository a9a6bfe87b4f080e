"""One data set's epochs, states and live iterators in one process; README.md has the picture."""

from __future__ import annotations

import copy
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.context import get_spawning_popen
from typing import Any, Generic, Self

import numpy as np
from torch.utils.data import get_worker_info

from torchparquet._impl.metrics.rank_metrics import Late, of_all_ranks
from torchparquet._impl.metrics.read_metrics import Metrics
from torchparquet._impl.plan.elastic import steps_in_turn
from torchparquet._impl.plan.plan_options import Topology
from torchparquet._impl.ranks.peers import Peers
from torchparquet._impl.ranks.sharding import in_worker
from torchparquet._impl.session.epoch_ledger import Claim, EpochLedger
from torchparquet._impl.session.session_iterator import (
    Position,
    Progress,
    SessionIterator,
    Totals,
)
from torchparquet.errors import users_level

# A look or two are usual.
_MANY_LOOKS = 4


@dataclass(frozen=True)
class Start:
    """The beginning of one iteration, if that is not the first batch of its epoch."""

    iteration: int | None  # its number; None for this process's next one
    state: Any = None  # that was loaded
    step: int = 0  # the first batch of the epoch to deliver, if there is no state


class Session(ABC, Generic[Position]):
    """One data set's epochs, where its next iteration begins, and its live iterators."""

    what = "data set"  # for messages
    # Of the process that a DataLoader worker was spawned by: its look is in use.
    _inherits_look = False
    # These belong to this process alone: its iterators, and the sums of their reading.
    _of_process: tuple[str, ...] = (
        *("_iterators", "_iterator", "_looks", "latest_totals", "_compared_seconds"),
    )

    latest_totals: Totals

    def __init__(self) -> None:
        """Stand before the first iteration."""
        self._ledger = EpochLedger()
        # Iterations up to here were this process's, or are of no account any more.
        self._num_seen = 0
        self._num_own = 0  # up to the latest of this process
        self._claim: Claim | None = None
        self._start: Start | None = None
        self._begun_from: tuple[Start | None, int] = (None, 0)  # of the latest `begin`
        self._beginning: Progress[Position] | None = None
        self._latest: Progress[Position] | None = None
        self._enter_process()

    def _enter_process(self) -> None:
        self.latest_totals = self.new_totals()
        self._compared_seconds = 0.0  # within `next` until all ranks were last compared
        self._forget_iterators()

    def _forget_iterators(self) -> None:
        self._looks: tuple[Position | None, int] = (None, 0)
        self._iterators: weakref.WeakSet[SessionIterator[Any, Position]] = weakref.WeakSet()
        self._iterator: weakref.ref[SessionIterator[Any, Position]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to this process; a copy does not move with its iterations."""
        state = {k: v for k, v in self.__dict__.items() if k not in self._of_process}
        # A worker that is forked finds the look itself.
        is_used = get_spawning_popen() is not None and self._look_is_in_use()
        latest = None if self._latest is None else Progress(self._latest.position)
        beginning = self._beginning if is_used else None
        return state | {"_beginning": beginning, "_inherits_look": is_used, "_latest": latest}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a copy's place in this process."""
        self.__dict__.update(state)
        self._enter_process()

    def __copy__(self) -> Self:
        """Return one for this process that counts epochs by itself."""
        made = type(self).__new__(type(self))
        made.__setstate__(self.__getstate__())
        made._ledger = copy.deepcopy(self._ledger)
        return made

    @property
    @abstractmethod
    def totals(self) -> Totals:
        """What this process has read."""

    @abstractmethod
    def new_totals(self) -> Totals:
        """Return sums before anything is read."""

    @abstractmethod
    def rank_and_peers(self) -> tuple[Topology, Peers | None]:
        """Return this process's rank, and the processes that read with it."""

    @abstractmethod
    def take_longest_wait(self) -> tuple[float, str]:
        """Return the longest wait since this was last called, in seconds, and what it was for."""

    @abstractmethod
    def epoch_after(self, start: Start | None) -> int:
        """Return the epoch that the next iteration reads."""

    @abstractmethod
    def state_of(self, position: Position) -> dict[str, Any]:
        """Return the state of a position."""

    @abstractmethod
    def state_of_start(self, start: Start | None) -> dict[str, Any]:
        """Return the state of the next iteration's beginning."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iteration, and the one under way, resume at `state`."""

    @abstractmethod
    def steps_of_worker(self, worker: tuple[int, int]) -> int:
        """Return the batches of a DataLoader worker in the iteration that has begun."""

    # The iterations of this process.

    def follow(self, iterator: SessionIterator[Any, Position]) -> None:
        """Take note of an iterator, which is the latest from now on."""
        self._iterators.add(iterator)
        self.latest_totals = iterator.totals
        if iterator.is_led:
            return
        self._iterator = weakref.ref(iterator)
        if in_worker():
            # All workers of a DataLoader begin, also one that is never asked for a batch.
            iterator.take_epoch()

    def live_iterator(self) -> SessionIterator[Any, Position] | None:
        """Return the latest iterator where it is under way."""
        latest = None if self._iterator is None else self._iterator()
        return None if latest is None or latest.closed else latest

    def live_position(self) -> Position | None:
        """Return where the iteration under way stands; None if none is."""
        latest = self.live_iterator()
        return None if latest is None else latest.progress.position

    def is_latest(self, progress: Progress[Position]) -> bool:
        """True if states are those of an iteration, which has begun."""
        return self._latest is progress and progress.position is not None

    @property
    def epoch(self) -> int:
        """The epoch of the iteration under way, or else that the next one will have."""
        position = self.live_position()
        return self.epoch_after(self.next_start()) if position is None else position.epoch

    def close(self) -> None:
        """End all iterations and free their memory."""
        for iterator in list(self._iterators):
            iterator.close()
        self._forget_iterators()

    def _look_is_in_use(self) -> bool:
        """True if the iteration that has not taken its epoch yet goes on."""
        if self._inherits_look:
            return in_worker()  # A rank that is spawned begins by itself.
        return any(one.progress is self._beginning and one.is_look for one in self._iterators)

    @property
    def has_look(self) -> bool:
        """True if an iterator is in use that has not taken its epoch."""
        return any(iterator.is_look for iterator in self._iterators)

    def take_epoch_of_look(self) -> None:
        """Let an iterator that is still in use keep its epoch, as another one begins."""
        if self._beginning is not None and self._look_is_in_use():
            self.commit(self._beginning)

    def count_look(self, position: Position | None) -> None:
        """Count the iterations in a row that looked at one batch; None for one that went on."""
        of, num_looks = self._looks
        num_looks = num_looks + 1 if position is not None and position == of else 1
        self._looks = (position, num_looks)
        if num_looks == _MANY_LOOKS:
            warnings.warn(
                f"{_MANY_LOOKS} iterations in a row asked for one batch, and each begins with the "
                "same: an iteration takes its epoch when its second batch is asked for. For the "
                "next batch keep one iterator and call next() on it; for other rows call "
                "set_epoch() first",
                stacklevel=users_level(),
            )

    # The start of the next iteration.

    def next_start(self) -> Start | None:
        """Return where the next iteration is to begin; None for the start of its epoch."""
        return self._start_of(self._ledger.num_iterations)

    def _start_of(self, iteration: int) -> Start | None:
        # A start is for one iteration, which workers may have begun in copies of the data set.
        start = self._start
        return start if start is not None and start.iteration in (None, iteration) else None

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` that of the next iteration, unless that goes on with a state of it."""
        start = self.next_start()
        if start is None or start.state is None:
            start = None
        elif start.state.epoch != epoch:
            self._warn_of_dropped_state(start, epoch)
            start = None
        self._begin_next_at(start, epoch)

    def _warn_of_dropped_state(self, start: Start, epoch: int) -> None:
        with suppress(ValueError):  # the state does not fit
            if self.epoch_after(start) == epoch:
                return
        warnings.warn(
            "set_epoch drops a loaded state of another epoch, the rest of which is not read: load "
            "the state after set_epoch, or go on with its epoch. A framework that sets epochs by "
            "itself resumes from its own checkpoints (in Lightning, fit(..., ckpt_path=...)). Got "
            f"set_epoch({epoch}) after a state of epoch {start.state.epoch}",
            stacklevel=users_level(),
        )

    def begin_epoch(self, epoch: int) -> None:
        """Make the next iteration begin with `epoch`, whatever state was loaded."""
        self._begin_next_at(None, epoch)

    def load(self, state: Any) -> None:
        """Make the next iteration, and the one under way, resume at `state`."""
        live = self.live_iterator()
        # Another worker may have begun that iteration, so the next one comes after it.
        start = Start(None if in_worker() else self._see(), state)
        self._begin_next_at(start, None if in_worker() else state.epoch)
        if live is not None:
            live.progress.move(None)

    def move(self, step: int, *, by: bool = False) -> None:
        """Make the next iteration begin at batch `step`, or that many after where it would."""
        start = self.next_start()
        if start is not None and start.state is not None:
            raise ValueError(
                "a loaded state decides where the next iteration begins: seek after iter()"
            )
        before = start.step if by and start is not None else 0
        self._begin_next_at(Start(self._see(), None, before + step), None)

    def _begin_next_at(self, start: Start | None, epoch: int | None) -> None:
        self._beginning = self._latest = None
        self._start = start
        if epoch is not None:
            self._ledger.set_epoch_of(self._see(), epoch)

    def _see(self) -> int:
        """Take note of the iterations so far, also those of workers; return how many they are."""
        self._claim = None
        self._num_seen = self._ledger.num_iterations
        return self._num_seen

    # An iteration that begins.

    def begin(
        self, progress: Progress[Position], resolved: Callable[[Start | None, int], Position]
    ) -> Position:
        """Return where the next iteration begins, whose epoch is free until `commit`."""
        self._beginning = progress
        if in_worker():
            number = self._ledger.begin_as_worker()
            self._claim = None
            self._num_seen = self._num_own = number + 1
        else:
            self._claim = self._ledger.claim()
            self._num_seen = self._num_own = number = self._claim.number
        epoch = self._ledger.epoch_of(number)
        self._begun_from = self._start_of(number), epoch
        position = resolved(*self._begun_from)
        if position.epoch != epoch:
            self._ledger.set_epoch_of(number, position.epoch)
        return position

    def own_steps(self, num_steps: int) -> int:
        """Return how many of a loader's first batches are of this process, one of its workers."""
        worker = get_worker_info()
        if worker is None or worker.num_workers == 1:
            return num_steps
        workers = [(number, worker.num_workers) for number in range(worker.num_workers)]
        steps = np.array([[self.steps_of_worker(each)] for each in workers], dtype=np.int64)
        return int(steps_in_turn(steps, num_steps)[worker.id, 0])

    def commit(self, progress: Progress[Position]) -> None:
        """Record that an iteration takes its epoch, if it is the one that begins."""
        if self._beginning is progress:
            # In this order: states are right after each of these, wherever an exception comes.
            self._latest = progress
            self._enter_claim()
            self._start = None
            self._beginning = None

    def _enter_claim(self) -> None:
        claim = self._claim
        if claim is None:
            return
        if in_worker():
            self._ledger.enter_for_parent(claim)
        else:
            self._claim = claim.again
            # Before it is entered, since an exception may hide that it was.
            self._num_seen = self._num_own = claim.number + 1
            self._num_seen = self._num_own = self._ledger.enter(claim) + 1
        self._claim = None

    def follow_progress(self, progress: Progress[Position]) -> None:
        """Let the states of the data set be those of an iteration."""
        self._latest = progress

    def follow_begun(self, progress: Progress[Position]) -> None:
        """The same for the iteration of the latest `begin`, once it has a position."""
        if self._beginning is progress:
            self._latest = progress

    def number_next(self, progress: Progress[Position], epoch: int) -> None:
        """Take note that an iteration goes on, or back, to an epoch; the next one follows it."""
        if self._latest is progress:  # else another iteration has begun since
            self._ledger.set_epoch_of(self._ledger.num_iterations, epoch + 1)

    # States and metrics.

    def latest_state(self) -> dict[str, Any]:
        """Return the state of the latest iteration, or that at which the next one begins."""
        self.check_seen()
        return self.state_at(None if self._latest is None else self._latest.position)

    def state_at(self, position: Position | None) -> dict[str, Any]:
        """Return the state of a position; None for that at which the next iteration begins."""
        if position is None:
            return self.state_of_start(self.next_start())
        return self.state_of(position)

    def check_seen(self) -> None:
        """Make sure that no iteration since was that of workers."""
        if not in_worker() and self._ledger.num_iterations > self._num_seen:
            raise RuntimeError(
                f"DataLoader workers have iterated this {self.what}, and only they know how far: "
                "take the state from torchdata's StatefulDataLoader, or use num_workers=0"
            )

    def metrics(self, *, all_iterations: bool = False, all_ranks: bool = False) -> Metrics:
        """Return the metrics of this process, or of all; see `ParquetDataset.metrics`."""
        own = self._own_metrics(all_iterations)
        if not all_ranks:
            return own
        topology, peers = self.rank_and_peers()
        seconds = self.totals.metrics().next_seconds
        before, self._compared_seconds = self._compared_seconds, seconds
        late = Late(seconds - before, *self.take_longest_wait())
        return of_all_ranks(peers, topology.rank, own, late)

    def _own_metrics(self, all_iterations: bool) -> Metrics:
        if all_iterations:
            return self.totals.metrics()
        if not in_worker() and self._ledger.num_iterations > self._num_own:
            raise RuntimeError(
                f"DataLoader workers iterate this {self.what}, each with metrics of its own: ask "
                "torch.utils.data.get_worker_info().dataset.metrics() there, in a transform for "
                "example, or use num_workers=0"
            )
        return self.latest_totals.metrics()
