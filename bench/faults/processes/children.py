"""Forked children: what they tell, how they end, and what they leave behind."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_SHARED_MEMORY = Path("/dev/shm")


@dataclass
class Child:
    """A child, as its parent sees it.

    Attributes:
        pid: Its process.
        pipe: Brings its facts, a line of JSON each.
        facts: All that it has told.
        code: Its exit code, negative for a signal; None while it lives.
        is_hanging: True if it was killed because it took too long.
    """

    pid: int
    pipe: int
    facts: dict[str, int] = field(default_factory=dict)
    code: int | None = None
    is_hanging: bool = False
    _begun_at: float = 0.0
    _waited_before: float = 0.0
    _handle: int = -1
    _buffer: bytes = b""

    def __post_init__(self) -> None:
        """Open a handle that becomes readable when the child ends."""
        self._handle = os.pidfd_open(self.pid)
        self.begin_to_count()

    def begin_to_count(self) -> None:
        """Begin to count seconds anew."""
        self._begun_at = time.monotonic()
        self._waited_before = self.seconds_off_processors()

    def seconds(self) -> float:
        """Return the seconds since then, less those in which it waited for a processor."""
        waited = max(0.0, self.seconds_off_processors() - self._waited_before)
        return time.monotonic() - self._begun_at - waited

    def handles(self) -> list[int]:
        """Return what to wait for."""
        return [self._handle, *([self.pipe] if self.pipe >= 0 else [])]

    def look(self) -> None:
        """Take what it has told, and its exit code if it has ended."""
        # First, so that nothing told before the end is missed.
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        while self.pipe >= 0 and select.select([self.pipe], [], [], 0)[0]:
            some = os.read(self.pipe, 65536)
            if not some:
                os.close(self.pipe)
                self.pipe = -1
                break
            *lines, self._buffer = (self._buffer + some).split(b"\n")
            for line in lines:
                self.facts |= json.loads(line)
        if pid:
            self.code = os.waitstatus_to_exitcode(status)
            self.close()

    def seconds_off_processors(self) -> float:
        """Return how long its threads have waited for a processor, all together."""
        paths = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        # proc(5): time on a processor, time waited for one, in nanoseconds.
        facts = [_text(path).split() for path in paths]
        return sum(int(fact[1]) for fact in facts if fact) / 1e9

    def where(self) -> str:
        """Return what its threads do, for the report of a hang."""
        lines = []
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            name, state, place = (_text(task / fact) for fact in ("comm", "stat", "wchan"))
            lines.append(f"{name.strip()} {state.rpartition(')')[2][:2].strip()} {place}")
        return ", ".join(lines)

    def close(self) -> None:
        """Close the handles."""
        for handle in self.handles():
            os.close(handle)
        self.pipe = -1


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # The thread has ended.


def wait_for(children: list[Child], seconds: float) -> None:
    """Wait until one of them tells something or ends, or so long."""
    select.select([handle for child in children for handle in child.handles()], [], [], seconds)


def fork(log: Path) -> tuple[Child | None, int]:
    """Fork. Returns the child and -1 in the parent, None and the pipe in the child.

    Args:
        log: The file that the child's output is appended to.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return Child(pid, reading), -1
    os.close(reading)
    to = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(to, 1)
    os.dup2(to, 2)
    os.close(to)
    # A shell ignores it in what it starts in the background, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return None, writing


_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Become the parent of what children leave, so that it can be counted."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1) != 0:
        raise OSError(ctypes.get_errno(), "orphans cannot be adopted")


def take_own_shared_memory() -> bool:
    """Give this process and its children a /dev/shm of their own; False if it is not allowed."""
    user, group = os.getuid(), os.getgid()
    if _libc.unshare(_CLONE_NEWNS) != 0:
        if _libc.unshare(_CLONE_NEWNS | _CLONE_NEWUSER) != 0:
            return False
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    is_private = _libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) == 0
    place = bytes(_SHARED_MEMORY)
    return is_private and bool(_libc.mount(b"none", place, b"tmpfs", 0, None) == 0)


def own_children() -> list[int]:
    """Return the children of every thread."""
    tasks = Path("/proc/self/task").iterdir()
    return [int(child) for task in tasks for child in _text(task / "children").split()]


def num_left_processes(seconds: float) -> int:
    """Count the children that live on, after so long a wait for their end; end them."""
    deadline = time.monotonic() + seconds
    for pid in _unreaped(deadline):
        os.kill(pid, signal.SIGKILL)
    left = len(own_children())
    for _ in _unreaped(deadline + seconds):
        raise RuntimeError("a child cannot be killed")
    return left


def _unreaped(deadline: float) -> Iterator[int]:
    """Reap children until there are none; past the deadline, yield those that live."""
    while children := own_children():
        for pid in children:
            os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > deadline:
            yield from own_children()
            return
        time.sleep(0.01)


class Belongings:
    """All that this process and its children held when this was made."""

    def __init__(self) -> None:
        """Look."""
        self._descriptors = _descriptors()
        self._shared = _shared()

    def new_descriptors(self) -> int:
        """Count descriptors that this process did not have, memory files apart."""
        return len(_descriptors()) - len(self._descriptors) - len(self._new_memory_files())

    def new_shared_memory(self) -> list[str]:
        """Name files of shared memory that were not there, and memory files."""
        new = {name for name in _shared() - self._shared if not _is_mapped(name)}
        # Some of other processes may have been about to be mapped, or removed.
        left = new & _shared()
        return sorted(name for name in left if not _is_mapped(name)) + self._new_memory_files()

    def _new_memory_files(self) -> list[str]:
        now, then = (
            [target for target in one.values() if target.startswith("/memfd:")]
            for one in (_descriptors(), self._descriptors)
        )
        return sorted((Counter(now) - Counter(then)).elements())


def _descriptors() -> dict[str, str]:
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found[entry.name] = str(entry.readlink())
        except FileNotFoundError:
            continue  # that of the listing itself
    return found


def _shared() -> set[str]:
    return {path.name for path in _SHARED_MEMORY.iterdir()}


def _is_mapped(name: str) -> bool:
    """True if a living process uses the file; those of others come and go."""
    path = f" {_SHARED_MEMORY / name}\n"
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if path in maps.read_text():
                return True
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue  # It has ended, or belongs to somebody else.
    return False
