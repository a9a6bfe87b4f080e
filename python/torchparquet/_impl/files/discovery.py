"""Find the Parquet files that a data set's ``paths`` argument names, on disk or in a store.

One rule holds for both; `places` has the two ways to list.

* A file stands for itself, whatever its name.
* A directory stands for the files ending in ``.parquet``, ``.parq`` or ``.pq`` (any case) at any
  depth, symbolic links followed. A warning names other files that begin like Parquet files; it
  looks at a few of each suffix. If no name has such an ending, the directory stands for all files
  that are not empty, provided that one of them begins like a Parquet file. Files and directories
  whose names begin with ``_`` or ``.`` are skipped.
* A pattern (``*``, ``?``, ``[...]``, ``**``) stands for its matches; matched directories are listed
  as above. A pattern matches a leading ``_`` only if it spells it out, as in a shell with a leading
  ``.``. An existing path is never taken for a pattern.
* A ``file://`` URL stands for its percent-decoded path.
"""

from __future__ import annotations

import errno
import glob
import itertools
import json
import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TypeAlias
from urllib.parse import unquote

from torchparquet._impl.files.listing import Listing, MemorySource, memory_files
from torchparquet._impl.files.places import MAX_THREADS, Disk, Place, StorePlace
from torchparquet._impl.files.remote.failures import Patience
from torchparquet._impl.files.remote.storage import NO_STORAGE, StorageArguments
from torchparquet._impl.files.remote.store import Entry, store_of
from torchparquet._impl.files.remote.urls import (
    HTTP,
    checked_path,
    split_scheme,
    without_credentials,
)
from torchparquet.errors import CorruptFileError, users_level

PathArgument: TypeAlias = str | os.PathLike[str]
SourceArgument: TypeAlias = (
    PathArgument | Sequence[PathArgument] | MemorySource | Sequence[MemorySource]
)

_SUFFIXES = (".parquet", ".parq", ".pq")
_MAGICS = (b"PAR1", b"PARE")
# A warning of files that are Parquet by content only looks at a few of each suffix.
_MAX_SUFFIXES = 32
_MAX_OF_SUFFIX = 4
_HEADS_AT_ONCE = 64


def find_files(
    paths: SourceArgument, storage: StorageArguments = NO_STORAGE, *, empty_files: bool = False
) -> Listing:
    """List the files that ``paths`` names; one rank lists a store for all."""
    memory = memory_files(paths)
    if memory:
        return Listing(tuple(file.name for file in memory), memory=memory)
    texts = path_texts(paths)
    store = store_of(texts, storage)
    if store is None:
        texts = [_without_scheme(text) for text in texts]
        return Listing.of(_found([(text, Disk()) for text in texts], empty_files=empty_files))
    patience = Patience.of(storage.of_client)
    places = [(text, StorePlace(store, patience)) for text in texts]
    entries = storage.once(
        [store.scheme, *texts, empty_files],
        lambda: _found(places, empty_files=empty_files),
        lambda made: json.dumps(made).encode(),
        lambda content: [Entry(*entry) for entry in json.loads(content)],
        # Names of HTTP files may hold credentials, and each file is looked up by itself.
        by_each=store.scheme in HTTP,
    )
    return Listing.of(entries, store, **storage.of_client)


def path_texts(paths: object) -> list[str]:
    """Return the texts of the argument ``paths``."""
    if isinstance(paths, str | os.PathLike):
        return [checked_path(paths, "paths")]
    if not isinstance(paths, Sequence) or isinstance(paths, bytes | bytearray | memoryview):
        raise TypeError(
            "paths must be a str, an os.PathLike or a list or tuple of them (give other "
            "collections an order: sorted(...)), or in memory: a Parquet file's bytes, a "
            f"pyarrow.Table, a pandas or Polars DataFrame; got {type(paths).__name__}"
        )
    if not paths:
        raise ValueError(f"paths must name at least one file; got {paths!r}")
    return [checked_path(path, f"paths[{index}]") for index, path in enumerate(paths)]


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


