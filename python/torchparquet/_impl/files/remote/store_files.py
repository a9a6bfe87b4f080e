"""Lists the files of a store; see `files/discovery` for the rule of paths."""

from __future__ import annotations

import errno
import glob
import threading
from bisect import bisect_left
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatchcase

from torchparquet._impl.files.remote.failures import Patience, patiently
from torchparquet._impl.files.remote.file_access import Entry, FileAccess
from torchparquet._impl.files.remote.urls import AZURE, HTTP

HEAD_BYTES = 4
# Of names that a directory or pattern does not stand for.
HIDDEN = ("_", ".")
_WITH_BUCKETS = ("s3", "s3a", "gs", "gcs", *AZURE)
_MAX_THREADS = 16
# A mistaken address should be told soon.
_MAX_TRIES = 5
_HEADS_PATIENCE = Patience(max_tries=_MAX_TRIES)


class StoreFiles:
    """Lists what one path names.

    Stores have no links. A directory is any beginning of names that ends at a slash.
    """

    no_size = "the server does not report the size of the file"

    def __init__(self, access: FileAccess, patience: Patience) -> None:
        """List nothing yet."""
        self._access = access
        # Libraries are patient by themselves, but for that of HTTP.
        self._patience = replace(patience, max_tries=_MAX_TRIES, max_busy_tries=patience.max_tries)
        self._files: dict[str, Entry] = {}
        self._names: list[str] | None = None  # theirs, sorted
        self.shown, self.name_of = access.shown, access.name_of

    def look_up(self, name: str) -> Entry | None:
        """Return a file or directory; None if there is neither."""
        access, shown = self._access, self.shown(name)
        if access.scheme in HTTP:
            return self._look_up_http(name, shown)
        if access.scheme in _WITH_BUCKETS and glob.has_magic(name.partition("/")[0]):
            raise ValueError(f"a pattern must spell out the bucket: {shown!r}")
        entry = access.look_up(name)
        is_empty = entry is not None and not entry.is_directory and entry.num_bytes == 0
        # Some programs mark a directory by an empty object of its name.
        if is_empty and self._list(name):
            return Entry(name, 0, "", is_directory=True)
        return entry

    def _look_up_http(self, name: str, shown: str) -> Entry:
        entry = None
        if not shown.endswith("/"):
            entry = patiently(lambda: self._access.look_up(name), self._patience, _wait)
        if entry is not None:
            return entry
        if shown.endswith("/") or glob.has_magic(shown):
            raise ValueError(
                "an http(s):// path must be of a Parquet file (directories and patterns cannot be "
                f"listed, give the files themselves): {shown!r}"
            )
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", shown)

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
        files = sorted(self._access.files_below(directory, prefix), key=lambda entry: entry.name)
        directories = {parent for entry in files for parent in _parents(entry.name)}
        self._files = {
            entry.name: entry
            for entry in files
            if not entry.name.endswith("/") and (entry.num_bytes or entry.name not in directories)
        }
        self._names = list(self._files)
        return self._names

    def matches(self, pattern: str) -> list[tuple[str, str]]:
        """Return the names that a pattern matches, twice."""
        steps = self.name_of(pattern).split("/")
        first = next(index for index, step in enumerate(steps) if glob.has_magic(step))
        root, literal = "/".join(steps[:first]), steps[first]
        literal = literal[: min(literal.index(sign) for sign in "*?[" if sign in literal)]
        files, wanted = self._list(root, literal), steps[first:]
        begin = len(root) + 1 if first else 0
        found = []
        if not pattern.endswith("/"):
            found = [n for n in files if _matches(n[begin:].split("/"), wanted, is_file=True)]
        for directory in {parent for name in files for parent in _parents(name)}:
            below = [part for part in directory[begin:].split("/") if part]
            if len(directory) >= len(root) and _matches(below, wanted):
                found.append(directory)
        return [(name, name) for name in found]

    def heads(self, names: Sequence[str]) -> list[bytes]:
        """Return how files begin; nothing of those that cannot be read."""
        with ThreadPoolExecutor(_MAX_THREADS) as threads:
            return list(threads.map(self._head, names))

    def _head(self, name: str) -> bytes:
        if self.entry(name).num_bytes < HEAD_BYTES:
            return b""
        try:
            return patiently(lambda: self._access.read(name, 0, HEAD_BYTES), _HEADS_PATIENCE, _wait)
        except OSError:
            return b""

    def are_same(self, name: str, other: str) -> bool:
        """Return False: files may have one content."""
        return False


def _wait(seconds: float) -> bool:
    return threading.Event().wait(seconds)


def _parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def _matches(parts: Sequence[str], pattern: Sequence[str], *, is_file: bool = False) -> bool:
    """True if a path matches a pattern as in Python's `glob`, both as lists of parts."""
    if not pattern:
        return not parts
    own, rest = pattern[0], pattern[1:]
    if own == "**":
        # A "**" at the end stands for nothing only after a directory.
        least = 1 if is_file and not rest else 0
        for taken in range(len(parts) + 1):
            if taken and parts[taken - 1].startswith("."):
                return False
            if taken >= least and _matches(parts[taken:], rest, is_file=is_file):
                return True
        return False
    if not parts:
        return False
    if glob.has_magic(own):
        is_hidden = parts[0].startswith(".") and not own.startswith(".")
        fits = fnmatchcase(parts[0], own) and not is_hidden
    else:
        fits = parts[0] == own
    return fits and _matches(parts[1:], rest, is_file=is_file)
