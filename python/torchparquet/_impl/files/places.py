"""The two places where files are listed, on disk and in a store; `discovery` has the rule."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import stat
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from torchparquet._impl.files.remote.failures import Patience, patiently
from torchparquet._impl.files.remote.store import Entry, Store, no_listing
from torchparquet._impl.files.remote.urls import HTTP, WITH_BUCKETS, family

MAX_THREADS = 16
_HEAD_BYTES = 4
# A directory or pattern leaves out names that begin so.
HIDDEN = ("_", ".")
# The errors of stat() for a text that is a pattern, not the name of an existing file.
_NO_SUCH_NAME = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
# A mistaken address should be told soon.
_MAX_TRIES = 5


class Disk:
    """Lists files on disk, by absolute paths."""

    no_size = "a path must be a regular file or a directory"

    def shown(self, name: str) -> str:
        """Return the path."""
        return name

    def name_of(self, text: str) -> str:
        """Return the absolute path."""
        path = Path(text).absolute()
        # Removing "link/.." from the text would name another file, so links are resolved.
        return str(path.resolve() if ".." in path.parts else path)

    def look_up(self, name: str) -> Entry | None:
        """Return a file or directory; None if there is neither."""
        try:
            return self.entry(name)
        except OSError as error:
            if error.errno not in _NO_SUCH_NAME:
                raise
            return None

    def entry(self, name: str) -> Entry:
        """Return a file that a listing has named; its stamp tells if it was written again."""
        status = os.stat(name)  # noqa: PTH116
        num_bytes = status.st_size if stat.S_ISREG(status.st_mode) else -1
        stamp = f"{status.st_mtime_ns} {status.st_ino}"
        return Entry(name, num_bytes, stamp, stat.S_ISDIR(status.st_mode))

    def names_below(self, directory: str) -> list[str]:
        """Return all files below a directory, sorted, without hidden ones."""
        names: list[str] = []
        visited: set[tuple[int, int]] = set()  # Ends loops of symbolic links.
        for folder, folders, files in os.walk(directory, onerror=_fail, followlinks=True):
            status = Path(folder).stat()
            if (status.st_dev, status.st_ino) in visited:
                folders.clear()
                continue
            visited.add((status.st_dev, status.st_ino))
            # Sorted, so that every machine follows the same one of two links to a directory.
            folders[:] = sorted(name for name in folders if not name.startswith(HIDDEN))
            shown = [name for name in files if not name.startswith(HIDDEN)]
            names += [os.path.join(folder, name) for name in shown]  # noqa: PTH118
        return sorted(names)

    def matches(self, pattern: str) -> Iterator[tuple[str, str]]:
        """Return the paths that a pattern matches, as the pattern spells them, and their names."""
        # Path.glob matches hidden names and refuses absolute patterns.
        for match in glob.glob(pattern, recursive=True):  # noqa: PTH207
            # "none/**" yields "none/" even if it does not exist. A dangling link raises later.
            if os.path.lexists(match):
                yield match, self.name_of(match)

    def heads(self, names: Sequence[str]) -> Iterator[bytes]:
        """Return how files begin; nothing of those that cannot be read."""
        for name in names:
            head = b""
            # One that cannot be opened, or is gone by now, is not one to tell of.
            with contextlib.suppress(OSError):
                if Path(name).is_file():
                    with Path(name).open("rb") as file:
                        head = file.read(_HEAD_BYTES)
            yield head


class StorePlace:
    """Lists what one path of a store names. A directory is what names have before a slash."""

    no_size = "the server does not report the size of the file"

    def __init__(self, store: Store, patience: Patience) -> None:
        """List nothing yet."""
        self._store = store
        # Libraries are patient by themselves, but for that of HTTP.
        self._patience = replace(patience, max_tries=_MAX_TRIES, max_busy_tries=patience.max_tries)
        self._files: dict[str, Entry] = {}
        self._names: list[str] | None = None  # theirs, sorted
        self.shown, self.name_of = store.shown, store.name_of

    def look_up(self, name: str) -> Entry | None:
        """Return a file or directory; None if there is neither."""
        store, shown = self._store, self.shown(name)
        if store.scheme in HTTP:
            entry = None
            if not shown.endswith("/"):
                entry = patiently(lambda: store.look_up(name), self._patience, _wait)
            if entry is None and (shown.endswith("/") or glob.has_magic(shown)):
                raise no_listing(repr(shown))
            if entry is None:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", shown)
            return entry
        is_bucket = family(store.scheme) in WITH_BUCKETS
        if is_bucket and glob.has_magic(name.partition("/")[0]):
            raise ValueError(f"a pattern must spell out the bucket: {shown!r}")
        with ThreadPoolExecutor(1) as thread:
            # A name without an ending is listed meanwhile; errors come with the look.
            if is_bucket and not PurePosixPath(name).suffix and not glob.has_magic(name):
                thread.submit(self._list, name)
            # The Hub's library would list the whole directory anew for each file.
            entry = store.look_up(name, afresh=store.scheme != "hf")
        is_empty = entry is not None and not entry.is_directory and entry.num_bytes == 0
        # Some programs mark a directory by an empty object of its name.
        if is_empty and self._list(name):
            return Entry(name, 0, "", is_directory=True)
        return entry

    def entry(self, name: str) -> Entry:
        """Return a file that a listing has named, or a directory."""
        return self._files.get(name) or Entry(name, 0, "", is_directory=True)

    def names_below(self, directory: str) -> list[str]:
        """Return all files below a directory, sorted, without hidden ones."""
        names, prefix = self._names, f"{directory.rstrip('/')}/"
        if names is None:
            names = self._list(directory)
        else:
            # "0" comes right after "/", so the files below stand between the two.
            end = bisect_left(names, f"{directory}0")
            names = names[bisect_left(names, f"{directory}/") : end]
        return [
            name
            for name in names
            if not any(part.startswith(HIDDEN) for part in name.removeprefix(prefix).split("/"))
        ]

    def _list(self, directory: str, prefix: str = "") -> list[str]:
        """List a directory, without the objects that only mark directories."""
        files = sorted(self._store.files_below(directory, prefix))
        directories = _directories(entry.name for entry in files)
        self._files = {
            entry.name: entry
            for entry in files
            if not entry.name.endswith("/") and (entry.num_bytes or entry.name not in directories)
        }
        self._names = list(self._files)
        return self._names

    def matches(self, pattern: str) -> Iterator[tuple[str, str]]:
        """Return the names that a pattern matches, twice."""
        steps = self.name_of(pattern).split("/")
        first = next(index for index, step in enumerate(steps) if glob.has_magic(step))
        root, wanted = "/".join(steps[:first]), steps[first:]
        names = self._list(root, re.split(r"[*?[]", wanted[0])[0])
        begin = len(root) + 1 if first else 0
        if not pattern.endswith("/"):
            for name in names:
                if _matches(name[begin:].split("/"), wanted, is_file=True):
                    yield name, name
        for name in _directories(names):
            below = [part for part in name[begin:].split("/") if part]
            if len(name) >= len(root) and _matches(below, wanted):
                yield name, name

    def heads(self, names: Sequence[str]) -> list[bytes]:
        """Return how files begin; nothing of those that cannot be read."""
        with ThreadPoolExecutor(MAX_THREADS) as threads:
            return list(threads.map(self._head, names))

    def _head(self, name: str) -> bytes:
        if self.entry(name).num_bytes < _HEAD_BYTES:
            return b""
        patience = Patience(max_tries=_MAX_TRIES)
        try:
            return patiently(lambda: self._store.read(name, 0, _HEAD_BYTES), patience, _wait)
        except OSError:
            return b""


# Both have the same methods.
Place: TypeAlias = Disk | StorePlace


def _fail(error: OSError) -> None:
    raise error  # The rows of a directory that cannot be read would be missing.


def _wait(seconds: float) -> bool:
    return threading.Event().wait(seconds)


def _directories(names: Iterable[str]) -> set[str]:
    """Return all directories that lead to files."""
    found: set[str] = set()
    for name in names:
        while (end := name.rfind("/")) >= 0 and name[:end] not in found:
            name = name[:end]
            found.add(name)
    return found


def _matches(parts: Sequence[str], pattern: Sequence[str], *, is_file: bool = False) -> bool:
    """True if a path matches a pattern as in Python's `glob`, both as lists of parts."""
    if not pattern:
        return not parts
    own, rest = pattern[0], pattern[1:]
    if own == "**":
        # A "**" at the end stands for nothing only after a directory.
        least = 1 if is_file and not rest else 0
        hidden = (end for end, part in enumerate(parts) if part.startswith("."))
        ends = range(least, next(hidden, len(parts)) + 1)
        return any(_matches(parts[end:], rest, is_file=is_file) for end in ends)
    if not parts or (parts[0].startswith(".") and not own.startswith(".")):
        return False
    return fnmatchcase(parts[0], own) and _matches(parts[1:], rest, is_file=is_file)
