"""Counts locks and waits of an iteration from outside, by a library that is loaded before all."""

from __future__ import annotations

import ctypes
import itertools
import re
import subprocess
import tempfile
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

from passes import preloaded

_SOURCE = Path(__file__).with_name("probe.cc")
# Files of the core that take the reader's own lock; other locks go by the file that takes them.
_DECODES = "waits"  # decode threads alone
_READER = {_DECODES, "decode_thread"}


class Trace(NamedTuple):
    """The counts of the probe.

    Attributes:
        locks: Seconds in which a decode thread held a lock, as its only one, by name.
        spans: Of decode threads: begin and end of each time at work, in seconds of the clock.
        cpu_seconds: Of decode threads.
        num_wakes: Waits of decode threads that ended.
    """

    locks: dict[str, float]
    spans: list[tuple[float, float]]
    cpu_seconds: float
    num_wakes: int


def load() -> None:
    """Go on as a process with the probe."""
    preloaded.begin(_SOURCE, ("-O2",))


@cache
def _core() -> tuple[Path, int, int, int]:
    """Return the extension, the first address of its file, and the range of its code."""
    lowest, code = 0, (0, 0)
    path = Path()
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, access, *_, name = line.split(maxsplit=5)
        if not name.rsplit("/", 1)[-1].startswith("_core."):
            continue
        begin, end = (int(text, 16) for text in addresses.split("-"))
        path, lowest = Path(name), lowest or begin
        if "x" in access:
            code = (begin, end)
    return path, lowest, *code


@cache
def _taken_in(address: int, caller: int) -> str:
    """Return the name of the core's file that takes a lock before one of these addresses."""
    path, lowest, *_ = _core()
    # The call is before the address to which it returns.
    places = [hex(one - lowest - 1) for one in (address, caller)]
    command = ["addr2line", "-i", "-e", str(path), *places]
    frames = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"/cpp/\S*?(\w+)\.(?:cc|h):", frames)
    if found is None:
        raise RuntimeError(f"{path} was built without line tables: see --help")
    return found[1]


def begin() -> None:
    """Forget all that was counted, and count from now on."""
    _, _, *code = _core()
    ctypes.CDLL(None).probe_begin(*map(ctypes.c_uint64, code))


def read() -> Trace:
    """Return what was counted, once the decode threads have ended."""
    with tempfile.NamedTemporaryFile("r") as file:
        ctypes.CDLL(None).probe_write(file.name.encode())
        threads = [thread.splitlines() for thread in file.read().split("thread")[1:]]
    locks: dict[str, float] = defaultdict(float)
    spans: list[tuple[float, float]] = []
    cpu_seconds, num_wakes = 0.0, 0
    for first, *lines in threads:
        found = {
            kind: [list(map(int, line.split()[1:])) for line in lines if line[:4] == kind]
            for kind in ("site", "wait")
        }
        taken = [_taken_in(address, caller) for address, caller, *_ in found["site"]]
        if _DECODES not in taken:
            continue
        for name, (_, _, held) in zip(taken, found["site"], strict=True):
            locks["reader" if name in _READER else name] += held / 1e9
        began, ended, used = map(int, first.split())
        cpu_seconds += used / 1e9
        num_wakes += len(found["wait"])
        moments = [began, *itertools.chain(*found["wait"]), ended]
        spans += [(one / 1e9, two / 1e9) for one, two in itertools.pairwise(moments)][::2]
    return Trace(dict(locks), spans, cpu_seconds, num_wakes)
