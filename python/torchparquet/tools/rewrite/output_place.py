"""The directory that a rewrite writes to, on disk or in a store."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torchparquet._impl.files.listing import Listing
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_reading import read_manifest, walk_footers
from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet._impl.files.remote.store import Store, store_beside
from torchparquet._impl.files.remote.urls import is_remote_url, without_credentials
from torchparquet.errors import naming
from torchparquet.tools.footers import read_footer

_BUCKETS = ".buckets"


def output_place(path: str, storage: StorageArguments, paths: Sequence[str]) -> LocalOutput:
    """Return the place of a path or URL."""
    if is_remote_url(path):
        return RemoteOutput(path, store_beside(path, storage, paths))
    return LocalOutput(Path(path))


class LocalOutput:
    """A directory of output files, named by their paths within it.

    Attributes:
        root: An absolute path or URL, which the paths of its files begin with.
    """

    def __init__(self, directory: Path) -> None:
        """Write to `directory`, which may be missing."""
        self.directory = directory.absolute()
        self.shown = self.root = str(self.directory)

    @contextmanager
    def locked(self) -> Iterator[Path]:
        """Make it, keep other rewrites out, and give a directory on disk for buckets."""
        self.directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                message = f"another rewrite is writing to {self.shown!r}"
                raise RuntimeError(message) from None
            buckets = self.directory / _BUCKETS
            yield buckets
            # It raises in spite of ignore_errors where a directory cannot be closed.
            with naming(buckets):
                shutil.rmtree(buckets, ignore_errors=True)
        finally:
            with naming(self.directory):
                os.close(descriptor)

    def names(self) -> list[str]:
        """Return the names in it, sorted."""
        return sorted(entry.name for entry in self.directory.iterdir())

    def read_text(self, name: str) -> str | None:
        """Return the content of a file; None if there is none."""
        path = self.directory / name
        return path.read_text() if path.exists() else None

    def write_text(self, name: str, text: str) -> None:
        """Write a file at once."""
        unfinished = self.directory / f"{name}.tmp"
        with naming(unfinished), unfinished.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, self.directory / name)  # noqa: PTH105

    def num_rows_of(self, name: str) -> int | None:
        """Return the rows of a Parquet file; None if there is none."""
        path = self.directory / name
        return int(read_footer(str(path)).num_rows) if path.exists() else None

    @contextmanager
    def new_file(self, name: str) -> Iterator[Path]:
        """Give a path on disk to write to; afterwards it is a file of the output, or nothing is."""
        path = self.directory / name
        unfinished = path.with_name(f".{path.name}.tmp")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield unfinished
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        os.replace(unfinished, path)  # noqa: PTH105
        # The new name is to be on disk too.
        with naming(path.parent):
            descriptor = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def manifest(self, names: Sequence[str]) -> Manifest:
        """Return the manifest of files."""
        return read_manifest([str(self.directory / name) for name in names])


class RemoteOutput(LocalOutput):
    """A directory of a store. Files and buckets are made on disk first.

    Nothing keeps two rewrites from writing to it at once.
    """

    def __init__(self, url: str, store: Store) -> None:
        """Write to `url`."""
        self._store = store
        self._directory = store.name_of(url)
        self.shown = without_credentials(url)
        self.root = self._store.shown(self._directory)

    @contextmanager
    def locked(self) -> Iterator[Path]:
        """Give a directory on disk for buckets."""
        with tempfile.TemporaryDirectory(prefix="torchparquet-rewrite-") as scratch:
            self._scratch = Path(scratch)
            yield self._scratch / _BUCKETS

    def names(self) -> list[str]:
        """Return the names in it, sorted."""
        files = self._store.files_below(self._directory)
        return sorted(file.name.removeprefix(f"{self._directory}/") for file in files)

    def read_text(self, name: str) -> str | None:
        """Return the content of a file; None if there is none."""
        entry = self._store.look_up(self._name(name), afresh=True)
        if entry is None:
            return None
        return self._store.read(entry.name, 0, entry.num_bytes).decode()

    def write_text(self, name: str, text: str) -> None:
        """Write a file at once."""
        self._store.write(self._name(name), text.encode())

    def num_rows_of(self, name: str) -> int | None:
        """Return the rows of a Parquet file; None if there is none."""
        files = self._files([name])
        return None if files is None else int(read_footer(files.paths[0], files).num_rows)

    @contextmanager
    def new_file(self, name: str) -> Iterator[Path]:
        """Give a path on disk to write to; afterwards it is a file of the output, or nothing is."""
        path = self._scratch / Path(name).name
        try:
            yield path
            self._store.upload(self._name(name), str(path))
        finally:
            path.unlink(missing_ok=True)

    def manifest(self, names: Sequence[str]) -> Manifest:
        """Return the manifest of files."""
        files = self._files(names)
        if files is None:
            raise FileNotFoundError(f"files of the output are missing: {self.shown!r}")
        return walk_footers(files)[0]

    def _name(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _files(self, names: Sequence[str]) -> Listing | None:
        """Return files of the output; None if one is missing."""
        found = [self._store.look_up(self._name(name), afresh=True) for name in names]
        entries = [entry for entry in found if entry is not None]
        if len(entries) < len(found):
            return None
        return Listing.of(entries, self._store)
