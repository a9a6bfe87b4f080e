"""Files of a store by a file system of pyarrow."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torchparquet._impl.files.remote.file_access import Entry, plain_errors
from torchparquet._impl.files.remote.urls import split_scheme

_MAX_OPEN = 64
# pyarrow's names of kinds of file system, where they are not the schemes of URLs.
_SCHEMES = {"gcs": "gs", "abfs": "abfs"}


class _Calls:
    """Calls into pyarrow under way. A fork waits for them, or the child would find locks held.

    It waits a few seconds at most: a call may hang, or the fork may come from within one.
    """

    _WAIT_SECONDS = 5.0

    def __init__(self) -> None:
        self._begin()
        self._are_watched = False

    def watch_forks(self) -> None:
        """Let forks wait from now on; for whoever is about to call."""
        if not self._are_watched:
            self._are_watched = True
            os.register_at_fork(
                before=self._before, after_in_parent=self._after, after_in_child=self._begin
            )

    def _begin(self) -> None:
        self._changed = threading.Condition()  # guards the two below
        self._num_running = 0
        self._forks = False

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

    def _before(self) -> None:
        with self._changed:
            self._forks = True
            self._changed.wait_for(lambda: self._num_running == 0, self._WAIT_SECONDS)

    def _after(self) -> None:
        with self._changed:
            self._forks = False
            self._changed.notify_all()


_calls = _Calls()


@contextmanager
def _call(action: str, path: str, secrets: Sequence[str]) -> Iterator[None]:
    """Count a call into pyarrow, and make its errors plain."""
    with plain_errors(action, path, secrets), _calls.one():
        yield


class ArrowAccess:
    """Files of a store by a file system of pyarrow; see `FileAccess`.

    pyarrow asks for a file's size as it opens one, so the last few files stay open.
    """

    def __init__(self, filesystem: Any) -> None:
        """Use a file system of pyarrow."""
        _calls.watch_forks()
        self.filesystem = filesystem
        self.scheme = _SCHEMES.get(filesystem.type_name, str(filesystem.type_name))
        self.secrets: tuple[str, ...] = ()
        self._open: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()  # guards _open

    def name_of(self, text: str) -> str:
        """Return pyarrow's name of a path or URL."""
        _, rest = split_scheme(text)
        return rest.rstrip("/") or rest

    def shown(self, name: str) -> str:
        """Return the URL of a name."""
        return f"{self.scheme}://{name}"

    def look_up(self, name: str, *, afresh: bool = False) -> Entry | None:
        """Return a file or directory; None if there is neither. Nothing is remembered."""
        import pyarrow.fs as pafs

        with _call("look up", self.shown(name), self.secrets):
            info = self.filesystem.get_file_info(name)
        return None if info.type == pafs.FileType.NotFound else _entry(info)

    def files_below(self, name: str, prefix: str = "") -> list[Entry]:
        """Return all files below a directory; none if it does not exist."""
        import pyarrow.fs as pafs

        selector = pafs.FileSelector(name, allow_not_found=True, recursive=True)
        with _call("list", self.shown(name), self.secrets):
            infos = self.filesystem.get_file_info(selector)
        return [_entry(info) for info in infos if info.type == pafs.FileType.File]

    def read(self, name: str, offset: int, num_bytes: int) -> bytes:
        """Return a range of a file; less at its end."""
        with _call("read", self.shown(name), self.secrets):
            return bytes(self._opened(name).read_at(num_bytes, offset))

    def open(self, name: str) -> Any:
        """Return a file to read in any order."""
        with _call("open", self.shown(name), self.secrets):
            return self.filesystem.open_input_file(name)

    def write(self, name: str, content: bytes) -> None:
        """Write a whole file, which replaces one of that name."""
        with (
            _call("write", self.shown(name), self.secrets),
            self.filesystem.open_output_stream(name) as file,
        ):
            file.write(content)

    def upload(self, name: str, path: str) -> None:
        """Write a local file as a file of the store."""
        import pyarrow.fs as pafs

        with _call("write", self.shown(name), self.secrets):
            pafs.copy_files(
                path,
                name,
                source_filesystem=pafs.LocalFileSystem(),
                destination_filesystem=self.filesystem,
            )

    def _opened(self, name: str) -> Any:
        with self._lock:
            if name in self._open:
                self._open.move_to_end(name)
                return self._open[name]
        opened = self.filesystem.open_input_file(name)
        with self._lock:
            # A file that is dropped here stays open for threads that read it.
            self._open[name] = opened
            if len(self._open) > _MAX_OPEN:
                self._open.popitem(last=False)
        return opened


def _entry(info: Any) -> Entry:
    import pyarrow.fs as pafs

    stamp = "" if info.mtime_ns is None else f"modified {info.mtime_ns}"
    num_bytes = -1 if info.size is None else int(info.size)
    return Entry(info.path, num_bytes, stamp, info.type == pafs.FileType.Directory)
