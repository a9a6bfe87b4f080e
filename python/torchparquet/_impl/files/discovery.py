"""Find the Parquet files that a data set's ``paths`` argument names."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from torchparquet._impl.files.remote.path_rules import (
    EMPTY_FILE,
    HIDDEN_PREFIXES,
    MAGICS,
    NO_PARQUET_FILE,
    PathArgument,
    has_parquet_suffix,
    is_written_out,
    path_texts,
    samples_of_suffixes,
    warn_of_left_out,
)
from torchparquet._impl.files.remote.urls import split_scheme, without_credentials
from torchparquet.errors import CorruptFileError

# The errors of stat() for a text that is a pattern, not the name of an existing file.
_NO_SUCH_NAME = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


class FoundFile(NamedTuple):
    """A file that was found."""

    path: str
    status: os.stat_result


def discover_files(
    paths: PathArgument | Sequence[PathArgument], *, empty_files: bool = False
) -> list[str]:
    """Return the paths that `find_files` finds."""
    return [file.path for file in find_files(paths, empty_files=empty_files)]


def find_files(
    paths: PathArgument | Sequence[PathArgument], *, empty_files: bool = False
) -> list[FoundFile]:
    """List the files that ``paths`` names.

    * A file stands for itself, whatever its name.
    * A directory stands for the files ending in ``.parquet``, ``.parq`` or ``.pq`` (any case) at
      any depth, symbolic links followed. A warning names other files that begin like Parquet
      files; it looks at a few of each suffix. If no name has such an ending, the directory stands
      for all files that are not empty, provided that one of them begins like a Parquet file.
      Files and directories whose names begin with ``_`` or ``.`` are skipped.
    * A pattern (``*``, ``?``, ``[...]``, ``**``) stands for its matches; matched directories are
      listed as above. A pattern matches a leading ``_`` only if it spells it out, as in a shell
      with a leading ``.``. An existing path is never taken for a pattern.
    * A ``file://`` URL stands for its percent-decoded path.

    Raises:
        ValueError: A path is empty, is neither file nor directory, is not UTF-8, or is a URL
            other than ``file://``; or the sequence is empty; or a file is named twice.
    """
    texts = [_without_scheme(text) for text in path_texts(paths)]
    found = [file for text in texts for file in _expand(text)]
    for path, status in found:
        if status.st_size == 0 and not empty_files:
            raise CorruptFileError(f"{EMPTY_FILE}: {path!r}")
    _check_distinct(found)
    return found


def _without_scheme(text: str) -> str:
    scheme, rest = split_scheme(text)
    if not scheme:
        return text
    if scheme != "file":
        raise ValueError(
            "a local path must be a path or a file:// URL; got scheme "
            f"{scheme!r}: {without_credentials(text)!r}"
        )
    host, slash, path = rest.partition("/")
    if not slash or host.lower() not in ("", "localhost"):
        raise ValueError(
            f"a file:// URL must be absolute and name no other host (file:///path): {text!r}"
        )
    return "/" + unquote(path, errors="surrogateescape")


def _absolute(text: str) -> str:
    path = Path(text).absolute()
    # Removing "link/.." from the text would name another file, so links are resolved.
    return str(path.resolve() if ".." in path.parts else path)


def _expand(text: str) -> list[FoundFile]:
    """Return the files of one path or pattern, at least one."""
    path = _absolute(text)
    try:
        status = Path(path).stat()
    except OSError as error:
        if error.errno not in _NO_SUCH_NAME:
            raise
        if glob.has_magic(text):
            return _expand_pattern(text)
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", path) from None
    found = _expand_existing(path, status)
    if not found:
        raise FileNotFoundError(errno.ENOENT, NO_PARQUET_FILE, path)
    return found


def _expand_existing(path: str, status: os.stat_result) -> list[FoundFile]:
    return _list_directory(path) if stat.S_ISDIR(status.st_mode) else [_checked(path, status)]


def _expand_pattern(pattern: str) -> list[FoundFile]:
    # Path.glob matches hidden names and refuses absolute patterns.
    matches = glob.glob(pattern, recursive=True)  # noqa: PTH207
    # "none/**" yields "none/" even if it does not exist. A dangling link stays and raises later.
    matches = [match for match in matches if os.path.lexists(match)]
    marked = [part for part in pattern.split("/") if part.startswith("_")]
    found: dict[str, FoundFile] = {}  # "**" matches a directory and the files below it.
    for match in matches:
        if is_written_out(match, marked):
            path = _absolute(match)
            found.update((file.path, file) for file in _expand_existing(path, Path(path).stat()))
    if not found:
        raise FileNotFoundError(errno.ENOENT, "No file matches the pattern", pattern)
    return [found[path] for path in sorted(found)]


def _list_directory(root: str) -> list[FoundFile]:
    """Return the Parquet files below ``root``, sorted; an empty list if there is none."""
    entries = sorted(_walk(root), key=lambda entry: entry.path)
    parquet = [entry for entry in entries if has_parquet_suffix(entry.name)]
    if parquet:
        _warn_of_others(root, entries)
        return [_checked(entry.path, entry.stat()) for entry in parquet]
    found = [FoundFile(entry.path, entry.stat()) for entry in entries]
    found = [
        _checked(path, status)
        for path, status in found
        if stat.S_ISREG(status.st_mode) and status.st_size > 0
    ]
    return found if any(_begins_as_parquet(path) for path, _ in found) else []


def _warn_of_others(root: str, entries: Sequence[os.DirEntry[str]]) -> None:
    """Warn of files that are Parquet by content only; look at a few of each suffix."""
    by_path = {entry.path: entry for entry in entries}
    for path in samples_of_suffixes(by_path):
        # A file that cannot be opened, or is gone by now, is not one to warn of.
        with contextlib.suppress(OSError):
            if by_path[path].is_file() and _begins_as_parquet(path):
                warn_of_left_out(root, path)
                return


def _begins_as_parquet(path: str) -> bool:
    with Path(path).open("rb") as file:
        return file.read(len(MAGICS[0])) in MAGICS


def _walk(root: str) -> list[os.DirEntry[str]]:
    """Return all entries below ``root`` that are neither directories nor hidden.

    Unlike ``os.walk``, this raises if a directory cannot be read: its rows would be missing.
    """
    entries: list[os.DirEntry[str]] = []
    pending = [root]
    visited: set[tuple[int, int]] = set()  # Ends loops of symbolic links.
    while pending:
        directory = pending.pop()
        status = Path(directory).stat()
        if (status.st_dev, status.st_ino) in visited:
            continue
        visited.add((status.st_dev, status.st_ino))
        with os.scandir(directory) as scan:
            shown = [entry for entry in scan if not entry.name.startswith(HIDDEN_PREFIXES)]
        below = [entry.path for entry in shown if entry.is_dir()]
        # Sorted, so that every machine follows the same one of two links to a directory.
        pending.extend(sorted(below, reverse=True))
        entries.extend(entry for entry in shown if not entry.is_dir())
    return entries


def _checked(path: str, status: os.stat_result) -> FoundFile:
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"a path must be a regular file or a directory: {path!r}")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValueError(f"a path must be valid UTF-8: {path!r}") from None
    return FoundFile(path, status)


def _check_distinct(found: list[FoundFile]) -> None:
    """Raise if one file is listed twice, also through a symbolic link."""
    by_path: set[str] = set()
    by_inode: dict[tuple[int, int], str] = {}
    for path, status in found:
        if path in by_path:
            raise ValueError(f"a file must be named only once: {path!r}")
        by_path.add(path)
        earlier = by_inode.setdefault((status.st_dev, status.st_ino), path)
        # Hard links share an inode, and some file systems give one number to several files.
        # Such files are different here.
        if earlier != path and Path(earlier).resolve() == Path(path).resolve():
            raise ValueError(f"a file must be named only once: {path!r} is {earlier!r}")
