"""Opens files on disk and in stores for pyarrow, and for reading parts of them."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from torchparquet._impl.files.manifest import Manifest
    from torchparquet._impl.files.remote.remote_files import RemoteFiles


def source_of(path: str, remote: RemoteFiles | None) -> Any:
    """Return a file as pyarrow takes it: a path, or an open file of a store."""
    return path if remote is None else remote.open(path)


def opened(path: str, remote: RemoteFiles | None) -> AbstractContextManager[Any]:
    """Return a file that can be read in any order, with `seek` and `read`."""
    if remote is None:
        return Path(path).open("rb", buffering=0)
    made: AbstractContextManager[Any] = remote.open(path)
    return made


def opened_file(manifest: Manifest, number: int) -> AbstractContextManager[Any]:
    """Return a file of a manifest, on disk, in a store or in memory, with `seek` and `read`."""
    if manifest.memory:
        made: AbstractContextManager[Any] = pa.BufferReader(manifest.memory[number].content)
        return made
    return opened(manifest.files[number], manifest.remote)


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
