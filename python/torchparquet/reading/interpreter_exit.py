"""What becomes of streams, of threads that read them, and of ranks when the interpreter exits."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from typing import NoReturn, Protocol

has_begun = False


class Closing(Protocol):
    """What has threads of its own."""

    def close_at_exit(self) -> None:
        """Join them, and wait a while for who uses them."""


_open: weakref.WeakSet[Closing] = weakref.WeakSet()


def close_before(stream: Closing) -> None:
    """Close the stream before the interpreter is gone, where it is still there."""
    _open.add(stream)


def forget(stream: Closing) -> None:
    """Leave alone a stream that was closed."""
    _open.discard(stream)


def hold_daemon_thread() -> None:
    """Keep a daemon thread here for good once the exit has begun; return otherwise.

    torch ends the program when such a thread is found in its code, cutting or freeing a
    tensor, so it gets neither a batch nor an exception, whose way out would free some.
    """
    if has_begun and threading.current_thread() is not threading.main_thread():
        threading.Event().wait()


def end_rank(code: int = 0) -> NoReturn:
    """End a process of a gloo group that is done, without taking the interpreter down.

    torch ends a process by SIGABRT when a thread of gloo's frees its last tensor meanwhile, which
    hides how the process ended.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@atexit.register
def _close_all() -> None:
    """Join all decode threads while the libraries that they run in are still there."""
    global has_begun
    has_begun = True
    for stream in list(_open):
        stream.close_at_exit()
