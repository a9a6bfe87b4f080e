"""The face of every store of the tests: an address, options for clients, and uploads."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class StoreMissingError(RuntimeError):
    """A store cannot be started here; the message says what to install."""


@dataclass
class FsspecStore:
    """A store that fsspec can write to.

    Attributes:
        name: Of the server.
        prefix: The URL of a bucket, container or folder, without a slash at its end.
        storage_options: For `ParquetDataset` and fsspec.
    """

    name: str
    prefix: str
    storage_options: dict[str, Any]

    def filesystem(self) -> Any:
        """Return a file system of its own, which caches no listing."""
        import fsspec

        return fsspec.filesystem(
            self.prefix.partition("://")[0],
            **self.storage_options | {"skip_instance_cache": True, "use_listings_cache": False},
        )

    def make_bucket(self) -> bool:
        """Make the bucket; true once it is there."""
        filesystem = self.filesystem()
        bucket = self.prefix.partition("://")[2]
        if not filesystem.exists(bucket):
            filesystem.mkdir(bucket)
        return True

    def upload(self, folder: Path, name: str) -> str:
        for path in filter(Path.is_file, folder.rglob("*")):
            self.put(f"{name}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        return f"{self.prefix}/{name}"

    def put(self, key: str, content: bytes) -> str:
        url = f"{self.prefix}/{key}"
        self.filesystem().pipe_file(url, content)
        return url


@dataclass
class FolderStore:
    """A store that serves a folder of this machine."""

    name: str
    prefix: str
    storage_options: dict[str, Any]
    folder: Path

    def upload(self, folder: Path, name: str) -> str:
        shutil.copytree(folder, self.folder / name, dirs_exist_ok=True)
        return f"{self.prefix}/{name}"


Store = FsspecStore | FolderStore
# Starts a store in a folder of its own.
Start = Callable[[Path], AbstractContextManager[Store]]
