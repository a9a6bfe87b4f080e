"""The files of a data set as they were listed, on disk, in a store or in memory."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from torchparquet._impl.files.remote.store import Entry, Store
from torchparquet._impl.files.remote.urls import split_scheme
from torchparquet.errors import one_line


class DataFrame(Protocol):
    """A pandas or Polars DataFrame; neither package is imported here."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def columns(self) -> Any:
        """The columns' names."""


Buffer: TypeAlias = bytes | bytearray | memoryview | io.BytesIO | pa.Buffer
MemorySource: TypeAlias = Buffer | pa.Table | pa.RecordBatch | DataFrame

# Ranks share row groups, so even a small table gets many. Each row group costs time: writing a
# thousand columns takes 1.2 s in 64 row groups and 0.05 s in one.
_NUM_ROW_GROUPS = 64
_MAX_ROW_GROUP_ROWS = 1 << 16


@dataclass(frozen=True)
class MemoryFile:
    """A Parquet file in memory."""

    name: str
    content: pa.Buffer
    digest: str


@dataclass(frozen=True, eq=False)
class Listing:
    """Files on disk, in a store or in memory. Pickles without threads and connections."""

    paths: tuple[str, ...]  # absolute; in a store URLs without credentials, in memory names
    num_bytes: tuple[int, ...] = field(default=(), repr=False)  # empty for files in memory
    stamps: tuple[str, ...] = field(default=(), repr=False)  # as those of `Entry`
    memory: tuple[MemoryFile, ...] = field(default=(), repr=False)
    store: Store | None = None
    # The names of the files in the store's library; these may hold credentials.
    names: tuple[str, ...] = field(default=(), repr=False)
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)  # of the native client
    # The footers that the latest reading of a store has kept.
    footers: list[Any] = field(default_factory=list, repr=False)

    @classmethod
    def of(cls, entries: Sequence[Entry], store: Store | None = None, **client: Any) -> Listing:
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
        return cls(tuple(paths), num_bytes, stamps, (), store, names, client)

    def keeping_no_blocks(self) -> Listing:
        """Return the listing for readers that add nothing to the cache of blocks."""
        kept = {"cache_limit": 0} if "cache_folder" in self.client else {}
        return replace(self, client={**self.client, **kept})

    @cached_property
    def root(self) -> str:
        """The deepest directory that holds all files; ``""`` for files in memory."""
        if self.memory:
            return ""
        scheme, _ = split_scheme(self.paths[0])
        directories = {os.path.dirname(split_scheme(path)[1]) for path in self.paths}  # noqa: PTH120
        root = os.path.commonpath(directories)
        return f"{scheme}://{root}" if scheme else root

    @cached_property
    def _places(self) -> dict[str, int]:
        return {path: at for at, path in enumerate(self.paths)}

    def pick(self, files: Sequence[int]) -> Listing:
        """Return some of the files."""
        lists = ("paths", "num_bytes", "stamps", "memory", "names")
        parts: dict[str, Any] = {
            name: tuple(of[file] for file in files) if (of := getattr(self, name)) else ()
            for name in lists
        }
        return replace(self, footers=[], **parts)

    def source(self, path: str) -> Any:
        """Return one of the files as pyarrow takes it: a path, an open file, or a buffer."""
        if self.store is None and not self.memory:
            return path
        at = self._places[path]
        if self.store is None:
            return self.memory[at].content
        return self.store.open(self.names[at], self.num_bytes[at])

    def open(self, path: str) -> AbstractContextManager[Any]:
        """Return one of the files to read in any order, with `seek` and `read`."""
        source = self.source(path)
        if isinstance(source, str):
            return Path(source).open("rb")
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
    return bytes(file.read(num_bytes))


def memory_files(source: object) -> tuple[MemoryFile, ...]:
    """Return the files that ``source`` or each item of it holds; none if it is not in memory."""
    kind = _kind(source)
    if kind is not None:
        return (_memory_file(source, kind, f"<{kind}>"),)
    if not isinstance(source, Sequence) or isinstance(source, str):
        return ()
    kinds = [_kind(item) for item in source]
    held = [index for index, kind in enumerate(kinds) if kind is not None]
    if held and None in kinds:
        first, other = held[0], kinds.index(None)
        raise TypeError(
            "paths and sources in memory cannot be mixed: "
            f"paths[{first}] is a {kinds[first]}, paths[{other}] is {source[other]!r}"
        )
    return tuple(
        _memory_file(item, kind, f"<{kind} {index}>")
        for index, (item, kind) in enumerate(zip(source, kinds, strict=True))
        if kind is not None
    )


def _kind(source: object) -> str | None:
    """Return the name in messages of an object in memory; None for anything else."""
    if isinstance(source, str | os.PathLike):
        return None
    if isinstance(source, Buffer):
        return "buffer"
    if isinstance(source, pa.Table | pa.RecordBatch):
        return f"pyarrow.{type(source).__name__}"
    for cls in type(source).__mro__:
        name = f"{cls.__module__.partition('.')[0]}.{cls.__name__}"
        if name in ("pandas.DataFrame", "polars.DataFrame"):
            return name
    return None


def _memory_file(source: Any, kind: str, name: str) -> MemoryFile:
    content = _content(source) if kind == "buffer" else _encoded(source, kind, name)
    return MemoryFile(name, content, hashlib.blake2b(content, digest_size=16).hexdigest())


def _content(source: Any) -> pa.Buffer:
    """Return the buffer's bytes, copied only if anybody can write to them."""
    if isinstance(source, pa.Buffer):
        owner = source
        while owner is not None and not owner.is_mutable:  # one that it is a slice of
            owner = owner.parent
        return source if owner is None else pa.py_buffer(source.to_pybytes())
    if isinstance(source, io.BytesIO):
        source = source.getvalue()  # Shares the stream's memory until that is written to.
    # A read-only view may be of memory that others can write to.
    owner = source.obj if isinstance(source, memoryview) else source
    immutable = isinstance(owner, bytes) and memoryview(source).c_contiguous
    return pa.py_buffer(source if immutable else bytes(source))


def _encoded(source: Any, kind: str, name: str) -> pa.Buffer:
    # Imported here, because only tables need it.
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    try:
        if kind == "pandas.DataFrame":
            # One thread, because those of pyarrow's pool would stay.
            source = pa.Table.from_pandas(source, preserve_index=False, nthreads=1)
        elif kind == "polars.DataFrame":
            source = source.to_arrow()
        elif isinstance(source, pa.RecordBatch):
            source = pa.Table.from_batches([source])
        # In one piece, so that the bytes do not depend on the chunks of the table.
        table = source.combine_chunks()
        num_rows = max(1, -(-table.num_rows // _NUM_ROW_GROUPS))
        row_group_size = min(num_rows, _MAX_ROW_GROUP_ROWS)
        options = {"compression": "none", "use_dictionary": False}
        pq.write_table(table, sink, row_group_size=row_group_size, **options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise ValueError(f"cannot be written as Parquet ({one_line(error)}): {name}") from error
    return sink.getvalue()
