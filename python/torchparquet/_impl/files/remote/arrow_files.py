"""File systems of pyarrow as those of fsspec; imported where one is given, as it needs fsspec."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

import pyarrow.fs as pafs
from fsspec.implementations.arrow import ArrowFSWrapper

from torchparquet._impl.files.remote.urls import split_scheme

_MAX_OPEN = _MAX_CALLS = 64
# A call may hang, or the fork may come from within one.
_WAIT_SECONDS = 5.0


class _Calls:
    """Calls into pyarrow under way. A fork waits for them, or the child would find locks held."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(
            before=self._stop, after_in_parent=self._go_on, after_in_child=self._begin
        )

    def _begin(self) -> None:
        self.running = threading.Semaphore(_MAX_CALLS)
        self._num_stopped, self._forks = 0, threading.Lock()  # of one fork at a time

    def _stop(self) -> None:
        self._forks.acquire()
        end = time.monotonic() + _WAIT_SECONDS
        waits = (max(0.0, end - time.monotonic()) for _ in range(_MAX_CALLS))
        self._num_stopped = sum(self.running.acquire(timeout=seconds) for seconds in waits)

    def _go_on(self) -> None:
        if self._num_stopped:
            self.running.release(self._num_stopped)
        self._forks.release()


_calls = _Calls()


def _counted(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def counted(*given: Any, **named: Any) -> Any:
        with _calls.running:
            return method(*given, **named)

    return counted


class ArrowFiles(ArrowFSWrapper):  # type: ignore[misc]
    """Lists a directory by one call, whatever is below it, and reads without looking up again."""

    cachable = False

    def __init__(self, filesystem: Any) -> None:
        """Wrap a file system of pyarrow."""
        super().__init__(filesystem)
        # pyarrow asks for a file's size as it opens one, so the last few files stay open.
        self._opened = lru_cache(_MAX_OPEN)(filesystem.open_input_file)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        _, rest = split_scheme(path)
        return rest.rstrip("/") or rest

    info = _counted(ArrowFSWrapper.info)
    pipe_file = _counted(ArrowFSWrapper.pipe_file)

    @_counted
    def find(self, path: str, **_: Any) -> dict[str, Any]:
        """Return what is known of each file below a directory."""
        selector = pafs.FileSelector(path, allow_not_found=True, recursive=True)
        infos = self.fs.get_file_info(selector)
        return {i.path: self._make_entry(i) for i in infos if i.type == pafs.FileType.File}

    @_counted
    def cat_file(self, path: str, start: int, end: int, **_: Any) -> bytes:
        """Return a range of a file; less at its end."""
        return bytes(self._opened(path).read_at(end - start, start))

    @_counted
    def put_file(self, lpath: str, rpath: str, **_: Any) -> None:
        """Write a local file as a file of the store."""
        pafs.copy_files(
            lpath,
            rpath,
            source_filesystem=pafs.LocalFileSystem(),
            destination_filesystem=self.fs,
        )
