"""Passes over a store by one reader, in a process of its own, with its waits and its memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from passes.consumption import PassTotals, consume
from passes.sides import ContentError, ForkedSide, Pass
from routes.pyarrow_routes import Batch
from stores.nginx import Place
from stores.readers import Reader

_RESET_PEAK = "5"
Batches = Callable[[], Iterator[Batch]]


@dataclass(frozen=True)
class Measured:
    """The result of one reader.

    Attributes:
        name: Of the reader.
        passes: Timed ones.
        waits: Seconds of each `next`, of all timed passes.
        peak_bytes: Of the process's memory, beyond what it had before it read.
    """

    name: str
    passes: list[Pass]
    waits: list[float]
    peak_bytes: int

    @property
    def seconds(self) -> float:
        """The median."""
        return statistics.median(one.seconds for one in self.passes)

    @property
    def gb_per_second(self) -> float:
        """Of tensors, in 1e9 bytes."""
        return self.passes[0].totals.num_bytes / 1e9 / self.seconds

    @property
    def wait_p99_ms(self) -> float:
        """The wait for a batch that one in a hundred exceeds."""
        return 1e3 * statistics.quantiles(self.waits, n=100)[98]


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no field {field}")


class _Observed:
    """Lives in the process of a side."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._waits: list[float] = []
        self._kept: list[float] = []
        self._baseline_bytes = 0

    def read(self) -> PassTotals:
        """Reads all, and notes how long each batch took to come."""
        if not self._baseline_bytes:
            # If the kernel refuses, the peak also covers imports: an over-estimate at worst.
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
            self._baseline_bytes = _status_bytes("VmRSS")
        return consume(self._timed())

    def _timed(self) -> Iterator[Batch]:
        iterator = self._batches()
        while True:
            begin = time.perf_counter()
            batch = next(iterator, None)
            self._waits.append(time.perf_counter() - begin)
            if batch is None:
                return
            yield batch

    def observed(self) -> tuple[list[float], int]:
        """Returns the waits of timed passes, and the peak of memory beyond the baseline."""
        return self._kept, _status_bytes("VmHWM") - self._baseline_bytes

    def forget(self) -> None:
        """Forgets the waits of an untimed pass."""
        self._waits.clear()

    def keep(self) -> None:
        """Keeps the waits of a timed pass."""
        self._kept += self._waits
        self._waits.clear()


def _side(name: str, batches: Batches) -> ForkedSide:
    one = _Observed(batches)
    return ForkedSide(
        name, one.read, {"observed": one.observed, "forget": one.forget, "keep": one.keep}
    )


def measure(
    readers: Sequence[Reader], place: Place, batch_size: int, repeats: int
) -> list[Measured]:
    """Times rounds in which all take turns: a pass that does not count, and one that does."""
    ways = {
        reader.name: _opener(reader, place, batch_size)
        for reader in readers
        if reader.batches is not None and not reader.missing
    }
    return measure_batches(ways, repeats)


def _opener(reader: Reader, place: Place, batch_size: int) -> Batches:
    assert reader.batches is not None
    open_batches = reader.batches
    return lambda: open_batches(place, batch_size)


def measure_batches(ways: dict[str, Batches], repeats: int) -> list[Measured]:
    """Times rounds of anything that makes batches; see ``measure``.

    Raises:
        ContentError: Two of them delivered different rows or values.
    """
    consume([{"column": torch.zeros(8)}])  # compiles
    sides = [_side(name, batches) for name, batches in ways.items()]
    passes: dict[str, list[Pass]] = {side.name: [] for side in sides}
    try:
        for number in range(repeats):
            begin = number % len(sides)
            for side in (*sides[begin:], *sides[:begin]):
                # While others take their turns, the system takes back what a process has freed.
                side.ask("warm")
                side.ask("forget")
                passes[side.name].append(side.ask("pass"))
                side.ask("keep")
        observed = {side.name: side.ask("observed") for side in sides}
    finally:
        for side in sides:
            side.close()
    first = passes[sides[0].name][0].totals
    for name, those in passes.items():
        for one in those:
            if one.totals != first:
                raise ContentError(f"{name}: {one.totals} differ from {first}")
    return [Measured(name, those, *observed[name]) for name, those in passes.items()]


def median_seconds(name: str, work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Returns the median seconds of calls in a process of its own, and what the last returned."""

    def timed() -> tuple[float, Any]:
        begin = time.perf_counter()
        result = work()
        return time.perf_counter() - begin, result

    side = ForkedSide(name, PassTotals, {"timed": timed})
    try:
        side.ask("timed")
        rounds = [side.ask("timed") for _ in range(repeats)]
    finally:
        side.close()
    return statistics.median(seconds for seconds, _ in rounds), rounds[-1][1]


def first_batch(reader: Reader, place: Place, batch_size: int) -> Callable[[], int]:
    """Returns a call that opens a place and takes one batch."""
    batches = _opener(reader, place, batch_size)

    def take() -> int:
        iterator = batches()
        rows = len(next(iter(next(iterator).values())))
        del iterator
        return rows

    return take
