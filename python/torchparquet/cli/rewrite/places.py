"""The directory that a rewrite writes to, on disk or in a store."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torchparquet._impl.files.listing import Listing
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_reading import read_manifest, walk_footers
from torchparquet._impl.files.remote.store import Store, store_beside
from torchparquet._impl.files.remote.urls import is_remote_url, without_credentials
from torchparquet.cli.arguments import Data
from torchparquet.errors import naming

_BUCKETS = ".buckets"


def output_place(path: str, data: Data) -> LocalOutput:
    """Return the place of a path or URL."""
    if is_remote_url(path):
        return RemoteOutput(path, store_beside(path, data.storage, data.paths))
    return LocalOutput(Path(path))


class LocalOutput:
    """A directory of output files, whose paths begin with `root`."""

    def __init__(self, directory: Path) -> None:
        """Write to `directory`, which may be missing."""
        self.directory = directory.absolute()
        self.shown = self.root = str(self.directory)
        self._draft = "tmp"  # ends the names of files that are not whole

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
                # Those of machines that went away.
                for draft in self.directory.rglob(".part-*.tmp"):
                    draft.unlink(missing_ok=True)
        finally:
            with naming(self.directory):
                os.close(descriptor)

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Write to it in another process than the one that keeps other rewrites out."""
        if not self.directory.is_dir():
            raise ValueError(
                "all machines of Ray must share the directory of --output, or it must be the URL "
                f"of a store; the machine {socket.gethostname()} has no {self.shown!r}"
            )
        # A machine that Ray has given up may still write the same file as the next one.
        self._draft = f"{secrets.token_hex(4)}.tmp"
        yield

    def names(self) -> list[str]:
        """Return the names in it, sorted."""
        return sorted(entry.name for entry in self.directory.iterdir())

    def read_text(self, name: str) -> str | None:
        """Return the content of a file; None if there is none."""
        path = self.directory / name
        return path.read_text() if path.exists() else None

    def write_text(self, name: str, text: str) -> None:
        """Write a file at once."""
        with self.new_file(name) as path, naming(path):
            path.write_text(text)

    @contextmanager
    def new_file(self, name: str) -> Iterator[Path]:
        """Give a path on disk to write to; afterwards it is a file of the output, or nothing is."""
        path = self.directory / name
        unfinished = path.with_name(f".{path.name}.{self._draft}")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield unfinished
            _sync(unfinished)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        os.replace(unfinished, path)  # noqa: PTH105
        # The new name is to be on disk too.
        _sync(path.parent)

    def manifest(self, names: Sequence[str]) -> Manifest | None:
        """Return the manifest of files; None if one is missing."""
        paths = [self.directory / name for name in names]
        if not all(path.exists() for path in paths):
            return None
        return read_manifest([str(path) for path in paths])


def _sync(path: Path) -> None:
    with naming(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class RemoteOutput(LocalOutput):
    """A directory of a store. Nothing keeps two rewrites from writing to it at once."""

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

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Give files on the way to the store a place on this machine's disk."""
        with self.locked():
            yield

    def names(self) -> list[str]:
        """Return the names in it, sorted."""
        files = self._store.files_below(self._directory)
        return sorted(file.name.removeprefix(f"{self._directory}/") for file in files)

    def read_text(self, name: str) -> str | None:
        """Return the content of a file; None if there is none."""
        entry = self._store.look_up(f"{self._directory}/{name}", afresh=True)
        if entry is None:
            return None
        return self._store.read(entry.name, 0, entry.num_bytes).decode()

    @contextmanager
    def new_file(self, name: str) -> Iterator[Path]:
        """Give a path on disk to write to; afterwards it is a file of the output, or nothing is."""
        path = self._scratch / Path(name).name
        try:
            yield path
            self._store.upload(f"{self._directory}/{name}", str(path))
        finally:
            path.unlink(missing_ok=True)

    def manifest(self, names: Sequence[str]) -> Manifest | None:
        """Return the manifest of files; None if one is missing."""
        found = [self._store.look_up(f"{self._directory}/{name}", afresh=True) for name in names]
        entries = [entry for entry in found if entry is not None]
        if len(entries) < len(found):
            return None
        return walk_footers(Listing.of(entries, self._store))
