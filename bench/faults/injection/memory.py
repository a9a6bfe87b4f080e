"""Fault: memory, threads or descriptors run out, at each point of an epoch in turn."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from faults.injection import shim
from faults.injection.children import Case, run_case
from faults.injection.judging import RIGHT, closed_at_end, judged, read_all, read_epoch
from faults.injection.origin import origin_of
from faults.injection.reading import (
    CONFIGURATIONS,
    Collected,
    dataset_of,
    oracle,
)
from faults.injection.shim import Call, Effect, Fault

# A reading of a store has ten thousand allocations, of which so many are drawn.
_STORE_SHARE = 0.1
_NAMES = ("one thread", "plain", "windows", "row groups")
_MIB = 1 << 20
_ADDRESS_STEP, _MAX_ADDRESS = _MIB // 4, 48 * _MIB
_MAX_DESCRIPTORS = 24

Read = Callable[[Fault], str]


def _read(folder: Path, name: str, fault: Fault) -> str:
    collected = Collected(oracle(folder))
    return judged(lambda: read_all(folder, CONFIGURATIONS[name], collected), folder, fault)


def _read_store(folder: Path, urls: list[str], fault: Fault) -> str:
    """Read a store with a data set that is open before and after the fault, and with a new one."""
    configuration = CONFIGURATIONS["plain"]
    kept = dataset_of(folder, configuration, paths=urls)

    def read() -> None:
        # The second epoch begins with what the first one asked for at its end.
        for _ in range(2):
            read_epoch(kept, configuration, Collected(oracle(folder)))
        read_all(folder, configuration, Collected(oracle(folder)), paths=urls)

    with closed_at_end(kept):
        read_epoch(kept, configuration, Collected(oracle(folder)))
        label = judged(read, folder, fault)
        read()
    return label


def _read_cached_store(folder: Path, urls: list[str], fault: Fault) -> str:
    """Read a store through a cache on disk, which writes until its data set is closed."""
    place = folder / f"blocks-{os.getpid()}"

    def read() -> None:
        for _ in range(2):
            collected = Collected(oracle(folder))
            read_all(folder, CONFIGURATIONS["plain"], collected, paths=urls, cache_dir=place)

    read_all(folder, CONFIGURATIONS["plain"], Collected(oracle(folder)), paths=urls)
    label = judged(read, folder, fault)
    read()
    shutil.rmtree(place)
    return label


def _count(folder: Path, read: Read, call: Call, fault: Fault) -> int:
    result = run_case(Case("", "", partial(read, fault)), folder)
    if result.is_finding:
        raise RuntimeError(f"reading without a fault: {result.label}: {result.detail}")
    num_calls = shim.count(call)
    if num_calls == 0:
        raise RuntimeError(f"reading makes no call of the kind {call.name}")
    return num_calls


def _allocations(
    folder: Path, reads: Mapping[str, Read], rng: random.Random, share: float, *, on_threads: bool
) -> Iterator[Case]:
    of = "on threads of ours" if on_threads else "of our code on any thread"
    for name, read in reads.items():
        count_only = Fault(Call.ALLOCATE, on_threads=on_threads)
        num_calls = _count(folder, read, Call.ALLOCATE, count_only)
        for first in range(1, num_calls + 1):
            if rng.random() >= share * (1 if name in _NAMES else _STORE_SHARE) and first > 1:
                continue
            for times, shown in ((1, "one allocation"), (shim.ALWAYS, "all from one on")):
                fault = Fault(Call.ALLOCATE, first, times, Effect.FAIL, 0, on_threads)
                where = f"{name}, allocation {first} of {num_calls}"
                yield Case(f"no memory: {shown}, {of}", where, partial(read, fault))


def _threads(folder: Path) -> Iterator[Case]:
    for name in ("plain", "windows", "one thread"):
        read = partial(_read, folder, name)
        num_calls = _count(folder, read, Call.THREAD, shim.COUNT_ONLY)
        for first in range(1, num_calls + 1):
            for times, shown in ((1, "one"), (shim.ALWAYS, "all from one on")):
                fault = Fault(Call.THREAD, first, times, Effect.FAIL, errno.EAGAIN)
                where = f"{name}, thread {first} of {num_calls}"
                yield Case(f"no thread: {shown}", where, partial(read, fault))


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
    reads = {name: partial(_read, folder, name) for name in _NAMES}
    with origin_of(folder) as urls:
        reads["store"] = partial(_read_store, folder, urls)
        reads["store, cached"] = partial(_read_cached_store, folder, urls)
        yield from _allocations(folder, reads, rng, share, on_threads=True)
    yield from _threads(folder)
    yield from _limits(folder, rng, share)


def cases_of_bindings(folder: Path, seed: int, share: float) -> Iterator[Case]:
    """Yield cases of allocations by our code, on the main thread too.

    pybind11 3.1 ends the process if it has no memory to register an object that Python makes.
    """
    oracle(folder)
    reads = {name: partial(_read, folder, name) for name in _NAMES}
    yield from _allocations(folder, reads, random.Random(seed), share, on_threads=False)
