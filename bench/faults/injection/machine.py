"""Fault: the clock jumps, there is one processor, signals storm, or very much is open."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from faults.injection import shim
from faults.injection.children import Case
from faults.injection.judging import closed_at_end, judged, read_all
from faults.injection.reading import (
    CONFIGURATIONS,
    Collected,
    DifferenceError,
    batches_of,
    dataset_of,
    oracle,
)

_DAY = 86_400.0
_JUMPS = (1e-3, 1.0, 3600.0, 400 * _DAY, 20_000 * _DAY)
_REPEATS = 20
_NUM_DATASETS = 2000
_NAMES = ("plain", "windows", "row groups")


def _counted(folder: Path, read: Callable[[], int]) -> str:
    """Judge `read`, which returns how often the fault fired."""
    fired = 0

    def work() -> None:
        nonlocal fired
        fired = read()

    label = judged(work, folder, shim.COUNT_ONLY)
    return f"{label}|{fired}"


def _with_jump(folder: Path, name: str, after: int, jump: float) -> str:
    def read() -> int:
        configuration = CONFIGURATIONS[name]
        collected = Collected(oracle(folder))
        num_jumps = 0
        dataset = dataset_of(folder, configuration)
        with closed_at_end(dataset):
            for number, batch in enumerate(batches_of(dataset, configuration)):
                collected.add(batch)
                if number == after:
                    before = time.time()
                    shim.move_clock(jump)
                    num_jumps = int(abs(time.time() - before) > abs(jump) / 2)
        shim.move_clock(0)
        collected.end()
        return num_jumps

    return _counted(folder, read)


def _on_one_processor(folder: Path, name: str, num_threads: int) -> str:
    def read() -> int:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        collected = Collected(oracle(folder))
        read_all(folder, CONFIGURATIONS[name], collected, num_threads=num_threads)
        return int(len(os.sched_getaffinity(0)) == 1)

    return _counted(folder, read)


def _in_storm(folder: Path, name: str, timer: int, number: int) -> str:
    caught = 0

    def count(*_: object) -> None:
        nonlocal caught
        caught += 1

    def read() -> int:
        signal.signal(number, count)
        signal.setitimer(timer, 1e-3, 1e-3)
        for _ in range(_REPEATS):
            read_all(folder, CONFIGURATIONS[name], Collected(oracle(folder)))
        signal.setitimer(timer, 0)
        return caught

    return _counted(folder, read)


def _with_many(folder: Path, num_datasets: int) -> str:
    """Open very many data sets, take a batch of each, and then the rest of them in turn."""
    configuration = CONFIGURATIONS["one thread"]

    def read() -> int:
        with ExitStack() as stack:
            begun = []
            for _ in range(num_datasets):
                dataset = dataset_of(folder, configuration, max_memory="1MiB")
                stack.enter_context(closed_at_end(dataset))
                iterator = batches_of(dataset, configuration)
                collected = Collected(oracle(folder))
                collected.add(next(iterator))
                begun.append((iterator, collected))
            for number in range(0, num_datasets, 100):
                iterator, collected = begun[number]
                for batch in iterator:
                    collected.add(batch)
                collected.end()
            if len(begun) != num_datasets:
                raise DifferenceError(f"{len(begun)} data sets are open")
            return len(begun)

    return _counted(folder, read)


def cases(folder: Path, seed: int, share: float) -> Iterator[Case]:
    """Yield the cases, or a share of them drawn from the seed."""
    oracle(folder)
    rng = random.Random(seed)
    counted = partial(Case, counts_itself=True)
    for name in _NAMES:
        for jump in (*_JUMPS, *(-jump for jump in _JUMPS)):
            if rng.random() < share or jump == 1.0:
                run = partial(_with_jump, folder, name, rng.randrange(4), jump)
                yield counted("clock jumps", f"{name}, {jump} s", run)
        for num_threads in (1, 2, 8):
            run = partial(_on_one_processor, folder, name, num_threads)
            yield counted("one processor", f"{name}, {num_threads} threads", run)
        timers = (signal.ITIMER_PROF, signal.SIGPROF), (signal.ITIMER_REAL, signal.SIGALRM)
        for timer, number in timers:
            run = partial(_in_storm, folder, name, timer, number)
            shown = f"{signal.Signals(number).name} each ms"
            yield counted(shown, name, run)
    num_datasets = max(50, round(_NUM_DATASETS * share))
    run = partial(_with_many, folder, num_datasets)
    seconds = 20 + num_datasets // 10
    yield counted("open data sets", f"{num_datasets}", run, memory_limit=None, seconds=seconds)
