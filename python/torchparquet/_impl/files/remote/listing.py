"""Find the Parquet files that paths of a store name, by the rules of files on disk."""

from __future__ import annotations

import errno
import glob
import threading
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatchcase

from torchparquet._impl.files.remote.file_access import (
    PATIENT,
    Entry,
    FileAccess,
    Patience,
    patiently,
)
from torchparquet._impl.files.remote.path_rules import (
    EMPTY_FILE,
    HIDDEN_PREFIXES,
    MAGICS,
    NO_PARQUET_FILE,
    has_parquet_suffix,
    is_written_out,
    samples_of_suffixes,
    warn_of_left_out,
)
from torchparquet._impl.files.remote.urls import AZURE, HTTP
from torchparquet.errors import CorruptFileError

_WITH_BUCKETS = ("s3", "s3a", "gs", "gcs", *AZURE)
_MAX_THREADS = 16
_HEADS_AT_ONCE = 64
# A mistaken address should be told soon.
_MAX_TRIES = 5
_HEADS_PATIENCE = Patience(max_tries=_MAX_TRIES)


def find_entries(
    texts: Sequence[str],
    access: FileAccess,
    *,
    empty_files: bool = False,
    patience: Patience = PATIENT,
) -> list[Entry]:
    """List the files that paths of a store name.

    Files, directories and patterns stand for what they do on disk, see
    `find_files`. Stores have no links. A directory is any beginning of names that ends at a slash.
    """
    if len(texts) == 1:
        found = _expand(texts[0], access, patience)
    else:
        with ThreadPoolExecutor(min(_MAX_THREADS, len(texts))) as threads:
            expanded = list(threads.map(lambda text: _expand(text, access, patience), texts))
        found = [entry for entries in expanded for entry in entries]
    names: set[str] = set()
    for entry in found:
        shown = access.shown(entry.name)
        if entry.num_bytes < 0:
            raise ValueError(f"the server does not report the size of the file: {shown!r}")
        if entry.num_bytes == 0 and not empty_files:
            raise CorruptFileError(f"{EMPTY_FILE}: {shown!r}")
        if entry.name in names:
            raise ValueError(f"a file must be named only once: {shown!r}")
        names.add(entry.name)
    return found


def _look_up(name: str, access: FileAccess, patience: Patience) -> Entry | None:
    """Return a file or directory. Libraries are patient by themselves, but for that of HTTP."""
    if access.scheme not in HTTP:
        return access.look_up(name)
    return patiently(lambda: access.look_up(name), _of_http(patience), _wait)


def _of_http(patience: Patience) -> Patience:
    return replace(patience, max_tries=_MAX_TRIES, max_busy_tries=patience.max_tries)


def _wait(seconds: float) -> bool:
    return threading.Event().wait(seconds)


def _expand(text: str, access: FileAccess, patience: Patience) -> list[Entry]:
    """Return the files of one path or pattern, at least one."""
    name = access.name_of(text)
    shown = access.shown(name)
    if access.scheme in HTTP and shown.endswith("/"):
        raise _not_of_http(shown)
    if access.scheme in _WITH_BUCKETS and glob.has_magic(name.partition("/")[0]):
        raise ValueError(f"a pattern must spell out the bucket: {shown!r}")
    entry = _look_up(name, access, patience)
    if entry is None:
        if not glob.has_magic(text):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", shown)
        if access.scheme in HTTP:
            if glob.has_magic(shown):
                raise _not_of_http(shown)
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", shown)
        return _expand_pattern(name, access, only_directories=text.endswith("/"))
    if not entry.is_directory and entry.num_bytes > 0:
        return [entry]
    if not entry.is_directory and access.scheme in HTTP:
        return [entry]
    # Some programs mark a directory by an empty object of its name.
    below = _real_files(access.files_below(name))
    if not entry.is_directory and not below:
        return [entry]
    found = _files_of_directory(name, below, access)
    if not found:
        raise FileNotFoundError(errno.ENOENT, NO_PARQUET_FILE, shown)
    return found


