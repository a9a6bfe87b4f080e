"""A manifest in a file, so that a data set opens without reading footers again."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
import zipfile
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from torchparquet.errors import one_line
from torchparquet.files.discovery import FoundFile, find_files
from torchparquet.files.leaf import Leaf
from torchparquet.files.manifest import Manifest, walk_footers
from torchparquet.files.memory_files import memory_files

if TYPE_CHECKING:
    from torchparquet.files.decryption import FileKeys
    from torchparquet.files.manifest import PathsArgument, SourceArgument
    from torchparquet.native import Footers

CacheArgument: TypeAlias = "str | os.PathLike[str] | None"

# The version of the file's content and of how footers are read; others are written anew.
_FORMAT = 1
_TEXTS = ("files", "root", "schemas", "fingerprint")
_CHUNK_SIZES = "chunk_num_bytes"  # stands there only if it was asked for
_OTHERS = (*_TEXTS, "memory", _CHUNK_SIZES)
_ARRAYS = tuple(field.name for field in fields(Manifest) if field.name not in _OTHERS)


def open_manifest(
    paths: SourceArgument,
    num_threads: int | None = None,
    keys: FileKeys | None = None,
    cache: CacheArgument = None,
    *,
    with_chunk_sizes: bool = False,
    with_contents: bool = False,
) -> tuple[Manifest, Footers | None]:
    """Return the manifest of a data set, from its cache if the files have not changed since.

    The call finds the files and gets their sizes, times of change and inodes. If these and the
    paths are those in the cache, no file is opened. Otherwise all footers are read and the cache
    is replaced atomically, so several processes may use the same one. A cache without sizes of
    column chunks is also replaced if they are asked for.

    Args:
        paths: As `read_manifest` takes them.
        num_threads: Threads that read footers.
        keys: Keys of encrypted files; None if no file is encrypted.
        cache: The file that stores the manifest; None for none.
        with_chunk_sizes: As that of `walk_footers`.
        with_contents: As that of `walk_footers`.

    Returns:
        The manifest, and the footers if they were read.

    Raises:
        ValueError: `cache` is given for files in memory, or with keys: the cache would hold the
            content of encrypted footers in plain text.
        OSError: The cache cannot be written.
    """
    if cache is None:
        return walk_footers(
            paths,
            num_threads,
            keys,
            with_chunk_sizes=with_chunk_sizes,
            with_contents=with_contents,
        )
    if keys is not None:
        raise ValueError(
            "manifest_cache must not be given with decryption_properties, because it would hold "
            f"the content of encrypted footers in plain text; got {os.fspath(cache)!r}"
        )
    if memory_files(paths):
        raise ValueError(f"manifest_cache needs files on disk; got {os.fspath(cache)!r}")
    path = Path(cache)
    found = find_files(cast("PathsArgument", paths))
    cached = _load(path, with_chunk_sizes)
    if cached is not None and _fits(cached, found):
        return cached, None
    manifest, footers = walk_footers(
        paths, num_threads, with_chunk_sizes=with_chunk_sizes, with_contents=with_contents
    )
    _save(manifest, path)
    return manifest, footers


def _fits(manifest: Manifest, found: list[FoundFile]) -> bool:
    """True if all files are unchanged."""
    if manifest.files != tuple(file.path for file in found):
        return False
    statuses = [file.status for file in found]
    now = [(one.st_size, one.st_mtime_ns, one.st_ino) for one in statuses]
    then = (manifest.file_num_bytes, manifest.file_mtime_ns, manifest.file_inode)
    return now == list(zip(*(array.tolist() for array in then), strict=True))


def _save(manifest: Manifest, path: Path) -> None:
    texts = {
        "format": _FORMAT,
        "files": manifest.files,
        "root": manifest.root,
        "schemas": [[asdict(leaf) for leaf in schema] for schema in manifest.schemas],
        "fingerprint": manifest.fingerprint,
    }
    content = np.frombuffer(json.dumps(texts).encode(), dtype=np.uint8)
    arrays = {name: getattr(manifest, name) for name in _ARRAYS}
    if manifest.chunk_num_bytes is not None:
        arrays[_CHUNK_SIZES] = manifest.chunk_num_bytes
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as to:
        try:
            np.savez(to, texts=content, **arrays)
            to.close()
            Path(to.name).replace(path)
        except BaseException:
            Path(to.name).unlink(missing_ok=True)
            raise


def _load(path: Path, with_chunk_sizes: bool) -> Manifest | None:
    """Return the cached manifest; None unless it has this format and all parts asked for."""
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as stored:
            texts = json.loads(stored["texts"].tobytes())
            if texts["format"] != _FORMAT:
                return None
            if with_chunk_sizes and _CHUNK_SIZES not in stored.files:
                return None
            names = (*_ARRAYS, _CHUNK_SIZES) if with_chunk_sizes else _ARRAYS
            return _manifest(texts, {name: stored[name] for name in names})
    except (zipfile.BadZipFile, EOFError, KeyError, TypeError, ValueError) as error:
        warnings.warn(
            f"manifest_cache is damaged ({one_line(error)}), it is written anew: {str(path)!r}",
            stacklevel=4,
        )
        return None


def _manifest(texts: dict[str, Any], arrays: dict[str, Any]) -> Manifest:
    for array in arrays.values():
        array.flags.writeable = False
    manifest = Manifest(
        files=tuple(texts["files"]),
        root=texts["root"],
        schemas=tuple(
            tuple(Leaf(**(leaf | {"dtypes": tuple(leaf["dtypes"])})) for leaf in schema)
            for schema in texts["schemas"]
        ),
        fingerprint=texts["fingerprint"],
        **arrays,
    )
    chunk_sizes = manifest.chunk_num_bytes
    num_chunks = None if chunk_sizes is None else manifest.row_group_num_chunks.sum()
    if manifest.digest() != manifest.fingerprint or (
        chunk_sizes is not None and len(chunk_sizes) != num_chunks
    ):
        raise ValueError("its parts do not belong to one manifest")
    return manifest
