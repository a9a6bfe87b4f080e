"""Files that keep what was read of a data set, on disk or in a store, and their one format."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import io
import json
import os
import secrets
import stat
import time
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.files.footers.decryption import FileKeys
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet._impl.files.remote.store import store_beside
from torchparquet._impl.files.remote.urls import checked_path, is_remote_url, without_credentials
from torchparquet.errors import naming, one_line, users_level

Kept = TypeVar("Kept")

_DRAFT = ".draft"
# No writer takes so long. Clocks of machines that share files may differ by minutes.
_OLD_SECONDS = 3600.0
# The version of the content and of how it is found; files of others are written anew.
_FORMAT = 5


@dataclass(frozen=True)
class Codec(Generic[Kept]):
    """How a value is kept as bytes, by JSON values and arrays that have names."""

    noun: str  # ends the names of files
    parts: Callable[[Kept], Mapping[str, Any]]
    made: Callable[[dict[str, Any]], Kept | None]  # None for parts of another value

    def encode(self, value: Kept) -> bytes:
        """Return the value as bytes."""
        parts = self.parts(value)
        arrays: dict[str, Any] = {
            name: part for name, part in parts.items() if isinstance(part, np.ndarray)
        }
        texts = {name: part for name, part in parts.items() if name not in arrays}
        head = json.dumps({"format": _FORMAT, **texts}).encode()
        file = io.BytesIO()
        np.savez(file, head=np.frombuffer(head, np.uint8), **arrays)
        return file.getvalue()

    def decode(self, content: bytes) -> Kept | None:
        """Return the value of bytes; None for another value or another version."""
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            parts = dict(stored)
        for array in parts.values():
            array.flags.writeable = False
        texts = json.loads(parts.pop("head").tobytes())
        return self.made(parts | texts) if texts.pop("format") == _FORMAT else None


def through_file(
    path: str | os.PathLike[str],
    codec: Codec[Kept],
    make: Callable[[], Kept],
    *,
    storage: StorageArguments,
    paths: Sequence[str] = (),
) -> Kept:
    """Return the value that a file keeps; if there is none, or it is damaged, make and write it.

    A file that another user made or could have changed is ignored, with a warning.
    """
    text = checked_path(path, "manifest_cache")
    store = store_beside(text, storage, paths) if is_remote_url(text) else None
    found, content, distrust = None, None, ""
    if store is None:
        with contextlib.suppress(FileNotFoundError):
            content, distrust = _read_from_disk(text)
    else:
        entry = store.look_up(store.name_of(text), afresh=True)
        content = None if entry is None else store.read(entry.name, 0, entry.num_bytes)

    def warn(what: str) -> None:
        warnings.warn(f"{what}: {without_credentials(text)!r}", stacklevel=users_level())

    if distrust:
        warn(f"a cache is ignored, {distrust}; name a file of your own")
        return make()
    try:
        found = None if content is None else codec.decode(content)
    except (zipfile.BadZipFile, EOFError, KeyError, TypeError, ValueError) as error:
        warn(f"a file of manifest_cache is damaged ({one_line(error)}), it is written anew")
    if found is None:
        found = make()
        if store is None:
            write_to_disk(Path(text), codec.encode(found))
        else:
            store.write(store.name_of(text), codec.encode(found))
    return found


def _read_from_disk(path: str) -> tuple[bytes, str]:
    """Return the content of a file, or why it is not to be trusted."""
    # O_NONBLOCK: opening a FIFO must not wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b"", "because it is no regular file"
        if status.st_uid not in (os.geteuid(), 0):
            return b"", f"because it belongs to another user, of number {status.st_uid}"
        if status.st_mode & stat.S_IWOTH:
            return b"", "because every user may write to it"
        return file.read(), ""


def write_to_disk(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file at once, so that others read the old or the new one; `mode` is masked."""
    # Remove the drafts of writers that were killed.
    for draft in path.parent.glob(f".{glob.escape(path.name)}.*{_DRAFT}"):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if time.time() - draft.stat().st_mtime > _OLD_SECONDS:
                draft.unlink()
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_DRAFT}")
    with naming(path):
        to = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(to, "wb") as file:
                file.write(content)
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def row_values_by_pass(
    noun: str,
    identity: Sequence[Any],
    make: Callable[[], NDArray[Any]],
    *,
    manifest: Manifest,
    storage: StorageArguments,
    keys: FileKeys | None,
) -> NDArray[Any]:
    """Return a value of each row, `[N]`, as `found_by_pass` does."""

    def made(parts: Mapping[str, Any]) -> NDArray[Any]:
        values: NDArray[Any] = parts["of_row"]
        if len(values) != manifest.num_rows:
            raise ValueError("its parts do not belong together")
        return values

    codec = Codec(noun, lambda values: {"of_row": values}, made)
    return found_by_pass(codec, identity, make, manifest=manifest, storage=storage, keys=keys)


def found_by_pass(
    codec: Codec[Kept],
    identity: Sequence[Any],
    make: Callable[[], Kept],
    *,
    manifest: Manifest,
    storage: StorageArguments,
    keys: FileKeys | None,
) -> Kept:
    """Return what a pass over the files finds, of a file beside the cache or of one rank for all.

    `identity`, as JSON, differs for other results of the same files.
    """
    told = [codec.noun, manifest.fingerprint, *identity]
    key = hashlib.blake2b(json.dumps(told).encode(), digest_size=16).hexdigest()

    def find() -> Kept:
        if storage.manifest_cache is None:
            return make()
        path = f"{os.fspath(storage.manifest_cache)}.{key}.{codec.noun}"
        return through_file(path, codec, make, storage=storage, paths=manifest.files)

    return storage.once(told, find, codec.encode, codec.decode, is_secret=keys is not None)
