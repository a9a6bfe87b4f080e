"""The row groups of a data set: its manifest, as far as the filters leave it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from torchparquet._impl.files.discovery import SourceArgument, find_sources
from torchparquet._impl.files.filters import FiltersArgument, filter_row_groups
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_cache import manifest_codec, open_manifest

if TYPE_CHECKING:
    from torchparquet._impl.files.cache_file import CacheArgument
    from torchparquet._impl.files.footers.decryption import FileKeys
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
    sources = find_sources(paths, storage)

    def read() -> Manifest:
        manifest, footers = open_manifest(
            sources,
            num_threads,
            keys,
            cache,
            storage=storage,
            with_chunk_sizes=with_chunk_sizes,
            with_contents=filters is not None,
        )
        if filters is None:
            return manifest
        return filter_row_groups(_seen(manifest, as_table), filters, keys, footers)

    files = list(zip(sources.paths, sources.num_bytes, sources.stamps, strict=False))
    codec = manifest_codec(with_chunk_sizes=with_chunk_sizes)
    manifest = storage.once(
        ["row groups", files, repr(filters), with_chunk_sizes],
        read,
        codec.encode,
        codec.decode,
        is_secret=sources.remote is None
        or keys is not None
        or (filters is not None and as_table is not None),
    )
    manifest = replace(manifest, remote=sources.remote)
    return manifest if filters is not None else _seen(manifest, as_table)


def _seen(manifest: Manifest, as_table: Callable[[Manifest], Manifest] | None) -> Manifest:
    return manifest if as_table is None else as_table(manifest)
