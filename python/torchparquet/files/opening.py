"""Opens files on disk and in stores for pyarrow, and for reading parts of them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchparquet.files.remote.remote_files import RemoteFiles


def source_of(path: str, remote: RemoteFiles | None) -> Any:
    """Return a file as pyarrow takes it: a path, or an open file of a store.

    Args:
        path: Of the file, as the manifest has it.
        remote: The manifest's files, if they are in a store.
    """
    return path if remote is None else remote.open(path)


def opened(path: str, remote: RemoteFiles | None) -> AbstractContextManager[Any]:
    """Return a file that can be read in any order, with `seek` and `read`.

    Args:
        path: Of the file, as the manifest has it.
        remote: The manifest's files, if they are in a store.
    """
    if remote is None:
        return Path(path).open("rb", buffering=0)
    made: AbstractContextManager[Any] = remote.open(path)
    return made
