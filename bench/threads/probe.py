"""Makes an iteration slower, and counts its locks and waits, by a library loaded before all."""

from __future__ import annotations

import ctypes
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
_PROBE = ctypes.CDLL(None)


class Used(NamedTuple):
    """Seconds of processors by kind of work, in the order of the probe; or their weights.

    Attributes:
        consumer: The thread that asks.
        decode: Decode threads, and few others.
        client: Threads that wait for sockets.
        locked: All of these, while they hold a lock of the core.
    """

    consumer: float = 1.0
    decode: float = 1.0
    client: float = 1.0
    locked: float = 1.0


class Trace(NamedTuple):
    """The counts of the probe.

    Attributes:
        used: In all.
        decode: By decode threads, in seconds of processors.
        locks: Thereof while they held a lock, as their only one, by name.
        num_wakes: Waits of decode threads that ended.
    """

    used: Used
    decode: float
    locks: dict[str, float]
    num_wakes: int


_EVEN = Used()


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


def begin(factor: int, weights: Used = _EVEN) -> None:
    """Forget all that was counted, and make the process so many times slower from now on."""
    _, _, *code = _core()
    of_kinds = (ctypes.c_double * len(weights))(*weights)
    _PROBE.probe_begin(*map(ctypes.c_uint64, code), ctypes.c_int64(factor), of_kinds)


def settle() -> None:
    """Have the thread that calls pay what it owes."""
    _PROBE.probe_settle()


def read() -> Trace:
    """Return what was counted, once the decode threads have ended, and end counting."""
    with tempfile.NamedTemporaryFile("r") as file:
        _PROBE.probe_write(file.name.encode())
        threads = [thread.splitlines() for thread in file.read().split("thread")[1:]]
    locks: dict[str, float] = defaultdict(float)
    sums, decode, num_wakes = [0] * len(_EVEN), 0, 0
    for first, *lines in threads:
        _, num_waits, *used = map(int, first.split())
        sums = [one + two for one, two in zip(sums, used, strict=True)]
        sites = [list(map(int, line.split()[1:])) for line in lines]
        taken = [_taken_in(address, caller) for address, caller, _ in sites]
        if _DECODES not in taken:
            continue
        decode += sum(used)
        num_wakes += num_waits
        for name, (_, _, held) in zip(taken, sites, strict=True):
            locks["reader" if name in _READER else name] += held / 1e9
    return Trace(Used(*(one / 1e9 for one in sums)), decode / 1e9, dict(locks), num_wakes)


def tried(threads: int, times: int, beside_us: int, locked_us: int) -> float:
    """Return the seconds of threads that work so often for so long, alone and under one lock."""
    numbers = (threads, times, 1000 * beside_us, 1000 * locked_us)
    _PROBE.probe_try.restype = ctypes.c_int64
    return float(_PROBE.probe_try(*map(ctypes.c_int64, numbers))) / 1e9
