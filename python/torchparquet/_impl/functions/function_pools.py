"""Threads or processes that apply the user's functions to batches ahead of the loop."""

from __future__ import annotations

import os
import random
import signal
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
import torch.multiprocessing

from torchparquet._impl.functions.batch_seed import with_seed
from torchparquet._impl.functions.transforms import Transforms
from torchparquet._impl.processors import end_with_parent
from torchparquet.options import Ahead


class FunctionPool:
    """Applies functions to batches, several at once. Belongs to one process."""

    def __init__(self, transforms: Transforms, ahead: Ahead) -> None:
        """Begin no thread or process yet."""
        self._transforms = transforms
        self._ahead = ahead
        self._executor: Executor | None = None
        self._greeting: Future[None] | None = None
        self._end: Callable[[], Any] | None = None
        self.owner_pid = os.getpid()

    @property
    def max_batches(self) -> int:
        """Batches to be worked on or held at once: one more for each that the loop waits for."""
        return 2 * self._ahead.num_workers

    @property
    def has_processes(self) -> bool:
        """True if a crash of a function leaves this process alone."""
        return self._ahead.processes is not None

    @property
    def has_begun(self) -> bool:
        """False if the pool is broken, and no process of it came so far as to do anything."""
        greeting = self._greeting
        return greeting is None or not greeting.done() or greeting.exception() is None

    def submit(self, batch: dict[str, Any], seed: int) -> Future[dict[str, Any]]:
        """Begin to apply the functions; a process that ends makes the result a BrokenExecutor."""
        executor = self._executor or self._begin()
        if self.has_processes:
            return executor.submit(_apply_in_process, batch, seed)
        return executor.submit(with_seed, seed, self._transforms.run, batch)

    def _begin(self) -> Executor:
        ahead = self._ahead
        if not self.has_processes:
            made: Executor = ThreadPoolExecutor(ahead.threads, "torchparquet-transform")
        elif torch.multiprocessing.current_process().daemon:
            raise RuntimeError(
                "Ahead(processes=...) needs a DataLoader with num_workers=0: workers are processes "
                "already, and may have none of their own"
            )
        else:
            # A fork would copy the locks of decode threads as they are.
            context = torch.multiprocessing.get_context("spawn")
            given = (self._transforms,)
            made = ProcessPoolExecutor(ahead.processes, context, _begin_process, given)
            self._greeting = made.submit(_greet)
        self._executor = made
        self._end = weakref.finalize(self, _end, made, self.owner_pid)
        return made

    def close(self) -> None:
        """End the threads or processes. The pool stays usable."""
        self._executor = None
        end, self._end = self._end, None
        if end is not None:
            end()


def _end(executor: Executor, owner_pid: int) -> None:
    if os.getpid() != owner_pid:
        return  # a forked child, whose parent still uses them
    if isinstance(executor, ProcessPoolExecutor):
        # One that hangs would be waited for without end.
        processes = list((getattr(executor, "_processes", None) or {}).values())
        executor.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
            process.join()
        return
    # Garbage may be collected on one of the threads, which cannot join itself.
    threads = getattr(executor, "_threads", ())
    executor.shutdown(wait=threading.current_thread() not in threads, cancel_futures=True)


# Of this process, where it is one of a pool.
_own_transforms: list[Transforms] = []


def _begin_process(transforms: Transforms) -> None:
    # Ctrl-C goes to all processes of a terminal. The one that iterates ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    _own_transforms.append(transforms)
    end_with_parent()


def _greet() -> None:
    """Do nothing, in the first process."""


def _apply_in_process(batch: dict[str, Any], seed: int) -> dict[str, Any]:
    random.seed(seed)
    np.random.seed(seed % 2**32)  # Functions may use it.
    torch.manual_seed(seed)
    made: dict[str, Any] = with_seed(seed, _own_transforms[0].run, batch)
    return made