def _not_of_http(shown: str) -> ValueError:
    return ValueError(
        "an http(s):// path must be of a Parquet file (directories and patterns cannot be listed, "
        f"give the files themselves): {shown!r}"
    )


def _real_files(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries, sorted, without those that only mark directories."""
    files = sorted(entries, key=lambda entry: entry.name)
    directories = {parent for entry in files for parent in _parents(entry.name)}
    return [
        entry
        for entry in files
        if not entry.name.endswith("/") and (entry.num_bytes or entry.name not in directories)
    ]


def _parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def _files_of_directory(root: str, entries: Sequence[Entry], access: FileAccess) -> list[Entry]:
    """Return the Parquet files among the files below ``root``; an empty list if there is none."""
    prefix = f"{root.rstrip('/')}/"
    shown = [
        entry
        for entry in entries
        if not any(
            part.startswith(HIDDEN_PREFIXES) for part in entry.name.removeprefix(prefix).split("/")
        )
    ]
    parquet = [entry for entry in shown if has_parquet_suffix(entry.name)]
    if parquet:
        sizes = {entry.name: entry.num_bytes for entry in shown}
        samples = [name for name in samples_of_suffixes(sizes) if sizes[name] >= len(MAGICS[0])]
        left_out = _first_parquet(samples, access)
        if left_out is not None:
            warn_of_left_out(access.shown(root), access.shown(left_out))
        return parquet
    found = [entry for entry in shown if entry.num_bytes > 0]
    return found if _first_parquet([entry.name for entry in found], access) is not None else []


def _first_parquet(names: Sequence[str], access: FileAccess) -> str | None:
    """Return the first of the files that begins like a Parquet file; None if none does."""

    def is_parquet(name: str) -> bool:
        try:
            head = patiently(lambda: access.read(name, 0, len(MAGICS[0])), _HEADS_PATIENCE, _wait)
        except OSError:
            return False
        return head in MAGICS

    with ThreadPoolExecutor(_MAX_THREADS) as threads:
        for begin in range(0, len(names), _HEADS_AT_ONCE):
            some = names[begin : begin + _HEADS_AT_ONCE]
            for name, found in zip(some, threads.map(is_parquet, some), strict=True):
                if found:
                    return name
    return None


def _expand_pattern(pattern: str, access: FileAccess, *, only_directories: bool) -> list[Entry]:
    steps = pattern.split("/")
    first = next(index for index, step in enumerate(steps) if glob.has_magic(step))
    root = "/".join(steps[:first])
    literal = steps[first]
    literal = literal[: min(literal.index(sign) for sign in "*?[" if sign in literal)]
    entries = _real_files(access.files_below(root, literal))
    wanted, marked = steps[first:], [step for step in steps if step.startswith("_")]
    begin = len(root) + 1 if first else 0
    names = [entry.name for entry in entries]
    found: dict[str, Entry] = {}  # "**" matches a directory and the files below it.
    if not only_directories:
        for entry in entries:
            parts = entry.name[begin:].split("/")
            if _matches(parts, wanted, is_file=True) and is_written_out(entry.name, marked):
                found[entry.name] = entry
    for directory in {parent for entry in entries for parent in _parents(entry.name)}:
        inside = len(directory) >= len(root)
        relative = [part for part in directory[begin:].split("/") if part]
        if inside and _matches(relative, wanted) and is_written_out(directory, marked):
            # "0" comes right after "/", so the files below stand between the two.
            first_below = bisect_left(names, f"{directory}/")
            end = bisect_left(names, f"{directory}0")
            below = entries[first_below:end]
            found.update(
                (entry.name, entry) for entry in _files_of_directory(directory, below, access)
            )
    if not found:
        shown = access.shown(pattern)
        raise FileNotFoundError(errno.ENOENT, "No file matches the pattern", shown)
    return [found[name] for name in sorted(found)]


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
