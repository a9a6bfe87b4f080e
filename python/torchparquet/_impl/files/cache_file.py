"""Files that keep what was read of a data set, on disk or in a store, and their one format."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import io
import json
import os
import stat
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import numpy as np

from torchparquet._impl.files.remote.storage import StorageArguments, storage_beside
from torchparquet._impl.files.remote.urls import checked_path, is_remote_url, without_credentials
from torchparquet.errors import naming, one_line, users_level

if TYPE_CHECKING:
    from torchparquet._impl.files.footers.decryption import FileKeys
    from torchparquet._impl.files.manifest import Manifest

CacheArgument: TypeAlias = "str | os.PathLike[str] | None"

Kept = TypeVar("Kept")

_DRAFT = ".draft"
# No writer takes so long. Clocks of machines that share files may differ by minutes.
_OLD_SECONDS = 3600.0


# The version of the content and of how it is found; files of others are written anew.
_FORMAT = 4


@dataclass(frozen=True)
class Codec(Generic[Kept]):
    """How a value is kept as bytes.

    Attributes:
        noun: Of the value; it ends the names of files.
        decode: Returns None for bytes that are sound and of another value or format.
    """

    noun: str
    encode: Callable[[Kept], bytes]
    decode: Callable[[bytes], Kept | None]


def packed(texts: Mapping[str, Any], arrays: Mapping[str, Any]) -> bytes:
    """Return JSON values and arrays as bytes."""
    file = io.BytesIO()
    head = np.frombuffer(json.dumps({"format": _FORMAT, **texts}).encode(), np.uint8)
    np.savez(file, head=head, **arrays)
    return file.getvalue()


def unpacked(content: bytes) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the values and arrays that `packed` made these bytes of; None of another version."""
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        arrays = dict(stored)
    texts = json.loads(arrays.pop("head").tobytes())
    for array in arrays.values():
        array.flags.writeable = False
    return (texts, arrays) if texts["format"] == _FORMAT else None


class CacheFile:
    """A file that is read and replaced as a whole."""

    def __init__(
        self, path: str | os.PathLike[str], storage: StorageArguments, paths: Sequence[str] = ()
    ) -> None:
        """Open nothing yet."""
        self._path = checked_path(path, "manifest_cache")
        self._store = (
            storage_beside(self._path, storage, paths) if is_remote_url(self._path) else None
        )
        self.shown = without_credentials(self._path)
        self._is_ignored = False

    def through(self, codec: Codec[Kept], make: Callable[[], Kept]) -> Kept:
        """Return the value; if there is none, or it is damaged, make it and write it."""
        content = self.read()
        if content is not None:
            try:
                found = codec.decode(content)
            except (zipfile.BadZipFile, EOFError, KeyError, TypeError, ValueError) as error:
                warnings.warn(
                    f"a file of manifest_cache is damaged ({one_line(error)}), it is written anew: "
                    f"{self.shown!r}",
                    stacklevel=users_level(),
                )
            else:
                if found is not None:
                    return found
        made = make()
        self.write(codec.encode(made))
        return made

    def read(self) -> bytes | None:
        """Return the content; None if there is no such file.

        A file that another user made or could have changed is ignored, with a warning.
        """
        if self._store is None:
            return self._read_from_disk()
        access = self._store.access()
        name = access.name_of(self._path)
        entry = access.look_up(name, afresh=True)
        return None if entry is None else access.read(name, 0, entry.num_bytes)

    def _read_from_disk(self) -> bytes | None:
        try:
            # O_NONBLOCK: opening a FIFO must not wait.
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            why = _distrust(os.fstat(descriptor))
            if why:
                self._is_ignored = True
                warnings.warn(
                    f"a cache is ignored, {why}; name a file of your own: {self.shown!r}",
                    stacklevel=users_level(),
                )
                return None
            return file.read()

    def write(self, content: bytes) -> None:
        """Replace the file at once, so that others read the old or the new one.

        A file that was ignored stays as it is.
        """
        if self._is_ignored:
            return
        if self._store is not None:
            access = self._store.access()
            access.write(access.name_of(self._path), content)
            return
        path = Path(self._path)
        _remove_old_drafts(path)
        with (
            naming(path),
            tempfile.NamedTemporaryFile(
                dir=path.parent, prefix=f".{path.name}.", suffix=_DRAFT, delete=False
            ) as to,
        ):
            try:
                to.write(content)
                to.close()
                Path(to.name).replace(path)
            except BaseException:
                Path(to.name).unlink(missing_ok=True)
                raise


def found_by_pass(
    codec: Codec[Kept],
    identity: Sequence[Any],
    make: Callable[[], Kept],
    *,
    cache: CacheArgument,
    manifest: Manifest,
    keys: FileKeys | None,
    storage: StorageArguments,
) -> Kept:
    """Return what a pass over the files finds, of a file beside the cache or of one rank for all.

    Args:
        identity: JSON values that differ for other results of the same files.
    """
    told = [codec.noun, manifest.fingerprint, *identity]
    key = hashlib.blake2b(json.dumps(told).encode(), digest_size=16).hexdigest()

    def find() -> Kept:
        if cache is None:
            return make()
        paths = manifest.files if manifest.remote is not None else ()
        file = CacheFile(f"{os.fspath(cache)}.{key}.{codec.noun}", storage, paths)
        return file.through(codec, make)

    return storage.once(told, find, codec.encode, codec.decode, is_secret=keys is not None)


def _distrust(status: os.stat_result) -> str:
    """Return why the content of a file is not to be trusted; "" if it is."""
    if not stat.S_ISREG(status.st_mode):
        return "because it is no regular file"
    if status.st_uid not in (os.geteuid(), 0):
        return f"because it belongs to another user, of number {status.st_uid}"
    if status.st_mode & stat.S_IWOTH:
        return "because every user may write to it"
    return ""


def _remove_old_drafts(path: Path) -> None:
    """Remove what writers of the file have left that were killed while they wrote."""
    for draft in path.parent.glob(f".{glob.escape(path.name)}.*{_DRAFT}"):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if time.time() - draft.stat().st_mtime > _OLD_SECONDS:
                draft.unlink()
