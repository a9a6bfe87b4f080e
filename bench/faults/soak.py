"""A long run: memory, descriptors and speed must stay as they are, and so must the rows.

    python bench/faults/soak.py --minutes 120

An epoch reads nine ways, one after the other in one process: eight data sets that are kept, and a
new one whose two DataLoader workers are started anew. Seen after each epoch: resident memory, open
descriptors, threads, children, and files in shared memory. Memory's slope is that of least squares
over all epochs from the tenth on.

The machine may change its own speed within hours, so the last epochs are compared with those of a
new process that has just read its tenth: the two take turns, an epoch each, and the median of the
pairs counts. Speed is rows for each second of the processor, of all threads and workers, and for
each second of the clock. Exits with 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from faults.processes.children import own_children
from faults.soak_datasets import digest, open_all, write_files
from report.machine import described, environment
from report.tables import markdown

_WARM_EPOCHS = 10
_PAIRS = 40
_PLAIN_EPOCH = 39  # workers are forked in it
_MAX_SLOPE_MIB = 0.1
_MAX_SLOWDOWN = 0.03


class Epoch(NamedTuple):
    """Measured at the end of an epoch."""

    resident_mib: float
    descriptors: int
    threads: int
    children: int
    shared_files: int
    cpu_by_way: dict[str, float]
    seconds: float

    @property
    def cpu_seconds(self) -> float:
        """Seconds of the processor, of all ways."""
        return sum(self.cpu_by_way.values())


def _cpu_seconds() -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


def _seen(cpu_by_way: dict[str, float], seconds: float) -> Epoch:
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return Epoch(
        resident_mib=int(status["VmRSS"].split()[0]) / 1024,
        descriptors=len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        threads=int(status["Threads"]),
        children=len(own_children()),
        shared_files=len(os.listdir("/dev/shm")),  # noqa: PTH208
        cpu_by_way=cpu_by_way,
        seconds=seconds,
    )


class Reader:
    """Epochs of all ways, and what was found in them."""

    def __init__(self, folder: Path) -> None:
        """Open the data sets of a folder."""
        self._ways: dict[str, Callable[[int], Iterable[Any]]] = open_all(folder)
        self._first: dict[str, tuple[int, int]] = {}
        self.epochs: list[Epoch] = []
        self.findings: list[str] = []

    def read(self, number: int) -> Epoch:
        """Read an epoch by all ways. `number` chooses how its workers are started."""
        began, cpu_by_way = time.monotonic(), {}
        for name, batches in self._ways.items():
            cpu_began = _cpu_seconds()
            found = digest(batches(number))
            cpu_by_way[name] = _cpu_seconds() - cpu_began
            if self._first.setdefault(name, found) != found:
                self.findings.append(
                    f"epoch {len(self.epochs)}, {name}: {found}, not {self._first[name]}"
                )
        self.epochs.append(_seen(cpu_by_way, time.monotonic() - began))
        return self.epochs[-1]


def _serve_epochs(folder: Path, pipe: Connection) -> None:
    """Read the first ten epochs, then one for each request, in a new process."""
    reader = Reader(folder)
    for number in range(_WARM_EPOCHS):
        reader.read(number)
    while pipe.recv():
        pipe.send(reader.read(_PLAIN_EPOCH))


def _run(minutes: float, pause: float, reader: Reader) -> None:
    end = time.monotonic() + 60 * minutes
    while len(reader.epochs) < _WARM_EPOCHS + 5 or time.monotonic() < end:
        epoch = reader.read(len(reader.epochs))
        time.sleep(pause)
        if len(reader.epochs) % 20 == 0:
            print(len(reader.epochs), epoch, flush=True, file=sys.stderr)


def _pairs_with_a_new_process(folder: Path, old: Reader) -> list[tuple[Epoch, Epoch]]:
    """Return epochs of a new process and of the old one, read in turn."""
    context = multiprocessing.get_context("spawn")
    pipe, other_end = context.Pipe()
    process = context.Process(target=_serve_epochs, args=(folder, other_end))
    process.start()
    pairs = []
    with pipe:
        for _ in range(_PAIRS):
            pipe.send(True)
            new = pipe.recv()
            pairs.append((new, old.read(_PLAIN_EPOCH)))
        pipe.send(False)
    process.join()
    return pairs


def _slope(values: list[float]) -> float:
    return float(np.polyfit(np.arange(len(values)), values, 1)[0])


def _speed_ratio(seconds: list[tuple[float, float]]) -> float:
    """Return the median speed of the old process as a multiple of the new one's."""
    return statistics.median(new / old for new, old in seconds)


def _speed_by_way(pairs: list[tuple[Epoch, Epoch]]) -> list[list[str]]:
    """Return the ratio for each way of reading: one that slows down has the cause."""
    ways = pairs[0][0].cpu_by_way
    by_way = {
        way: [(new.cpu_by_way[way], old.cpu_by_way[way]) for new, old in pairs] for way in ways
    }
    return [[way, f"{_speed_ratio(seconds):.3f}"] for way, seconds in by_way.items()]


def _constant(values: list[int]) -> str:
    return f"{min(values)} to {max(values)}" if len(set(values)) > 1 else str(values[0])


def main() -> int:
    """Run, print a table, and return 1 if a bound is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--pause", type=float, default=0, help="seconds after each epoch")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        write_files(Path(name))
        reader = Reader(Path(name))
        _run(arguments.minutes, arguments.pause, reader)
        epochs = list(reader.epochs)
        pairs = _pairs_with_a_new_process(Path(name), reader)
    findings = reader.findings
    warm = epochs[_WARM_EPOCHS - 1 :]
    resident = [epoch.resident_mib for epoch in warm]
    slope = _slope(resident)
    by_cpu = _speed_ratio([(new.cpu_seconds, old.cpu_seconds) for new, old in pairs])
    by_clock = _speed_ratio([(new.seconds, old.seconds) for new, old in pairs])
    rows = [
        ["epochs", str(len(epochs)), ""],
        ["epochs with other rows", str(len(findings)), "0"],
        ["slope of resident memory, MiB an epoch", f"{slope:.4f}", f"< {_MAX_SLOPE_MIB}"],
        ["resident memory, MiB", f"{min(resident):.0f} to {max(resident):.0f}", ""],
        ["rows a CPU second, to a new process", f"{by_cpu:.3f}", f"> {1 - _MAX_SLOWDOWN}"],
        ["rows a second, to a new process", f"{by_clock:.3f}", ""],
    ]
    is_flat = True
    for field in ("descriptors", "threads", "children", "shared_files"):
        values = [getattr(epoch, field) for epoch in warm]
        is_flat &= values[-1] <= values[0]
        rows.append(
            [f"{field.replace('_', ' ')}, from the tenth epoch on", _constant(values), "flat"]
        )
    print(described(environment(2)))
    print(markdown(["what", "found", "wanted"], rows))
    print(markdown(["rows a CPU second, to a new process", "found"], _speed_by_way(pairs)))
    for finding in findings[:20]:
        print(finding)
    is_good = not findings and slope < _MAX_SLOPE_MIB and by_cpu > 1 - _MAX_SLOWDOWN and is_flat
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
