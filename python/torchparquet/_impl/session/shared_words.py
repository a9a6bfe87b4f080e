"""The words of an epoch ledger, in memory that the DataLoader workers of a process share."""

from __future__ import annotations

import errno
import os
import tempfile
import weakref
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.native import EPOCH_LEDGER_WORDS, map_shared_words


class SharedWords:
    """The words of an epoch ledger, int64, in memory that the workers of a process share.

    Workers that are spawned get the memory itself. Whoever gets a pickle gets a copy that is not
    shared; it holds the words that are not 0, which are few.
    """

    def __init__(self, view: NDArray[np.int64], descriptor: int | None = None) -> None:
        """Take over `view`, and the descriptor of its memory if it is shared."""
        self.view = view
        self._descriptor = descriptor
        if descriptor is not None:
            weakref.finalize(self, os.close, descriptor)

    @classmethod
    def new(cls) -> SharedWords:
        """Return the words of a ledger without entries."""
        num_bytes = 8 * EPOCH_LEDGER_WORDS
        try:
            # Only pages that are written to take memory, and none of it counts against /dev/shm.
            descriptor = _anonymous_file()
            try:
                os.ftruncate(descriptor, num_bytes)
            except BaseException:
                os.close(descriptor)
                raise
            return cls.of_descriptor(descriptor)
        except OSError as error:
            what = "the system gives no shared memory for the numbers of epochs"
            message = f"{what} ({num_bytes} bytes): {error.strerror}"
            if error.errno == errno.ENOMEM:
                raise MemoryError(message) from error
            raise OSError(error.errno, message) from error

    @classmethod
    def of_descriptor(cls, descriptor: int) -> SharedWords:
        """Return the words in the memory of an open descriptor, which they own from now on."""
        try:
            view = map_shared_words(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(view, descriptor)

    @property
    def is_copy(self) -> bool:
        """True if no other process shares the words."""
        return self._descriptor is None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the words by value."""
        used = np.flatnonzero(self.view)
        return _copied, (used, self.view[used])

    def reduce_for_process(self) -> tuple[Any, ...]:
        """Pickle the memory itself, for a process that multiprocessing starts."""
        if self._descriptor is None:
            return self.__reduce__()
        return _received, (DupFd(self._descriptor),)


def _anonymous_file() -> int:
    try:
        return os.memfd_create("torchparquet-epochs", os.MFD_CLOEXEC)
    except (AttributeError, OSError):  # a system without it, or one that refuses it
        pass
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _copied(used: NDArray[np.int64], values: NDArray[np.int64]) -> SharedWords:
    words = np.zeros(EPOCH_LEDGER_WORDS, dtype=np.int64)
    words[used] = values
    return SharedWords(words)


def _received(duplicate: Any) -> SharedWords:  # multiprocessing has no type for it
    return SharedWords.of_descriptor(duplicate.detach())


# The pickler that multiprocessing starts processes with.
ForkingPickler.register(SharedWords, SharedWords.reduce_for_process)
