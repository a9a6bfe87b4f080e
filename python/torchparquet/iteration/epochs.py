"""Which epoch an iteration is, agreed with the DataLoader workers of the same process."""

from __future__ import annotations

import hashlib
import os
import secrets
import weakref
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import get_worker_info

from torchparquet.native import (
    EPOCH_LEDGER_WORDS,
    begin_iteration,
    epoch_of,
    num_iterations,
    set_epoch_of,
)
from torchparquet.ranks.sharding import in_worker


class _Ledger:
    """The words of a ledger, int64, in memory that the workers of a process share.

    Workers that are spawned get the memory itself. Whoever gets a pickle gets the words that are
    not 0, which are few of them, as a copy that is not shared.
    """

    def __init__(self, tensor: Tensor) -> None:
        """Take over `tensor`."""
        self.tensor = tensor

    @classmethod
    def shared(cls) -> _Ledger:
        """Return a ledger without entries."""
        # Not `torch.zeros(...).share_memory_()`: its copy starts torch's own threads, which do
        # not survive a fork.
        storage = torch.UntypedStorage._new_shared(8 * EPOCH_LEDGER_WORDS)  # type: ignore[no-untyped-call]
        return cls(torch.empty(0, dtype=torch.int64).set_(storage))

    @property
    def words(self) -> NDArray[np.int64]:
        """A view of them, `[EPOCH_LEDGER_WORDS]`."""
        words: NDArray[np.int64] = self.tensor.numpy()
        return words

    @property
    def is_copy(self) -> bool:
        """Whether no other process shares the words."""
        return not self.tensor.is_shared()  # type: ignore[no-untyped-call]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the words by value."""
        used = np.flatnonzero(self.words)
        return _copied_ledger, (used, self.words[used])


def _copied_ledger(used: NDArray[np.int64], values: NDArray[np.int64]) -> _Ledger:
    words = np.zeros(EPOCH_LEDGER_WORDS, dtype=np.int64)
    words[used] = values
    return _Ledger(torch.from_numpy(words))


# The pickler that multiprocessing starts processes with hands tensors on by their memory.
ForkingPickler.register(_Ledger, lambda ledger: (_Ledger, (ledger.tensor,)))


class EpochCounter:
    """Numbers the iterations over a data set: each is the next epoch.

    The DataLoader workers of one iteration count as one. They and the process that started them
    share the counter; every other process that gets a copy (a rank that was spawned or forked with
    the data set, say) counts on by itself.
    """

    def __init__(self) -> None:
        """Start at epoch 0."""
        self._ledger = _Ledger.shared()
        self._owner_pid = os.getpid()
        # Iterations up to here were this process's, or are of no account any more.
        self._num_seen = 0
        self._num_own = 0  # up to the latest of this process
        self._pending: int | None = None  # one that this process is beginning
        _counters.add(self)

    def begin(self) -> int:
        """Return the number of an iteration that begins in this process.

        Outside of workers it is the next one's too until `begun` is called, so that what fails in
        between takes no epoch.
        """
        worker = get_worker_info()
        if worker is None:
            if self._pending is not None and self._is_pending:
                return self._pending
            identity, worker_id = secrets.token_bytes(8), 0
        else:
            # All workers of one iteration see the same base seed.
            identity = f"{worker.seed - worker.id} {worker.num_workers}".encode()
            worker_id = worker.id
        digest = hashlib.blake2b(identity, digest_size=8).digest()
        # Bit 62 keeps a key from being 0, which the ledger takes for a free entry.
        key = int.from_bytes(digest, "little") & (2**62 - 1) | 1 << 62
        number = begin_iteration(self._words(), key, worker_id)
        self._num_seen = self._num_own = number + 1
        self._pending = None if worker else number
        return number

    def begun(self) -> None:
        """Take note that the iteration of the latest `begin` of this process has begun."""
        if self._pending is not None:
            self._num_seen = self._num_own = self._pending + 1
            self._pending = None

    @property
    def _is_pending(self) -> bool:
        """Whether the latest iteration of all is one that this process is beginning."""
        return (
            self._pending is not None
            and not in_worker()
            and num_iterations(self._words()) == self._pending + 1
        )

    def epoch_of(self, iteration: int) -> int:
        """Return the epoch of an iteration that has begun, or is the next to begin."""
        return epoch_of(self._words(), iteration)

    def set_epoch_of(self, iteration: int, epoch: int) -> None:
        """Make `epoch` that of an iteration; later ones count on from there."""
        set_epoch_of(self._words(), iteration, epoch)

    def num_iterations(self) -> int:
        """Return how many iterations have begun, in this process or its workers."""
        return num_iterations(self._words()) - self._is_pending

    def see(self) -> int:
        """Take note of the iterations so far, also those of workers; return how many they are.

        One that this process is beginning counts: what is told next is for one behind it, which
        workers may begin.
        """
        self._pending = None
        self._num_seen = self.num_iterations()
        return self._num_seen

    def check_seen(self, what: str) -> None:
        """Make sure that no iteration since was that of workers.

        Args:
            what: Is iterated.

        Raises:
            RuntimeError: DataLoader workers have iterated, and only they know how far.
        """
        if not in_worker() and self.num_iterations() > self._num_seen:
            raise RuntimeError(
                f"DataLoader workers have iterated this {what}, and only they know how far: take "
                "the state from torchdata's StatefulDataLoader, or use num_workers=0"
            )

    def check_own(self, what: str, wanted: str) -> None:
        """Make sure that the latest iteration was this process's.

        Args:
            what: Is iterated.
            wanted: What only those know who iterate.

        Raises:
            RuntimeError: It was that of DataLoader workers.
        """
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
        inherited = self._ledger.words
        self._ledger = _Ledger.shared()
        self._ledger.words[:] = inherited
        self._owner_pid = os.getpid()

    def _words(self) -> NDArray[np.int64]:
        self.own()
        return self._ledger.words

    def __getstate__(self) -> dict[str, Any]:
        """Own the counter before a spawned worker gets it."""
        self.own()
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Share the counter of the process that pickled it, if it can be shared."""
        self.__dict__.update(state)
        if self._ledger.is_copy:
            self._owner_pid = -1
        _counters.add(self)


_counters: weakref.WeakSet[EpochCounter] = weakref.WeakSet()


def _own_all() -> None:
    """Own the counters before a forked worker inherits them."""
    for counter in list(_counters):
        counter.own()


os.register_at_fork(before=_own_all)