def _found(texts: Sequence[tuple[str, Place]], *, empty_files: bool) -> list[Entry]:
    """Return the files of all paths."""
    place = texts[0][1]
    if len(texts) == 1 or isinstance(place, Disk):
        expanded = [_expand(*text) for text in texts]
    else:
        with ThreadPoolExecutor(min(MAX_THREADS, len(texts))) as threads:
            expanded = list(threads.map(_expand, *zip(*texts, strict=True)))
    names: set[str] = set()
    with_stamp: dict[str, str] = {}
    for entry in itertools.chain.from_iterable(expanded):
        name, shown = entry.name, place.shown(entry.name)
        if entry.num_bytes < 0:
            raise ValueError(f"{place.no_size}: {shown!r}")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ValueError(f"a path must be valid UTF-8: {shown!r}") from None
        if entry.num_bytes == 0 and not empty_files:
            raise CorruptFileError(
                f"empty file (0 bytes); write it again, or leave it out of the paths: {shown!r}"
            )
        if name in names:
            raise ValueError(f"a file must be named only once: {shown!r}")
        names.add(name)
        earlier = with_stamp.setdefault(entry.stamp, name)
        may_be_links = earlier != name and isinstance(place, Disk)
        # Hard links, of one inode, are files of their own.
        if may_be_links and Path(name).resolve() == Path(earlier).resolve():
            raise ValueError(f"a file must be named only once: {shown!r} is {earlier!r}")
    return [entry for entries in expanded for entry in entries]


def _expand(text: str, place: Place) -> list[Entry]:
    """Return the files of one path or pattern, at least one."""
    name = place.name_of(text)
    entry = place.look_up(name)
    if entry is None:
        if glob.has_magic(text):
            return _expand_pattern(text, place)
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", place.shown(name))
    if not entry.is_directory:
        return [entry]
    found = _files_of_directory(name, place)
    if not found:
        raise FileNotFoundError(
            errno.ENOENT,
            "No Parquet file in the directory; give one that has .parquet files in it or below "
            "it, or, if their names begin with . or _, name them or a pattern that matches them",
            place.shown(name),
        )
    return found


def _expand_pattern(pattern: str, place: Place) -> list[Entry]:
    spelled = [part for part in pattern.split("/") if part.startswith("_")]
    found: dict[str, Entry] = {}  # "**" matches a directory and the files below it.
    for match, name in place.matches(pattern):
        marked = [part for part in match.split("/") if part.startswith("_")]
        if not all(any(fnmatchcase(part, one) for one in spelled) for part in marked):
            continue
        entry = place.entry(name)
        files = _files_of_directory(name, place) if entry.is_directory else [entry]
        found.update((file.name, file) for file in files)
    if not found:
        shown = place.shown(place.name_of(pattern))
        raise FileNotFoundError(errno.ENOENT, "No file matches the pattern", shown)
    return [found[name] for name in sorted(found)]


def _files_of_directory(root: str, place: Place) -> list[Entry]:
    """Return the Parquet files below a directory, sorted; an empty list if there is none."""
    names = place.names_below(root)
    parquet = [name for name in names if name.lower().endswith(_SUFFIXES)]
    if parquet:
        by_suffix: dict[str, list[str]] = {}
        for name in names:
            if not name.lower().endswith(_SUFFIXES):
                by_suffix.setdefault(PurePosixPath(name).suffix.lower(), []).append(name)
        samples = [some[:_MAX_OF_SUFFIX] for _, some in sorted(by_suffix.items())]
        left_out = _first_parquet(list(itertools.chain(*samples[:_MAX_SUFFIXES])), place)
        if left_out is not None:
            warnings.warn(
                f"left out files below {place.shown(root)!r} that begin like Parquet files but do "
                f"not end in {', '.join(_SUFFIXES)}, such as {place.shown(left_out)!r}; to read "
                "them, add their names or a pattern to paths",
                stacklevel=users_level(),
            )
        return [place.entry(name) for name in parquet]
    found = [entry for entry in map(place.entry, names) if entry.num_bytes > 0]
    return found if _first_parquet([entry.name for entry in found], place) else []


def _first_parquet(names: Sequence[str], place: Place) -> str | None:
    """Return the first of the files that begins like a Parquet file; None if none does."""
    for begin in range(0, len(names), _HEADS_AT_ONCE):
        some = names[begin : begin + _HEADS_AT_ONCE]
        for name, head in zip(some, place.heads(some), strict=True):
            if head in _MAGICS:
                return name
    return None
