"""The facts that figures depend on: the machine, versions, and other load meanwhile."""

from __future__ import annotations

import datetime
import os
import platform
import re
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa

import torchparquet
from torchparquet._impl.native import instructions


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Returns the versions of Python and of ``packages``."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def environment(num_threads: int) -> dict[str, Any]:
    """Returns machine, versions, threads, date."""
    cpu = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu": cpu.group(1) if cpu else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "kernel": platform.release().split("-")[0],
        "threads": num_threads,
        "instructions": instructions(),
        "arrow_memory_pool": pa.default_memory_pool().backend_name,
        "versions": {
            "torchparquet": torchparquet.__version__,
            **versions(("pyarrow", "torch", "numpy")),
        },
    }


def described(machine: dict[str, Any]) -> str:
    """Returns what ``environment`` found as one line."""
    named = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads; {named}; "
        f"kernels for {machine['instructions']}; "
        f"Arrow's {machine['arrow_memory_pool']} pool; {machine['date']}"
    )


class OtherLoad:
    """Measures how busy other processes keep the cores, which spoils timings without a trace."""

    def __init__(self) -> None:
        """Begins to measure."""
        self._start = self._sample()

    @staticmethod
    def _sample() -> tuple[float, float, float]:
        ticks = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, ticks)
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        own = os.times()
        children = own.children_user + own.children_system
        return time.perf_counter(), busy, own.user + own.system + children

    def cores(self) -> float:
        """Returns the mean number of cores that others used since construction.

        Processes of this one count as its own once they have ended.
        """
        seconds, busy, own = (b - a for a, b in zip(self._start, self._sample(), strict=True))
        return max(0.0, (busy - own) / seconds)
