"""What becomes of streams, and of threads that read them, when the interpreter exits."""

from __future__ import annotations

import atexit
import threading
import weakref
from typing import Protocol

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


@atexit.register
def _close_all() -> None:
    """Join all decode threads while the libraries that they run in are still there."""
    global has_begun
    has_begun = True
    for stream in list(_open):
        stream.close_at_exit()
