"""The ways in which a process that reads may end, each in several surroundings.

All of it runs in a forked child, whose interpreter exits in the regular way after it.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

from faults.processes.children import own_children
from torchparquet import ParquetDataset

# The documents quote it: these processes end as users are told to.
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
from job import ending_process_group

# Number of ranks, in settings with a process group.
RANKS = {"1 rank": 1, "2 ranks": 2, "2 ranks, DDP": 2}
SETTINGS = ("alone", *RANKS, "fork", "spawn", "forkserver", "page-locked")
LOADERS = ("fork", "spawn", "forkserver")
# They import torch anew for each worker.
SLOW_SETTINGS = ("spawn", "forkserver")
NUM_ROWS, BATCH_SIZE = 8000, 100
OWN_CODE = 7
_STEPS = 3
_CALLS, _CALL_ITEMS = 20, 100_000
_JOIN_SECONDS = 5.0


class Scene:
    """A loop's surroundings: its data, its process group, and a pipe to the parent."""

    def __init__(self, setting: str, folder: Path, rank: int, store: str, pipe: int) -> None:
        """Open the data set; read nothing.

        Args:
            setting: One of `SETTINGS`.
            folder: Of the files.
            rank: Of this process.
            store: Path at which ranks meet.
            pipe: Takes the facts to the parent.
        """
        self._pipe = pipe
        self.has_group = setting in RANKS
        self._model: nn.Module | None = None
        torch.set_num_threads(1)
        if self.has_group:
            dist.init_process_group(
                "gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS[setting]
            )
            # Starts the threads that stay.
            dist.all_reduce(torch.ones(1))
        if setting == "2 ranks, DDP":
            model = nn.Linear(1, 1, dtype=torch.float64)
            self._model = nn.parallel.DistributedDataParallel(model)
            # Starts the threads that stay, and belong to torch.
            self._model(torch.ones(1, 1, dtype=torch.float64)).sum().backward()
        dataset = ParquetDataset(
            folder,
            batch_size=BATCH_SIZE,
            num_threads=2,
            max_memory="60KB",
            shuffle=True,
            pin_memory=setting == "page-locked",
        )
        self.data: Iterable[Any] = dataset
        self.is_loader = setting in LOADERS
        if self.is_loader:
            num_workers = 1 if setting in SLOW_SETTINGS else 2
            self.data = DataLoader(
                dataset, None, num_workers=num_workers, multiprocessing_context=setting
            )
        self._counts_descriptors = setting not in SLOW_SETTINGS
        self._threads, self._descriptors = _num("task"), _num("fd")

    def step(self, batch: dict[str, Any]) -> None:
        """Use a batch, with all ranks if there are several."""
        if self._model is not None:
            self._model(batch["x"][:, None]).mean().backward()
            return
        loss = batch["x"].mean()
        if self.has_group:
            dist.all_reduce(loss)

    def tell_mid_iteration(self) -> None:
        """Tell the parent how many threads or processes read at this moment."""
        readers = len(own_children()) if self.is_loader else _num("task") - self._threads
        self._begin_calls()
        self._tell(readers=readers)

    def tell_end_of_loop(self, num_batches: int) -> None:
        """Tell the parent that the epoch has ended."""
        self._begin_calls()
        self._tell(readers=num_batches)

    def tell_what_is_left(self) -> None:
        """Tell the parent what the loop has left in this process."""
        deadline = time.monotonic() + _JOIN_SECONDS
        # The kernel lists a thread for a moment longer than a join of it lasts.
        while _num("task") > self._threads and time.monotonic() < deadline:
            os.sched_yield()
        left = {"threads": _num("task") - self._threads}
        if self._counts_descriptors:
            left["descriptors"] = _num("fd") - self._descriptors
        self._tell(**{name: max(0, number) for name, number in left.items()})

    def _begin_calls(self) -> None:
        """Begin calls that nobody waits for: a thread of gloo frees their tensors later."""
        for _ in range(_CALLS if self.has_group else 0):
            dist.all_reduce(torch.ones(_CALL_ITEMS), async_op=True)

    def _tell(self, **facts: int) -> None:
        os.write(self._pipe, json.dumps(facts).encode() + b"\n")

    @contextmanager
    def ended(self, *, keeps_group: bool) -> Iterator[None]:
        """End the process group on every path, as the documents advise, unless it is to be kept."""
        with nullcontext() if keeps_group else ending_process_group():
            try:
                yield
            finally:
                self._model = None  # It holds the group as long as it lives.


