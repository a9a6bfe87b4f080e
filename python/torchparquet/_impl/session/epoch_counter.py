"""Numbers the epochs of iterations, agreed among the DataLoader workers of a process."""

from __future__ import annotations

import functools
import hashlib
import os
import secrets
import threading
import weakref
from multiprocessing.context import get_spawning_popen
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

from torchparquet._impl.forks import let_threads_finish_before_forks
from torchparquet._impl.native import (
    begin_iteration,
    epoch_of,
    num_iterations,
    set_epoch_of,
)
from torchparquet._impl.ranks.sharding import in_worker
from torchparquet._impl.session.shared_words import SharedWords

# A claim must not look like that of a loader's worker, of which there are few.
_LAST_WORKER = 1023
_MAX_CLAIMS = 512


class _Claim(NamedTuple):
    """An iteration that this process is beginning.

    Attributes:
        number: The iteration's number, unless another one takes that first.
        num_tries: How often the entry was asked for. An exception may hide whether it was had.
    """

    key: int
    number: int
    num_tries: int = 0


class EpochCounter:
    """Numbers the iterations over a data set: each is the next epoch.

    The DataLoader workers of one iteration count as one. They and the process that started them
    share the counter; every other process that gets a copy (a rank that was spawned or forked with
    the data set, say) counts on by itself.
    """

    def __init__(self) -> None:
        """Start at epoch 0."""
        self._shared = SharedWords.new()
        self._owner_pid = os.getpid()
        # Iterations up to here were this process's, or are of no account any more.
        self._num_seen = 0
        self._num_own = 0  # up to the latest of this process
        self._claim: _Claim | None = None
        self._join()

    def _join(self) -> None:
        _counters.add(self)
        _watch_forks()

    def begin(self) -> int:
        """Return the number of an iteration that begins in this process.

        Outside of workers it stays the next one's until `commit` is called, so that what fails in
        between, or was only looked at, takes no epoch.
        """
        worker = get_worker_info()
        if worker is None:
            self._num_seen = self._num_own = number = self.num_iterations()
            self._claim = _Claim(_key(secrets.token_bytes(8)), number)
        else:
            # All workers of one iteration see the same base seed. Those of another may see it too.
            identity = f"{worker.seed - worker.id} {worker.num_workers} {_loader_of(worker.id)}"
            number = begin_iteration(self._words(), _key(identity.encode()), worker.id)
            self._claim = None
            self._num_seen = self._num_own = number + 1
        return number

    def commit(self) -> None:
        """Number the iteration of the latest `begin` of this process, which goes on.

        In a worker it is that of the process that forked the worker.
        """
        claim, worker = self._claim, get_worker_info()
        if claim is None:
            return
        # The same key leads to the same entry, for each worker once.
        if worker is not None:
            if claim.number == self.num_iterations():
                begin_iteration(self._words(), claim.key, worker.id)
            self._claim = None
            return
        self._claim = claim._replace(num_tries=(claim.num_tries + 1) % _MAX_CLAIMS)
        number = begin_iteration(self._words(), claim.key, _LAST_WORKER - claim.num_tries)
        if number != claim.number:
            # Workers have taken that number. The epoch stays, and the next iteration follows it.
            self.set_epoch_of(number, self.epoch_of(claim.number))
        self._num_seen = self._num_own = number + 1
        self._claim = None

    def epoch_of(self, iteration: int) -> int:
        """Return the epoch of an iteration that has begun, or is the next to begin."""
        return epoch_of(self._words(), iteration)

    def set_epoch_of(self, iteration: int, epoch: int) -> None:
        """Make `epoch` that of an iteration; later ones count on from there."""
        set_epoch_of(self._words(), iteration, epoch)

    def num_iterations(self) -> int:
        """Return how many iterations have begun, in this process or its workers."""
        return num_iterations(self._words())

    def see(self) -> int:
        """Take note of the iterations so far, also those of workers; return how many they are."""
        self._claim = None
        self._num_seen = self.num_iterations()
        return self._num_seen

    def check_seen(self, what: str) -> None:
        """Make sure that no iteration since was that of workers."""
        if not in_worker() and self.num_iterations() > self._num_seen:
            raise RuntimeError(
                f"DataLoader workers have iterated this {what}, and only they know how far: take "
                "the state from torchdata's StatefulDataLoader, or use num_workers=0"
            )

    def check_own(self, what: str, wanted: str) -> None:
        """Make sure that the latest iteration was this process's."""
        if not in_worker() and self.num_iterations() > self._num_own:
            raise RuntimeError(
                f"DataLoader workers iterate this {what}, each with {wanted} of its own: ask "
                f"torch.utils.data.get_worker_info().dataset.{wanted}() there, in a transform for "
                "example, or use num_workers=0"
            )

    def next(self) -> int:
        """Return the epoch that the next iteration will have."""
        return self.epoch_of(self.num_iterations())

    def set(self, epoch: int) -> None:
        """Make `epoch` that of the next iteration, and take note of those so far."""
        self.set_epoch_of(self.see(), epoch)

    def own(self) -> None:
        """Make sure that only this process and the workers it starts use the counter."""
        if in_worker() or self._owner_pid == os.getpid():
            return
        inherited = self._shared.view
        self._shared = SharedWords.new()
        self._shared.view[:] = inherited
        self._owner_pid = os.getpid()

    def _words(self) -> NDArray[np.int64]:
        self.own()
        return self._shared.view

    def __getstate__(self) -> dict[str, Any]:
        """Own the counter before a spawned worker gets it."""
        self.own()
        return self.__dict__ | {"_start": _starts.of_spawned()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Share the counter of the process that pickled it, if it can be shared."""
        start = state.pop("_start", None)
        if start is not None:
            _own_start[:] = [start]
        self.__dict__.update(state)
        if self._shared.is_copy:
            self._owner_pid = -1
        self._join()


def _key(identity: bytes) -> int:
    digest = hashlib.blake2b(identity, digest_size=8).digest()
    # Bit 62 keeps a key from being 0, which the ledger takes for a free entry.
    return int.from_bytes(digest, "little") & (2**62 - 1) | 1 << 62


class _Start(NamedTuple):
    """The start of a process: the thread that started it, and how many it had started before."""

    thread: str
    number: int


class _Starts(threading.local):
    """Numbers the processes that one thread starts.

    A loader starts its workers one after another on one thread. So the number less that of the
    worker is the same for all workers of an iteration, and another for those of another iteration.
    """

    def __init__(self) -> None:
        self._thread = secrets.token_hex(8)
        self._number = 0
        self._latest: weakref.ref[Any] | None = None

    def next(self) -> None:
        self._number += 1

    def present(self) -> _Start:
        return _Start(self._thread, self._number)

    def of_spawned(self) -> _Start | None:
        """Return the start of the process that is being spawned; None if none is."""
        started = get_spawning_popen()
        if started is None:
            return None
        if self._latest is None or self._latest() is not started:
            self._latest = weakref.ref(started)
            self.next()
        return self.present()


_starts = _Starts()
_own_start: list[_Start] = []  # that of this process, where it is known
_counters: weakref.WeakSet[EpochCounter] = weakref.WeakSet()


def _loader_of(worker: int) -> str:
    """Return what the workers of one iteration have in common, by the number of this one."""
    return f"{_own_start[0].thread} {_own_start[0].number - worker}" if _own_start else ""


def _before_fork() -> None:
    """Own the counters before a forked worker inherits them."""
    _starts.next()
    for counter in list(_counters):
        counter.own()


def _note_start() -> None:
    """Keep, in a forked child, the start that the thread has just made."""
    _own_start[:] = [_starts.present()]


@functools.cache
def _watch_forks() -> None:
    """Begin to with the first counter, for a process may import the package and read nothing."""
    os.register_at_fork(before=_before_fork, after_in_child=_note_start)
    let_threads_finish_before_forks()
