"""File systems of pyarrow as those of fsspec; imported where one is given, as it needs fsspec."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from typing import Any

import pyarrow.fs as pafs
from fsspec.implementations.arrow import ArrowFSWrapper

from torchparquet._impl.files.remote.urls import split_scheme

_MAX_OPEN = 64


class _Calls:
    """Calls into pyarrow under way. A fork waits for them, or the child would find locks held."""

    # At most: a call may hang, or the fork may come from within one.
    _WAIT_SECONDS = 5.0

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(
            before=lambda: self._set(forks=True),
            after_in_parent=lambda: self._set(forks=False),
            after_in_child=self._begin,
        )

    def _begin(self) -> None:
        self._changed = threading.Condition()  # guards the two below
        self._num_running = 0
        self._forks = False

    def _set(self, *, forks: bool) -> None:
        with self._changed:
            self._forks = forks
            self._changed.notify_all()
            if forks:
                self._changed.wait_for(lambda: self._num_running == 0, self._WAIT_SECONDS)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count a call."""
        with self._changed:
            self._changed.wait_for(lambda: not self._forks, self._WAIT_SECONDS)
            self._num_running += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_running -= 1
                self._changed.notify_all()


_calls = _Calls()


def _counted(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def counted(*given: Any, **named: Any) -> Any:
        with _calls.one():
            return method(*given, **named)

    return counted


class ArrowFiles(ArrowFSWrapper):  # type: ignore[misc]
    """Lists a directory by one call, whatever is below it, and reads without looking up again.

    pyarrow asks for a file's size as it opens one, so the last few files stay open.
    """

    cachable = False

    def __init__(self, filesystem: Any) -> None:
        """Wrap a file system of pyarrow."""
        super().__init__(filesystem)
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
