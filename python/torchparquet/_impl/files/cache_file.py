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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.files.footers.decryption import FileKeys
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.remote.credentials import Share
from torchparquet._impl.files.remote.storage import StorageArguments, decoded
from torchparquet._impl.files.remote.store import store_beside
from torchparquet._impl.files.remote.urls import checked_path, is_remote_url, without_credentials
from torchparquet.errors import naming, one_line, users_level

Kept = TypeVar("Kept")

_DRAFT = ".draft"
# No writer takes so long. Clocks of machines that share files may differ by minutes.
_OLD_SECONDS = 3600.0
# Ranks divide so many files among them, and do not divide a file.
_MANY_FILES = 256
# The version of the content and of how it is found; files of others are written anew.
_FORMAT = 6
# The answer of the rank that looked, about a file that is not to be trusted.
_DISTRUSTED = b"-"


@dataclass(frozen=True)
class Codec(Generic[Kept]):
    """How a value is kept as bytes, by JSON values and arrays that have names."""

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


@dataclass
class KeptFile(Generic[Kept]):
    """A file that keeps one value. One that another user could have written is ignored."""

    path: str | os.PathLike[str]
    codec: Codec[Kept]
    storage: StorageArguments
    paths: Sequence[str] = ()  # of the data set

    def __post_init__(self) -> None:
        """Check the path, and find the store that has it."""
        self._text = checked_path(self.path, "manifest_cache")
        is_remote = is_remote_url(self._text)
        self._store = store_beside(self._text, self.storage, self.paths) if is_remote else None
        self.is_trusted = True

    def find(self) -> Kept | None:
        """Return the value; None, with a warning, if the file is damaged or not to be trusted."""
        content, distrust, store = None, "", self._store
        if store is None:
            with contextlib.suppress(FileNotFoundError):
                content, distrust = _read_from_disk(self._text)
        else:
            entry = store.look_up(store.name_of(self._text), afresh=True)
            content = None if entry is None else store.read(entry.name, 0, entry.num_bytes)
        self.is_trusted = not distrust
        if distrust:
            self._warn(f"a cache is ignored, {distrust}; name a file of your own")
        if content is None or distrust:
            return None
        try:
            return self.codec.decode(content)
        except (zipfile.BadZipFile, EOFError, KeyError, TypeError, ValueError) as error:
            shown = one_line(error)
            self._warn(f"a file of manifest_cache is damaged ({shown}), it is written anew")
            return None

    def keep(self, value: Kept) -> None:
        """Write the value, unless `find` has met a file that is not to be trusted."""
        if not self.is_trusted:
            return
        content, store = self.codec.encode(value), self._store
        if store is None:
            write_to_disk(Path(self._text), content)
        else:
            store.write(store.name_of(self._text), content)

    def _warn(self, what: str) -> None:
        warnings.warn(f"{what}: {without_credentials(self._text)!r}", stacklevel=users_level())


