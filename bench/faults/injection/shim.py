"""Builds and arms the library that stands before the system's functions."""

from __future__ import annotations

import ctypes
import os
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from passes import preloaded

_SOURCE = Path(__file__).with_name("shim.cc")
ALWAYS = 1 << 40


class Call(IntEnum):
    """Kinds of calls that are counted apart."""

    OPEN = 0
    STAT = 1
    READ = 2
    CLOSE = 3
    WRITE = 4
    RENAME = 5
    MAP = 6
    MEMFD = 7
    TRUNCATE = 8
    THREAD = 9
    ALLOCATE = 10


class Effect(IntEnum):
    """The outcome of a call that is struck."""

    NONE = 0
    FAIL = 1
    SHORT = 2
    DELAY = 3
    WAIT = 4


class Fault(NamedTuple):
    """A fault of the system.

    Attributes:
        call: Its kind.
        first: The number of the first call that is struck, from 1.
        times: How many calls in a row are struck.
        effect: The fault itself.
        value: Of FAIL the errno; of SHORT the bytes, 0 for half of them and -1 for all but one; of
            DELAY milliseconds; of WAIT the descriptor of a pipe to read a byte from.
        on_threads: Strike allocations of any library on threads that C++ code began, instead of
            those of watched code on all threads.
    """

    call: Call
    first: int = 1
    times: int = 1
    effect: Effect = Effect.NONE
    value: int = 0
    on_threads: bool = False


COUNT_ONLY = Fault(Call.OPEN)


def begin() -> None:
    """Go on as a process with the library loaded."""
    preloaded.begin(_SOURCE, ("-O1", "-fexceptions", "-fno-builtin"))


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    library.shim_count.restype = ctypes.c_int64
    library.shim_fired.restype = ctypes.c_int64
    library.shim_clock_reads.restype = ctypes.c_int64
    return library


def watch_folder(folder: Path) -> None:
    """Count calls about files in this folder."""
    _library().shim_watch_folder(os.fsencode(folder))


def watch_code(*parts: str) -> None:
    """Count allocations and mappings by libraries with these parts of names."""
    library = _library()
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, access, *_, name = line.split(maxsplit=5)
        if "x" in access and any(part in name.rsplit("/", 1)[-1] for part in parts):
            begin, end = (ctypes.c_uint64(int(text, 16)) for text in addresses.split("-"))
            library.shim_watch_code(begin, end)


def arm(fault: Fault) -> None:
    """Count from zero, and strike as the fault says, in this process and its later children."""
    library = _library()
    first, times, value = map(ctypes.c_int64, (fault.first, fault.times, fault.value))
    library.shim_arm(fault.call, first, times, fault.effect, value, fault.on_threads)


def disarm() -> None:
    """Strike and count no more."""
    _library().shim_disarm()


def count(call: Call) -> int:
    """Return the calls of a kind since the shim was armed, of this process or its children."""
    return int(_library().shim_count(call))


def fired() -> int:
    """Return the calls that were struck since the shim was armed, in any child."""
    return int(_library().shim_fired())


def forget() -> None:
    """Set what `fired` returns to zero."""
    _library().shim_forget()


def move_clock(seconds: float) -> None:
    """Show the time of day so many seconds off."""
    _library().shim_move_clock(ctypes.c_int64(int(seconds * 1e9)))


def clock_reads() -> int:
    """Return how often the time of day was asked for."""
    return int(_library().shim_clock_reads())
