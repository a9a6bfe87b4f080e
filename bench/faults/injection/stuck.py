"""Fault: a read of the disk does not return, and the user presses Ctrl-C."""

from __future__ import annotations

import gc
import os
import random
import select
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from faults.injection import shim
from faults.injection.calls import counts_of
from faults.injection.children import Case
from faults.injection.judging import check_nothing_left, closed_at_end
from faults.injection.reading import (
    CONFIGURATIONS,
    Collected,
    DifferenceError,
    batches_of,
    dataset_of,
    num_threads,
    open_descriptors,
    oracle,
    read_good,
)
from faults.injection.shim import Call, Effect, Fault

_CASES = 100
_SECONDS = 1.0
_IN_TIME, _LATE = b"t", b"l"
_POLL_SECONDS = 0.02
_FUTEX = "202"  # the number of the system call by which threads wait, on x86-64


class Pipes(NamedTuple):
    """The ends of three pipes, read end first.

    Attributes:
        disk: A byte lets the stuck read go on.
        ended: The child says that its loop has ended.
        verdict: The parent says whether that was in time.
    """

    disk: tuple[int, int]
    ended: tuple[int, int]
    verdict: tuple[int, int]

    def close(self) -> None:
        """Close all ends."""
        for ends in self:
            for end in ends:
                os.close(end)


def _interrupt(pipes: Pipes, child: int) -> None:
    """Press Ctrl-C while the read is stuck, and let it go on once the loop has ended."""
    while not _is_waiting(child):
        time.sleep(_POLL_SECONDS)
    os.kill(child, signal.SIGINT)
    in_time = bool(select.select([pipes.ended[0]], [], [], _SECONDS)[0])
    os.write(pipes.disk[1], b"\n")
    os.write(pipes.verdict[1], _IN_TIME if in_time else _LATE)


def _is_waiting(child: int) -> bool:
    """True if the main thread has waited for a batch in two looks; its loop's body never waits."""
    for _ in range(2):
        time.sleep(_POLL_SECONDS)
        called = Path(f"/proc/{child}/task/{child}/syscall").read_text().split()[0]
        if called != _FUTEX:
            return False
    return True


def _read(folder: Path, name: str, pipes: Pipes, first: int, held: bool) -> str:
    # A shell ignores the signal in what it starts in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    read_good(folder)
    gc.collect()
    before = num_threads(), open_descriptors()
    label = _interrupted(folder, name, pipes, first, held)
    shim.disarm()
    # The read has returned by now; its thread ends by itself.
    while num_threads() > before[0]:
        time.sleep(_POLL_SECONDS)
    check_nothing_left(folder, *before)
    return label


def _interrupted(folder: Path, name: str, pipes: Pipes, first: int, held: bool) -> str:
    configuration = CONFIGURATIONS[name]
    dataset = dataset_of(folder, configuration)
    collected = Collected(oracle(folder))
    label = "right rows"
    with closed_at_end(dataset):
        shim.arm(Fault(Call.READ, first, 1, Effect.WAIT, pipes.disk[0]))
        kept = batches_of(dataset, configuration) if held else None
        try:
            for batch in kept or batches_of(dataset, configuration):
                collected.add(batch)
        except KeyboardInterrupt:
            label = "KeyboardInterrupt"
        os.write(pipes.ended[1], b"\n")
        if os.read(pipes.verdict[0], 1) == _LATE:
            raise DifferenceError(f"the loop did not end within {_SECONDS} s of Ctrl-C")
        if kept is not None:
            for batch in kept:
                collected.add(batch)
            collected.end()
            label += ", then right rows"
    return label


def cases(folder: Path, seed: int, share: float) -> Iterator[Case]:
    """Yield the cases, or a share of them drawn from the seed."""
    oracle(folder)
    rng = random.Random(seed)
    for name in ("plain", "one thread", "windows"):
        num_calls = counts_of(folder, name)[Call.READ]
        for number in range(max(2, round(_CASES * share))):
            # The first reads are of footers, which the data set reads before it is armed.
            first = rng.randint(1, num_calls - 8)
            held = number % 2 == 0
            pipes = Pipes(os.pipe(), os.pipe(), os.pipe())
            run = partial(_read, folder, name, pipes, first, held)
            shown = f"{name}, read {first} of {num_calls}, {'kept' if held else 'own'} iterator"
            yield Case("stuck read, Ctrl-C", shown, run, during=partial(_interrupt, pipes))
            pipes.close()
