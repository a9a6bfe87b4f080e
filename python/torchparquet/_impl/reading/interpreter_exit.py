"""Ends streams, the threads that read them, and ranks when the interpreter exits."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from torchparquet._impl.native import BatchReader
    from torchparquet._impl.reading.batch_stream import BatchStream

has_begun = False


_open: weakref.WeakSet[BatchStream] = weakref.WeakSet()
# Readers whose streams are gone, with the memory that their threads still use.
_stuck: list[tuple[BatchReader, object]] = []


def close_before(stream: BatchStream) -> None:
    """Have the stream closed before the interpreter exits, if it still exists then."""
    _watch_exit()
    if _stuck:
        _stuck[:] = [entry for entry in _stuck if not entry[0].stop_within(0)]
    _open.add(stream)


def forget(stream: BatchStream) -> None:
    """Forget a stream that was closed."""
    _open.discard(stream)


def keep_until_stopped(reader: BatchReader, memory: object) -> None:
    """Keep a reader that was told to stop, and what its threads use, until they have ended."""
    _stuck.append((reader, memory))


def hold_daemon_thread() -> None:
    """Block a daemon thread for ever once the exit has begun; return otherwise.

    torch aborts the program if it finds such a thread slicing or freeing a tensor. So the thread
    gets neither a batch nor an exception, which would free tensors as it unwinds.
    """
    if has_begun and threading.current_thread() is not threading.main_thread():
        threading.Event().wait()


def end_rank(code: int = 0) -> NoReturn:
    """End a finished process of a gloo group without finalizing the interpreter.

    torch aborts a process (SIGABRT) if a thread of gloo frees its last tensor during finalization,
    which hides the exit code.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@functools.cache
def _watch_exit() -> None:
    """Begin with the first stream, for a process may import the package and read nothing."""
    atexit.register(_close_all)
    os.register_at_fork(after_in_child=_forget_runs)


def _close_all() -> None:
    """Join all decode threads while the libraries that they run are still loaded."""
    global has_begun
    has_begun = True
    for stream in list(_open):
        stream.close_at_exit()
    for reader, _ in _stuck:
        reader.stop()


def _forget_runs() -> None:
    for stream in list(_open):
        stream.forget_run()
