"""Numbers the iterations over a data set, in memory that its DataLoader workers share."""

from __future__ import annotations

import copy
import errno
import functools
import hashlib
import os
import secrets
import sys
import tempfile
import threading
import weakref
from collections.abc import Sequence
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

from torchparquet._impl.native import (
    EPOCH_LEDGER_WORDS,
    await_gloo_threads,
    begin_iteration,
    epoch_of,
    map_shared_words,
    num_iterations,
    set_epoch_of,
)
from torchparquet._impl.ranks.sharding import in_worker

# A claim must not look like that of a loader's worker, of which there are few.
_LAST_WORKER = 1023
_MAX_CLAIMS = 512


class Claim(NamedTuple):
    """An iteration that this process is beginning; another one may take its number first."""

    key: int
    number: int
    num_tries: int = 0

    @property
    def again(self) -> Claim:
        """The claim for the case that an exception hides whether its entry was had."""
        return self._replace(num_tries=(self.num_tries + 1) % _MAX_CLAIMS)


class EpochLedger:
    """Numbers the iterations over a data set, of this process and its workers: each is an epoch."""

    def __init__(self) -> None:
        """Start at epoch 0."""
        self._shared = _new_words()
        self._join()

    def _join(self) -> None:
        _ledgers.add(self)
        _watch_forks()

    @property
    def num_iterations(self) -> int:
        """How many iterations have begun, in this process or its workers."""
        return num_iterations(self._words())

    @property
    def next_epoch(self) -> int:
        """The epoch that the next iteration will have."""
        return self.epoch_of(self.num_iterations)

    def epoch_of(self, iteration: int) -> int:
        """Return the epoch of an iteration that has begun, or is the next to begin."""
        return epoch_of(self._words(), iteration)

    def set_epoch_of(self, iteration: int, epoch: int) -> None:
        """Make `epoch` that of an iteration; later ones count on from there."""
        set_epoch_of(self._words(), iteration, epoch)

    def claim(self) -> Claim:
        """Return a claim of this process to the next iteration, which enters nothing yet."""
        return Claim(_key(secrets.token_bytes(8)), self.num_iterations)

    def begin_as_worker(self) -> int:
        """Enter an iteration of this DataLoader worker, and return its number."""
        worker = get_worker_info()
        assert worker is not None  # noqa: S101
        # All workers of one iteration see the same base seed. Those of another may see it too.
        # A loader starts them one after another, so this is the same for all of one iteration.
        started = [(thread, number - worker.id) for thread, number in _own_start]
        identity = f"{worker.seed - worker.id} {worker.num_workers} {started}"
        return begin_iteration(self._words(), _key(identity.encode()), worker.id)

    def enter(self, claim: Claim) -> int:
        """Enter the iteration of a claim, and return its number; again, it is the same entry."""
        number = begin_iteration(self._words(), claim.key, _LAST_WORKER - claim.num_tries)
        if number != claim.number:
            # Workers have taken that number. The epoch stays, and the next iteration follows it.
            self.set_epoch_of(number, self.epoch_of(claim.number))
        return number

    def enter_for_parent(self, claim: Claim) -> None:
        """Enter, once for all workers, the iteration that is under way in their parent."""
        worker = get_worker_info()
        if worker is not None and claim.number == self.num_iterations:
            begin_iteration(self._words(), claim.key, worker.id)

    def _words(self) -> NDArray[np.int64]:
        self.own()
        return self._shared.view

    def own(self) -> None:
        """Make sure that only this process and the workers it starts use the ledger."""
        if not in_worker() and self._shared.owner_pid != os.getpid():
            self._shared = copy.copy(self._shared)

    def __getstate__(self) -> dict[str, Any]:
        """Own the ledger before a spawned worker gets it."""
        self.own()
        return self.__dict__ | {"_start": _starts.of_spawned()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Share the ledger of the process that pickled it, if it can be shared."""
        start = state.pop("_start", None)
        if start is not None:
            _own_start[:] = [start]
        self.__dict__.update(state)
        self._join()


def _key(identity: bytes) -> int:
    digest = hashlib.blake2b(identity, digest_size=8).digest()
    # Bit 62 keeps a key from being 0, which the ledger takes for a free entry.
    return int.from_bytes(digest, "little") & (2**62 - 1) | 1 << 62


class _Starts(threading.local):
    """Numbers the processes that one thread starts: workers of a loader have numbers in a row."""

    def __init__(self) -> None:
        self.present = secrets.token_hex(8), 0  # the thread, and how many it has started
        self._latest: weakref.ref[Any] | None = None

    def next(self) -> None:
        self.present = self.present[0], self.present[1] + 1

    def of_spawned(self) -> tuple[str, int] | None:
        """Return the start of the process that is being spawned; None if none is."""
        started = get_spawning_popen()
        if started is None:
            return None
        if self._latest is None or self._latest() is not started:
            self._latest = weakref.ref(started)
            self.next()
        return self.present


_starts = _Starts()
_own_start: list[tuple[str, int]] = []  # that of this process, where it is known
_ledgers: weakref.WeakSet[EpochLedger] = weakref.WeakSet()


def _before_fork() -> None:
    """Own the ledgers before a forked worker inherits them."""
    _starts.next()
    for ledger in list(_ledgers):
        ledger.own()


def _note_start() -> None:
    """Keep, in a forked child, the start that the thread has just made."""
    _own_start[:] = [_starts.present]


@functools.cache
def _watch_forks() -> None:
    """Begin to with the first ledger, for a process may import the package and read nothing."""
    os.register_at_fork(before=_before_fork, after_in_child=_note_start)
    # After a collective call has returned, a thread of gloo registers with the interpreter under a
    # lock. Before 3.11.10, CPython copies a held lock into a forked child, which waits for it for
    # ever (python/cpython#112275). The hook is the extension's function itself: forks ignore an
    # exception that a signal handler raises in a Python function.
    if sys.implementation.name == "cpython" and sys.version_info < (3, 11, 10):
        os.register_at_fork(before=await_gloo_threads)


class _SharedWords:
    """The words of a ledger, int64, in memory that workers share; a pickle gets a copy."""

    def __init__(self, descriptor: int, owner_pid: int) -> None:
        """Take over a descriptor of memory, which gets its size."""
        self._descriptor = descriptor
        self.owner_pid = owner_pid
        weakref.finalize(self, os.close, descriptor)
        # Only pages that are written to take memory, and none of it counts against /dev/shm.
        os.ftruncate(descriptor, 8 * EPOCH_LEDGER_WORDS)
        self.view: NDArray[np.int64] = map_shared_words(descriptor)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the words by value."""
        used = np.flatnonzero(self.view)
        return _new_words, (used, self.view[used])

    def reduce_for_process(self) -> tuple[Any, ...]:
        """Pickle the memory itself, for a process that multiprocessing starts."""
        return _received, (DupFd(self._descriptor), self.owner_pid)


def _new_words(used: Sequence[int] = (), values: Sequence[int] = ()) -> _SharedWords:
    """Return words of this process: 0, but for those that are used."""
    try:
        words = _SharedWords(_anonymous_file(), os.getpid())
    except OSError as error:
        what = "the system gives no shared memory for the numbers of epochs"
        message = f"{what} ({8 * EPOCH_LEDGER_WORDS} bytes): {error.strerror}"
        if error.errno == errno.ENOMEM:
            raise MemoryError(message) from error
        raise OSError(error.errno, message) from error
    words.view[np.asarray(used, dtype=np.int64)] = values
    return words


def _received(duplicate: Any, owner_pid: int) -> _SharedWords:  # multiprocessing has no type for it
    return _SharedWords(duplicate.detach(), owner_pid)


def _anonymous_file() -> int:
    try:
        return os.memfd_create("torchparquet-epochs", os.MFD_CLOEXEC)
    except (AttributeError, OSError):  # a system without it, or one that refuses it
        pass
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


# The pickler that multiprocessing starts processes with.
ForkingPickler.register(_SharedWords, _SharedWords.reduce_for_process)
