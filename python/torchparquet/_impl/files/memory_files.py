"""Parquet files in memory: buffers, and tables and frames encoded once."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

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


def memory_files(source: object) -> tuple[MemoryFile, ...]:
    """Return the files that ``source`` or each item of it holds; none if it is not in memory.

    * A buffer is a Parquet file. It is copied if anybody can write to it.
    * A table or frame is encoded, once, as a file of up to 64 row groups, or more if these had
      above 65,536 rows. The index of a pandas DataFrame is left out.
    """
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
