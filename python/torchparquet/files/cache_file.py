"""The file of a manifest cache, on disk or in a store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from torchparquet.files.remote.storage import StorageArguments, storage_beside
from torchparquet.files.remote.urls import is_remote_url, without_credentials

CacheArgument: TypeAlias = "str | os.PathLike[str] | None"


class CacheFile:
    """A file that is read and replaced as a whole.

    Attributes:
        shown: Its path or URL, for messages.
    """

    def __init__(
        self, path: str | os.PathLike[str], storage: StorageArguments, paths: Sequence[str] = ()
    ) -> None:
        """Open nothing yet.

        Args:
            path: A path on disk, or the URL of a store's file.
            storage: Of the store that the data set is in.
            paths: Of the data set.
        """
        self._path = os.fspath(path)
        self._store = (
            storage_beside(self._path, storage, paths) if is_remote_url(self._path) else None
        )
        self.shown = without_credentials(self._path)

    def read(self) -> bytes | None:
        """Return the content; None if there is no such file.

        Raises:
            OSError: The file cannot be read.
        """
        if self._store is None:
            path = Path(self._path)
            return path.read_bytes() if path.exists() else None
        access = self._store.access()
        name = access.name_of(self._path)
        entry = access.look_up(name, afresh=True)
        return None if entry is None else access.read(name, 0, entry.num_bytes)

    def write(self, content: bytes) -> None:
        """Replace the file at once, so that others read the old or the new one.

        Raises:
            OSError: The file cannot be written.
        """
        if self._store is not None:
            access = self._store.access()
            access.write(access.name_of(self._path), content)
            return
        path = Path(self._path)
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as to:
            try:
                to.write(content)
                to.close()
                Path(to.name).replace(path)
            except BaseException:
                Path(to.name).unlink(missing_ok=True)
                raise
