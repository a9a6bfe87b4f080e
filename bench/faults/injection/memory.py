"""Fault: memory, threads or descriptors run out, at each point of an epoch in turn."""

from __future__ import annotations

import errno
import os
import random
import resource
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from faults.injection import shim
from faults.injection.children import Case, run_case
from faults.injection.judging import RIGHT, judged, read_all
from faults.injection.reading import (
    CONFIGURATIONS,
    Collected,
    oracle,
)
from faults.injection.shim import Call, Effect, Fault

_MAX_ALLOCATION = 3000
_NAMES = ("one thread", "plain", "windows", "row groups")
_MIB = 1 << 20
_ADDRESS_STEP, _MAX_ADDRESS = _MIB // 4, 48 * _MIB
_MAX_DESCRIPTORS = 24


def _read(folder: Path, name: str, fault: Fault) -> str:
    collected = Collected(oracle(folder))
    return judged(lambda: read_all(folder, CONFIGURATIONS[name], collected), folder, fault)


def _count(folder: Path, name: str, fault: Fault, call: Call) -> int:
    result = run_case(Case("", "", partial(_read, folder, name, fault)), folder)
    if result.is_finding:
        raise RuntimeError(f"reading without a fault: {result.label}: {result.detail}")
    return shim.count(call)


def _allocations(
    folder: Path, rng: random.Random, share: float, *, on_threads: bool
) -> Iterator[Case]:
    of = "on a decode thread" if on_threads else "of our code on any thread"
    for name in _NAMES:
        count_only = Fault(Call.ALLOCATE, on_threads=on_threads)
        num_calls = _count(folder, name, count_only, Call.ALLOCATE)
        for first in range(1, min(num_calls, _MAX_ALLOCATION) + 1):
            if rng.random() >= share and first > 1:
                continue
            for times, shown in ((1, "one allocation"), (shim.ALWAYS, "all from one on")):
                fault = Fault(Call.ALLOCATE, first, times, Effect.FAIL, 0, on_threads)
                run = partial(_read, folder, name, fault)
                where = f"{name}, allocation {first} of {num_calls}"
                yield Case(f"no memory: {shown}, {of}", where, run)


def _threads(folder: Path) -> Iterator[Case]:
    for name in ("plain", "windows", "one thread"):
        num_calls = _count(folder, name, shim.COUNT_ONLY, Call.THREAD)
        for first in range(1, num_calls + 1):
            for times, shown in ((1, "one"), (shim.ALWAYS, "all from one on")):
                fault = Fault(Call.THREAD, first, times, Effect.FAIL, errno.EAGAIN)
                run = partial(_read, folder, name, fault)
                yield Case(f"no thread: {shown}", f"{name}, thread {first} of {num_calls}", run)


def _limited(folder: Path, name: str, kind: int, limit_of: Callable[[], int], extra: int) -> str:
    # So that libraries are loaded.
    read_all(folder, CONFIGURATIONS[name], Collected(oracle(folder)))
    soft, hard = resource.getrlimit(kind)

    def read() -> None:
        limit = limit_of() + extra
        resource.setrlimit(kind, (limit, hard))
        try:
            read_all(folder, CONFIGURATIONS[name], Collected(oracle(folder)))
        finally:
            resource.setrlimit(kind, (soft, hard))

    label = judged(read, folder, shim.COUNT_ONLY)
    return f"{label}|{int(label != RIGHT)}"


def _address_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def _next_descriptor() -> int:
    free = os.dup(0)
    os.close(free)
    return free


def _limits(folder: Path, rng: random.Random, share: float) -> Iterator[Case]:
    kinds = (
        ("RLIMIT_AS", resource.RLIMIT_AS, _address_bytes, _MAX_ADDRESS, _ADDRESS_STEP),
        ("RLIMIT_NOFILE", resource.RLIMIT_NOFILE, _next_descriptor, _MAX_DESCRIPTORS, 1),
    )
    for shown, kind, limit_of, end, step in kinds:
        for name in ("plain", "windows"):
            for extra in range(0, end, step):
                if rng.random() >= share and extra > 0:
                    continue
                run = partial(_limited, folder, name, kind, limit_of, extra)
                yield Case(
                    shown, f"{name}, {extra} more", run, counts_itself=True, memory_limit=None
                )


def cases(folder: Path, seed: int, share: float) -> Iterator[Case]:
    """Yield the cases, or a share of them drawn from the seed."""
    oracle(folder)
    rng = random.Random(seed)
    yield from _allocations(folder, rng, share, on_threads=True)
    yield from _threads(folder)
    yield from _limits(folder, rng, share)


def cases_of_bindings(folder: Path, seed: int, share: float) -> Iterator[Case]:
    """Yield cases of allocations by our code, on the main thread too.

    pybind11 3.1 ends the process if it has no memory to register an object that Python makes.
    """
    oracle(folder)
    yield from _allocations(folder, random.Random(seed), share, on_threads=False)