@dataclass(frozen=True)
class Pass(Generic[Kept]):
    """The result of one reading of all files or row groups, of which ranks may read parts.

    `told`, as JSON, differs for other results of the same files. `codec` keeps what `make` returns
    for some consecutive ones, and `joined` makes one value of those of consecutive parts.
    """

    told: Sequence[Any]
    codec: Callable[[slice], Codec[Kept]]
    make: Callable[[slice], Kept]
    joined: Callable[[Sequence[Kept]], Kept]
    # Called if ranks make parts.
    before: Callable[[], None] = lambda: None
    # True if this rank has begun with what `make` finds; None if none has.
    is_begun: Callable[[slice], bool] | None = None

    def found(self, ends: Sequence[int], file: KeptFile[Kept] | None, share: Share | None) -> Kept:
        """Return the value: that of the file, or what ranks make of parts between some ends.

        One rank reads and writes the file for all.
        """
        whole = slice(0, ends[-1])
        if share is None:
            found = None if file is None else file.find()
            if found is None:
                found = self.make(whole)
                if file is not None:
                    file.keep(found)
            return found
        if file is not None:
            told = json.dumps([*self.told, "kept"])
            (content,) = share(told, 1, lambda *_: _looked_up(file))
            if content not in (b"", _DISTRUSTED):
                return decoded(content, file.codec.decode)
            # Another rank than the one that looked may write it.
            file.is_trusted = content != _DISTRUSTED

        def part_of(part: int, num_parts: int) -> slice:
            begin, end = (len(ends) * at // num_parts for at in (part, part + 1))
            return slice(ends[begin - 1] if begin else 0, ends[end - 1])

        def made(*part: int) -> bytes:
            of = part_of(*part)
            return self.codec(of).encode(self.make(of))

        begun = self.is_begun
        is_begun = None if begun is None else lambda *part: begun(part_of(*part))
        self.before()
        contents = share(json.dumps(self.told), len(ends), made, is_begun)
        parts = [
            # They may be large, and are in memory twice for no longer than they must.
            decoded(contents.pop(0), self.codec(part_of(part, num_parts)).decode)
            for num_parts in [len(contents)]
            for part in range(num_parts)
        ]
        found = parts[0] if len(parts) == 1 else self.joined(parts)
        if file is not None:

            def keep(*_: int) -> bytes:
                file.keep(found)
                return b""

            share(json.dumps([*self.told, "keep"]), 1, keep)
        return found


def _looked_up(file: KeptFile[Kept]) -> bytes:
    value = file.find()
    if value is None:
        return b"" if file.is_trusted else _DISTRUSTED
    return file.codec.encode(value)


def _read_from_disk(path: str) -> tuple[bytes, str]:
    """Return the content of a file, or why it is not to be trusted."""
    # O_NONBLOCK: opening a FIFO must not wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b"", "because it is no regular file"
        distrust = distrust_of(status)
        return (b"", distrust) if distrust else (file.read(), "")


def distrust_of(status: os.stat_result) -> str:
    """Return why a file or folder could be another user's work; "" if it could not."""
    if status.st_uid not in (os.geteuid(), 0):
        return f"because it belongs to another user, of number {status.st_uid}"
    return "because every user may write to it" if status.st_mode & stat.S_IWOTH else ""


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


def found_by_pass(
    of: Pass[Kept],
    noun: str,
    *,
    manifest: Manifest,
    storage: StorageArguments,
    keys: FileKeys | None,
) -> Kept:
    """Return what a pass over row groups finds, of a file beside the cache, or a part a rank."""
    told = [noun, manifest.fingerprint, *of.told]
    key = hashlib.blake2b(json.dumps(told).encode(), digest_size=16).hexdigest()
    file = None
    if storage.manifest_cache is not None:
        path = f"{os.fspath(storage.manifest_cache)}.{key}.{noun}"
        file = KeptFile(path, of.codec(slice(0, manifest.num_row_groups)), storage, manifest.files)
    share = None if keys is not None else storage.share
    ends = _ends_of_parts(manifest)
    if of.is_begun is not None:
        # The same files as in the work that has begun them.
        last = np.searchsorted(manifest.row_group_file, range(len(manifest.files)), side="right")
        ends = last.tolist()
    return replace(of, told=told).found(ends, file, share)


def _ends_of_parts(manifest: Manifest) -> list[int]:
    """Return after which row groups parts may end: at files if there are many, else anywhere."""
    has_rows = np.flatnonzero(manifest.row_group_num_rows)
    file = manifest.row_group_file[has_rows]
    last = np.flatnonzero(np.diff(file, append=-1)) if file[-1] - file[0] >= _MANY_FILES else ...
    ends: list[int] = (has_rows[last] + 1).tolist()
    return [*ends[:-1], manifest.num_row_groups]


def row_values_by_pass(
    noun: str,
    told: Sequence[Any],
    make: Callable[[slice], NDArray[Any]],
    *,
    manifest: Manifest,
    storage: StorageArguments,
    keys: FileKeys | None,
) -> NDArray[Any]:
    """Return a value of each row, `[N]`, as `found_by_pass` does."""

    def codec(row_groups: slice) -> Codec[NDArray[Any]]:
        def made(parts: Mapping[str, Any]) -> NDArray[Any]:
            values: NDArray[Any] = parts["of_row"]
            if len(values) != manifest.row_group_num_rows[row_groups].sum():
                raise ValueError("its parts do not belong together")
            return values

        return Codec(lambda values: {"of_row": values}, made)

    values = Pass(told, codec, make, np.concatenate)
    return found_by_pass(values, noun, manifest=manifest, storage=storage, keys=keys)
