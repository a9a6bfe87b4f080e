"""Files in memory that processes of one user on one node share, by names that nobody can guess."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

# In memory; other systems have no such folder, so each process works for itself.
_FOLDER = Path("/dev/shm")  # noqa: S108
# Files of jobs that were killed stay. Credentials end within a day.
_OLD_SECONDS = 86400.0


def _path(name: str) -> Path | None:
    """Return the path of a shared file; None without a folder that is this user's alone."""
    folder = _FOLDER / f"torchparquet-{os.geteuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return folder / name if is_own and not status.st_mode & 0o077 and name.isalnum() else None


@contextlib.contextmanager
def shared_file(name: str) -> Iterator[int | None]:
    """Lock the file of a name, and return its descriptor; None where there can be none."""
    path = _path(name)
    descriptor = None
    if path is not None:
        with contextlib.suppress(OSError):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(path, flags, 0o600)
    if descriptor is None:
        yield None
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        # A child that was forked meanwhile has the descriptor too, so closing would not do.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def forget(name: str, pid: int) -> None:
    """Remove the file of a name, and those of jobs that were killed long ago."""
    path = _path(name)
    if path is None or pid != os.getpid():
        return
    for one in path.parent.iterdir():
        with contextlib.suppress(OSError):
            if one == path or time.time() - one.stat().st_mtime > _OLD_SECONDS:
                one.unlink()
