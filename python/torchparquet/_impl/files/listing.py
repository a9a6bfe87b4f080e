"""The files of a data set as they were listed, on disk, in a store or in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from torchparquet._impl.files.memory_files import MemoryFile
from torchparquet._impl.files.remote.store import Entry, Store


@dataclass(frozen=True, eq=False)
class Listing:
    """Files on disk, in a store or in memory. Pickles without threads and connections.

    Attributes:
        paths: Absolute paths; of files in a store URLs without credentials, in memory names.
        num_bytes: Sizes; empty for files in memory.
        stamps: What changes whenever a file does; empty for files in memory.
        names: What the library of a store calls its files; these may hold credentials.
        client: Arguments of the native client.
        footers: What the latest reading of a store has kept of footers.
    """

    paths: tuple[str, ...]
    num_bytes: tuple[int, ...] = field(default=(), repr=False)
    stamps: tuple[str, ...] = field(default=(), repr=False)
    memory: tuple[MemoryFile, ...] = field(default=(), repr=False)
    store: Store | None = None
    names: tuple[str, ...] = field(default=(), repr=False)
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)
    footers: list[Any] = field(default_factory=list, repr=False)

    @classmethod
    def of(
        cls,
        entries: Sequence[Entry],
        store: Store | None = None,
        client: Mapping[str, Any] | None = None,
    ) -> Listing:
        """Return the files of a listing."""
        names, num_bytes, stamps, _ = zip(*entries, strict=True)
        if store is None:
            return cls(names, num_bytes, stamps)
        paths: dict[str, None] = {}
        for name in names:
            path = shown = store.shown(name)
            number = 1
            while path in paths:  # URLs that differ in their queries, which are not shown
                number += 1
                path = f"{shown}#{number}"
            paths[path] = None
        return cls(tuple(paths), num_bytes, stamps, (), store, names, client or {})

    def only(self, file: int) -> Listing:
        """Return one of the files by itself."""
        lists = ("paths", "num_bytes", "stamps", "memory", "names")
        one: dict[str, Any] = {name: getattr(self, name)[file : file + 1] for name in lists}
        return replace(self, footers=[], **one)

    def source(self, path: str) -> Any:
        """Return one of the files as pyarrow takes it: a path, an open file, or a buffer."""
        if self.store is not None:
            return self.store.open(self.names[self.paths.index(path)])
        return self.memory[self.paths.index(path)].content if self.memory else path

    def open(self, path: str) -> AbstractContextManager[Any]:
        """Return one of the files to read in any order, with `seek` and `read`."""
        source = self.source(path)
        if isinstance(source, str):
            return Path(source).open("rb", buffering=0)
        made: AbstractContextManager[Any] = pa.BufferReader(source) if self.memory else source
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the footers."""
        return self.__dict__ | {"footers": []}


# Files on disk need no listing to be opened.
ON_DISK = Listing(())


def read_part(file: Any, offset: int, num_bytes: int) -> bytes:
    """Return bytes of an open file, fewer than asked for if it ends before."""
    # A buffer for all that a damaged file asks for may be large.
    num_bytes = min(num_bytes, file.seek(0, os.SEEK_END) - offset)
    if num_bytes <= 0:
        return b""
    file.seek(offset)
    parts = []
    while num_bytes > 0:
        parts.append(file.read(num_bytes))
        if not parts[-1]:
            break
        num_bytes -= len(parts[-1])
    return b"".join(parts)
