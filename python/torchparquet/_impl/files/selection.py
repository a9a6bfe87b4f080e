"""The row groups of a data set: its manifest, as far as the filters leave it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from torchparquet._impl.files.filters import FiltersArgument, filter_row_groups
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_cache import manifest_content, manifest_of, open_manifest
from torchparquet._impl.files.manifest_reading import remote_files
from torchparquet._impl.files.memory_files import memory_files

if TYPE_CHECKING:
    from torchparquet._impl.files.cache_file import CacheArgument
    from torchparquet._impl.files.footers.decryption import FileKeys
    from torchparquet._impl.files.manifest_reading import SourceArgument
    from torchparquet._impl.files.remote.remote_files import RemoteFiles
    from torchparquet._impl.files.remote.storage import StorageArguments


def select_row_groups(
    paths: SourceArgument,
    filters: FiltersArgument,
    cache: CacheArgument,
    storage: StorageArguments,
    keys: FileKeys | None,
    num_threads: int | None,
    *,
    with_chunk_sizes: bool,
    as_table: Callable[[Manifest], Manifest] | None = None,
) -> Manifest:
    """Return the manifest of the row groups that filters leave.

    One rank reads the footers of a store's files for all, unless they are encrypted.
    """
    remote = None if memory_files(paths) else remote_files(paths, storage)

    def read() -> Manifest:
        manifest, footers = open_manifest(
            paths,
            num_threads,
            keys,
            cache,
            storage=storage,
            remote=remote,
            with_chunk_sizes=with_chunk_sizes,
            with_contents=filters is not None,
        )
        if filters is None:
            return manifest
        return filter_row_groups(_seen(manifest, as_table), filters, keys, footers)

    with_table = filters is not None and as_table is not None
    if remote is None or keys is not None or storage.share is None or with_table:
        manifest = read()
        return manifest if filters is not None else _seen(manifest, as_table)
    what = _selected(remote, filters, with_chunk_sizes)
    content = storage.share(what, lambda: manifest_content(read()))
    shared = manifest_of(content, with_chunk_sizes)
    if shared is None:
        raise RuntimeError("the ranks run different versions of torchparquet")
    return _seen(replace(shared, remote=remote), as_table)


def _seen(manifest: Manifest, as_table: Callable[[Manifest], Manifest] | None) -> Manifest:
    return manifest if as_table is None else as_table(manifest)


def _selected(remote: RemoteFiles, filters: FiltersArgument, with_chunk_sizes: bool) -> str:
    files = list(zip(remote.paths, remote.num_bytes, remote.stamps, strict=True))
    return json.dumps(["row groups", files, repr(filters), with_chunk_sizes])
