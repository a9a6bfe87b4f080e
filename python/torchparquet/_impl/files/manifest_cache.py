"""A manifest in a file, so that a data set opens without reading footers again."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from torchparquet._impl.files.cache_file import CacheArgument, CacheFile
from torchparquet._impl.files.discovery import FoundFile, find_files
from torchparquet._impl.files.footers.leaf import Leaf
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_reading import remote_files, walk_footers
from torchparquet._impl.files.memory_files import memory_files
from torchparquet._impl.files.remote.path_rules import path_texts
from torchparquet._impl.files.remote.storage import NO_STORAGE, StorageArguments
from torchparquet.errors import one_line, users_level

if TYPE_CHECKING:
    from torchparquet._impl.files.footers.decryption import FileKeys
    from torchparquet._impl.files.manifest_reading import PathsArgument, SourceArgument
    from torchparquet._impl.files.remote.remote_files import RemoteFiles
    from torchparquet._impl.native import Footers

# The version of the file's content and of how footers are read; others are written anew.
_FORMAT = 3
_TEXTS = ("files", "root", "schemas", "fingerprint", "file_stamp")
_CHUNK_SIZES = "chunk_num_bytes"  # stands there only if it was asked for
_OTHERS = (*_TEXTS, "memory", "remote", "selection", "table", "packed", _CHUNK_SIZES)
_ARRAYS = tuple(field.name for field in fields(Manifest) if field.name not in _OTHERS)


def open_manifest(
    paths: SourceArgument,
    num_threads: int | None = None,
    keys: FileKeys | None = None,
    cache: CacheArgument = None,
    *,
    storage: StorageArguments = NO_STORAGE,
    remote: RemoteFiles | None = None,
    with_chunk_sizes: bool = False,
    with_contents: bool = False,
) -> tuple[Manifest, Footers | None]:
    """Return the manifest of a data set, from its cache if the files have not changed since.

    The call finds the files and gets their sizes, times of change and inodes, or in a store their
    ETags. If these and the paths are those in the cache, no file is opened. Otherwise all footers
    are read and the cache is replaced atomically, so several processes may use the same one. A
    cache without sizes of column chunks is also replaced if they are asked for.

    Raises:
        ValueError: `cache` is given for files in memory, or with keys: the cache would hold the
            content of encrypted footers in plain text.
    """
    if cache is None:
        return walk_footers(
            paths,
            num_threads,
            keys,
            storage=storage,
            remote=remote,
            with_chunk_sizes=with_chunk_sizes,
            with_contents=with_contents,
        )
    memory = memory_files(paths)
    cache_file = CacheFile(cache, storage, () if memory else path_texts(paths))
    if keys is not None:
        raise ValueError(
            "manifest_cache must not be given with decryption_properties, because it would hold "
            f"the content of encrypted footers in plain text; got {cache_file.shown!r}"
        )
    if memory:
        raise ValueError(f"manifest_cache needs files on disk; got {cache_file.shown!r}")
    if remote is None:
        remote = remote_files(paths, storage)
    found = [] if remote is not None else find_files(cast("PathsArgument", paths))
    cached = _load(cache_file, with_chunk_sizes)
    if cached is not None and remote is not None and _fits_listing(cached, remote):
        return replace(cached, remote=remote), None
    if cached is not None and remote is None and _fits(cached, found):
        return cached, None
    manifest, footers = walk_footers(
        paths,
        num_threads,
        storage=storage,
        remote=remote,
        with_chunk_sizes=with_chunk_sizes,
        with_contents=with_contents,
    )
    cache_file.write(manifest_content(manifest))
    return manifest, footers


def shared_manifest(
    paths: SourceArgument,
    num_threads: int | None,
    keys: FileKeys | None,
    cache: CacheArgument,
    *,
    storage: StorageArguments,
    with_chunk_sizes: bool,
    with_contents: bool,
) -> tuple[Manifest, Footers | None]:
    """Return what `open_manifest` does; one rank reads a store's footers for all.

    Encrypted ones are read by each. The content of footers comes only with a manifest that this
    process read of them.
    """
    remote = None if memory_files(paths) else remote_files(paths, storage)
    found: list[Footers | None] = [None]

    def read() -> Manifest:
        manifest, found[0] = open_manifest(
            paths,
            num_threads,
            keys,
            cache,
            storage=storage,
            remote=remote,
            with_chunk_sizes=with_chunk_sizes,
            with_contents=with_contents,
        )
        return manifest

    if remote is None or keys is not None or storage.share is None:
        return read(), found[0] if with_contents else None
    files = list(zip(remote.paths, remote.num_bytes, remote.stamps, strict=True))
    what = json.dumps(["row groups", files, with_chunk_sizes])
    content = storage.share(what, lambda: manifest_content(read()))
    shared = manifest_of(content, with_chunk_sizes)
    if shared is None:
        raise RuntimeError("the ranks run different versions of torchparquet")
    return replace(shared, remote=remote), found[0] if with_contents else None


def _fits(manifest: Manifest, found: list[FoundFile]) -> bool:
    """True if all files are unchanged."""
    if manifest.files != tuple(file.path for file in found):
        return False
    statuses = [file.status for file in found]
    now = [(one.st_size, one.st_mtime_ns, one.st_ino) for one in statuses]
    then = (manifest.file_num_bytes, manifest.file_mtime_ns, manifest.file_inode)
    return now == list(zip(*(array.tolist() for array in then), strict=True))


def _fits_listing(manifest: Manifest, remote: RemoteFiles) -> bool:
    """True if all files of a store are unchanged, as far as the store tells."""
    return (
        manifest.files == remote.paths
        and manifest.file_stamp == remote.stamps
        and manifest.file_num_bytes.tolist() == list(remote.num_bytes)
        and all(remote.stamps)
    )


def manifest_content(manifest: Manifest) -> bytes:
    """Return a manifest as bytes, without what reaches its files."""
    texts = {
        "format": _FORMAT,
        "files": manifest.files,
        "root": manifest.root,
        "schemas": [[asdict(leaf) for leaf in schema] for schema in manifest.schemas],
        "fingerprint": manifest.fingerprint,
        "file_stamp": manifest.file_stamp,
    }
    content = np.frombuffer(json.dumps(texts).encode(), dtype=np.uint8)
    arrays = {name: getattr(manifest, name) for name in _ARRAYS}
    if manifest.chunk_num_bytes is not None:
        arrays[_CHUNK_SIZES] = manifest.chunk_num_bytes
    file = io.BytesIO()
    np.savez(file, texts=content, **arrays)
    return file.getvalue()


def _load(file: CacheFile, with_chunk_sizes: bool) -> Manifest | None:
    """Return the cached manifest; None unless it has this format and all parts asked for."""
    content = file.read()
    if content is None:
        return None
    try:
        return manifest_of(content, with_chunk_sizes)
    except (zipfile.BadZipFile, EOFError, KeyError, TypeError, ValueError) as error:
        warnings.warn(
            f"manifest_cache is damaged ({one_line(error)}), it is written anew: {file.shown!r}",
            stacklevel=users_level(),
        )
        return None


def manifest_of(content: bytes, with_chunk_sizes: bool) -> Manifest | None:
    """Return the manifest that `manifest_content` made these bytes of."""
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        texts = json.loads(stored["texts"].tobytes())
        if texts["format"] != _FORMAT:
            return None
        if with_chunk_sizes and _CHUNK_SIZES not in stored.files:
            return None
        names = (*_ARRAYS, _CHUNK_SIZES) if with_chunk_sizes else _ARRAYS
        return _manifest(texts, {name: stored[name] for name in names})


# Of a leaf; JSON has lists.
_TUPLES = ("dtypes", "list_lengths")


def _manifest(texts: dict[str, Any], arrays: dict[str, Any]) -> Manifest:
    for array in arrays.values():
        array.flags.writeable = False
    manifest = Manifest(
        files=tuple(texts["files"]),
        root=texts["root"],
        schemas=tuple(
            tuple(Leaf(**(leaf | {name: tuple(leaf[name]) for name in _TUPLES})) for leaf in schema)
            for schema in texts["schemas"]
        ),
        fingerprint=texts["fingerprint"],
        file_stamp=tuple(texts["file_stamp"]),
        **arrays,
    )
    chunk_sizes = manifest.chunk_num_bytes
    num_chunks = None if chunk_sizes is None else manifest.row_group_num_chunks.sum()
    if manifest.digest() != manifest.fingerprint or (
        chunk_sizes is not None and len(chunk_sizes) != num_chunks
    ):
        raise ValueError("its parts do not belong to one manifest")
    return manifest
