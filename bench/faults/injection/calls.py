"""Fault: one call of the system fails, is short or is late; each call of an epoch in turn."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from faults.injection import shim
from faults.injection.children import Case, run_case
from faults.injection.judging import judged, read_all
from faults.injection.reading import CONFIGURATIONS, Collected, oracle
from faults.injection.shim import Call, Effect, Fault

CODES = ("EIO", "EINTR", "EAGAIN", "ESTALE", "EMFILE", "ENOENT", "EACCES", "ENOMEM")
CALLS = (
    Call.OPEN,
    Call.STAT,
    Call.READ,
    Call.MAP,
    Call.MEMFD,
    Call.TRUNCATE,
    Call.CLOSE,
)
SHORT = {"1 byte": 1, "half": 0, "all but one": -1}
_DELAY_MS = 20
_NAMES = ("plain", "windows", "workers")


def _read(folder: Path, name: str, fault: Fault) -> str:
    configuration = CONFIGURATIONS[name]
    collected = Collected(oracle(folder))
    # Threads of a loader's queues end by themselves, some time after the loader.
    patience_seconds = 10.0 if configuration.num_workers else 0.0
    read = partial(read_all, folder, configuration, collected)
    return judged(read, folder, fault, patience_seconds)


def counts_of(folder: Path, name: str) -> dict[Call, int]:
    """Return how many calls of each kind an epoch makes."""
    case = Case("", "", partial(_read, folder, name, shim.COUNT_ONLY))
    result = run_case(case, folder)
    if result.is_finding:
        raise RuntimeError(f"reading without a fault: {result.label}: {result.detail}")
    return {call: shim.count(call) for call in CALLS}


def _effects(call: Call) -> Iterator[tuple[str, Effect, int]]:
    for code in CODES:
        yield code, Effect.FAIL, getattr(errno, code)
    yield "late", Effect.DELAY, _DELAY_MS
    if call == Call.READ:
        for shown, value in SHORT.items():
            yield f"short: {shown}", Effect.SHORT, value


def cases(folder: Path, seed: int, share: float) -> Iterator[Case]:
    """Yield the cases, or a share of them drawn from the seed."""
    oracle(folder)  # once for all children
    rng = random.Random(seed)
    for name in _NAMES:
        for call, num_calls in counts_of(folder, name).items():
            for shown, effect, value in _effects(call):
                drawn = [n for n in range(1, num_calls + 1) if rng.random() < _share(name) * share]
                for first in drawn or ([1] if name == _NAMES[0] else []):
                    if num_calls == 0:
                        continue
                    fault = Fault(call, first, 1, effect, value)
                    row = f"{call.name.lower()}: {shown}"
                    run = partial(_read, folder, name, fault)
                    yield Case(row, f"{name}, call {first} of {num_calls}", run)
        if name == "plain":
            yield from _short_throughout(folder)


def _share(name: str) -> float:
    # Starting workers takes ten times as long as reading.
    return 0.1 if name == "workers" else 1.0


def _short_throughout(folder: Path) -> Iterator[Case]:
    """Every read of an epoch is short."""
    for name in ("plain", "windows"):
        for shown, value in SHORT.items():
            if value == 1:
                continue  # a read of n bytes would take n calls
            fault = Fault(Call.READ, 1, shim.ALWAYS, Effect.SHORT, value)
            run = partial(_read, folder, name, fault)
            yield Case(f"read: short: {shown}", f"{name}, all calls", run)