def _num(what: str) -> int:
    return sum(1 for _ in Path(f"/proc/self/{what}").iterdir())


def _loop_ends(scene: Scene) -> None:
    num_batches = 0
    for batch in scene.data:
        scene.step(batch)
        num_batches += 1
    scene.tell_end_of_loop(num_batches)
    del batch
    scene.tell_what_is_left()


def _return_in_loop(scene: Scene) -> None:
    _some_steps(scene)
    scene.tell_what_is_left()


def _some_steps(scene: Scene) -> None:
    for number, batch in enumerate(scene.data):
        scene.step(batch)
        if number == _STEPS:
            scene.tell_mid_iteration()
            return


def _exception(scene: Scene) -> None:
    for number, batch in enumerate(scene.data):
        scene.step(batch)
        if number == _STEPS:
            scene.tell_mid_iteration()
            raise ZeroDivisionError("raised by the loop")


def _until_signalled(scene: Scene) -> None:
    number = 0
    while True:
        for batch in scene.data:
            scene.step(batch)
            number += 1
            if number == _STEPS:
                scene.tell_mid_iteration()


def _os_exit(scene: Scene) -> None:
    for number, batch in enumerate(scene.data):
        scene.step(batch)
        if number == _STEPS:
            scene.tell_mid_iteration()
            os._exit(OWN_CODE)


# Until the process ends. torch ends it by SIGABRT if a daemon thread frees a tensor at exit, even
# one that only an exception's traceback or a function still has.
_kept: list[Any] = []


def _daemon_thread(scene: Scene) -> None:
    began = threading.Event()

    def iterate() -> None:
        while True:
            for batch in scene.data:
                _kept.append(batch)
                if len(_kept) == _STEPS:
                    began.set()
                    if scene.is_loader:
                        # torch ends the process by SIGABRT if it exits while a daemon thread
                        # calls an operator, which DataLoader does at each step.
                        threading.Event().wait()

    threading.Thread(target=iterate, daemon=True).start()
    began.wait()
    scene.tell_mid_iteration()


def _garbage(scene: Scene) -> None:
    iterator: Any = iter(scene.data)
    for _ in range(_STEPS):
        scene.step(next(iterator))
    iterator.cycle = [iterator]
    scene.tell_mid_iteration()
    del iterator
    gc.collect()
    scene.tell_what_is_left()


def _global_iterator(scene: Scene) -> None:
    iterator = iter(scene.data)
    _kept.append(iterator)
    for _ in range(_STEPS):
        scene.step(next(iterator))
    scene.tell_mid_iteration()


@dataclass(frozen=True)
class Ending:
    """A way to end.

    Attributes:
        run: Reads, tells of it, and ends.
        code: The exit code that a shell would see of it; negative for a signal's number.
        signal: Sent by the parent in mid-iteration; 0 for nothing.
    """

    run: Callable[[Scene], None]
    code: int = 0
    signal: int = 0


ENDINGS = {
    "loop ends": Ending(_loop_ends),
    "return in the loop": Ending(_return_in_loop),
    "exception": Ending(_exception, code=1),
    "Ctrl-C": Ending(_until_signalled, -signal.SIGINT, signal.SIGINT),
    "SIGTERM": Ending(_until_signalled, -signal.SIGTERM, signal.SIGTERM),
    "os._exit": Ending(_os_exit, code=OWN_CODE),
    "daemon thread": Ending(_daemon_thread),
    "garbage collection": Ending(_garbage),
    "interpreter exit": Ending(_global_iterator),
}
