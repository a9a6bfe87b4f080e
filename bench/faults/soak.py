"""A long run: memory, descriptors and speed must stay as they are, and so must the rows.

    python bench/faults/soak.py --minutes 120

An epoch reads nine ways, one after the other in one process: eight data sets that are kept, and a
new one whose two DataLoader workers are started anew. Seen after each epoch: resident memory, open
descriptors, threads, children, and files in shared memory. Speed is rows for each second of the
processor, of all threads and workers, which other load on the machine changes little, and for each
second of the clock.

Memory's slope is that of least squares over all epochs from the tenth on. Speeds are medians of the
five epochs around the tenth and of the last five. Exits with 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from faults.soak_datasets import digest, open_all, write_files
from report.machine import described, environment
from report.tables import markdown

_WARM_EPOCHS = 10
_MAX_SLOPE_MIB = 0.1
_MAX_SLOWDOWN = 0.03


class Epoch(NamedTuple):
    """What was seen at the end of an epoch."""

    resident_mib: float
    descriptors: int
    threads: int
    children: int
    shared_files: int
    cpu_seconds: float
    seconds: float


def _cpu_seconds() -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


def _seen(cpu_seconds: float, seconds: float) -> Epoch:
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    tasks = Path("/proc/self/task")
    children = sum(len((task / "children").read_text().split()) for task in tasks.iterdir())
    return Epoch(
        resident_mib=int(status["VmRSS"].split()[0]) / 1024,
        descriptors=len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        threads=int(status["Threads"]),
        children=children,
        shared_files=len(os.listdir("/dev/shm")),  # noqa: PTH208
        cpu_seconds=cpu_seconds,
        seconds=seconds,
    )


def _run(minutes: float, pause: float, folder: Path) -> tuple[list[Epoch], list[str]]:
    ways = open_all(folder)
    first: dict[str, tuple[int, int]] = {}
    epochs: list[Epoch] = []
    findings: list[str] = []
    end = time.monotonic() + 60 * minutes
    while len(epochs) < _WARM_EPOCHS + 5 or time.monotonic() < end:
        began, cpu_began = time.monotonic(), _cpu_seconds()
        for name, batches in ways.items():
            found = digest(batches(len(epochs)))
            if first.setdefault(name, found) != found:
                findings.append(f"epoch {len(epochs)}, {name}: {found}, not {first[name]}")
        epochs.append(_seen(_cpu_seconds() - cpu_began, time.monotonic() - began))
        time.sleep(pause)
        if len(epochs) % 20 == 0:
            print(len(epochs), epochs[-1], flush=True, file=sys.stderr)
    return epochs, findings


def _slope(values: list[float]) -> float:
    return float(np.polyfit(np.arange(len(values)), values, 1)[0])


def _speed_ratio(seconds: list[float]) -> float:
    """Return the speed of the last epochs as a multiple of that of the tenth."""
    begin = _WARM_EPOCHS - 3
    return statistics.median(seconds[begin : begin + 5]) / statistics.median(seconds[-5:])


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
        epochs, findings = _run(arguments.minutes, arguments.pause, Path(name))
    warm = epochs[_WARM_EPOCHS - 1 :]
    resident = [epoch.resident_mib for epoch in warm]
    slope = _slope(resident)
    by_cpu = _speed_ratio([epoch.cpu_seconds for epoch in epochs])
    rows = [
        ["epochs", str(len(epochs)), ""],
        ["epochs with other rows", str(len(findings)), "0"],
        ["slope of resident memory, MiB an epoch", f"{slope:.4f}", f"< {_MAX_SLOPE_MIB}"],
        ["resident memory, MiB", f"{min(resident):.0f} to {max(resident):.0f}", ""],
        ["rows a CPU second, last to tenth epoch", f"{by_cpu:.3f}", f"> {1 - _MAX_SLOWDOWN}"],
        [
            "rows a second, last to tenth epoch",
            f"{_speed_ratio([epoch.seconds for epoch in epochs]):.3f}",
            "",
        ],
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
    for finding in findings[:20]:
        print(finding)
    is_good = not findings and slope < _MAX_SLOPE_MIB and by_cpu > 1 - _MAX_SLOWDOWN and is_flat
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
