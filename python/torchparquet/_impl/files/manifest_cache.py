"""A manifest in a file, so that a data set opens without reading footers again."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from torchparquet._impl.files.cache_file import CacheArgument, CacheFile, Codec, packed, unpacked
from torchparquet._impl.files.discovery import SourceArgument, Sources, find_sources
from torchparquet._impl.files.footers.leaf import Leaf
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_reading import walk_footers
from torchparquet._impl.files.remote.storage import NO_STORAGE, StorageArguments

if TYPE_CHECKING:
    from torchparquet._impl.files.footers.decryption import FileKeys
    from torchparquet._impl.native import Footers

_TEXTS = ("files", "root", "schemas", "fingerprint", "file_stamp")
_CHUNK_SIZES = "chunk_num_bytes"  # stands there only if it was asked for
_OTHERS = (*_TEXTS, "memory", "remote", "selection", "table", "packed", _CHUNK_SIZES)
_ARRAYS = tuple(field.name for field in fields(Manifest) if field.name not in _OTHERS)
# Of a leaf; JSON has lists.
_TUPLES = ("dtypes", "list_lengths")


def open_manifest(
    paths: SourceArgument,
    num_threads: int | None = None,
    keys: FileKeys | None = None,
    cache: CacheArgument = None,
    *,
    storage: StorageArguments = NO_STORAGE,
    with_chunk_sizes: bool = False,
    with_contents: bool = False,
) -> tuple[Manifest, Footers | None]:
    """Return the manifest of a data set, from its cache if the files have not changed since.

    If the paths, sizes and stamps of the listing are those in the cache, no file is opened.
    Otherwise all footers are read and the cache is replaced atomically, so several processes may
    use the same one. A cache without sizes of column chunks is also replaced if they are asked for.
    One rank reads a store's footers for all, unless they are encrypted. The content of footers
    comes only with a manifest that this process read of them.
    """
    sources = find_sources(paths, storage)
    found: list[Footers] = []

    def read() -> Manifest:
        manifest, footers = walk_footers(
            sources,
            num_threads,
            keys,
            with_chunk_sizes=with_chunk_sizes,
            with_contents=with_contents,
        )
        found.append(footers)
        return manifest

    def read_or_load() -> Manifest:
        if cache is None:
            return read()
        file = CacheFile(cache, storage, sources.paths)
        if keys is not None:
            raise ValueError(
                "manifest_cache must not be given with decryption_properties, because it would "
                f"hold the content of encrypted footers in plain text; got {file.shown!r}"
            )
        if sources.memory:
            raise ValueError(f"manifest_cache needs files on disk; got {file.shown!r}")
        return file.through(_codec(sources, with_chunk_sizes=with_chunk_sizes), read)

    codec = _codec(None, with_chunk_sizes=with_chunk_sizes)
    manifest = storage.once(
        ["footers", sources.paths, sources.num_bytes, sources.stamps, with_chunk_sizes],
        read_or_load,
        codec.encode,
        codec.decode,
        is_secret=sources.remote is None or keys is not None,
    )
    footers = found[0] if found and with_contents else None
    return replace(manifest, remote=sources.remote), footers


def _codec(sources: Sources | None, *, with_chunk_sizes: bool) -> Codec[Manifest]:
    """Return how the manifest of unchanged sources is kept, without what reaches its files."""

    def decode(content: bytes) -> Manifest | None:
        stored = unpacked(content)
        if stored is None or (with_chunk_sizes and _CHUNK_SIZES not in stored[1]):
            return None
        if not with_chunk_sizes:
            stored[1].pop(_CHUNK_SIZES, None)
        manifest = _manifest(*stored)
        return manifest if sources is None or _fits(manifest, sources) else None

    return Codec("manifest", _content, decode)


def _fits(manifest: Manifest, sources: Sources) -> bool:
    """Return True if all files are unchanged, as far as a store tells."""
    return (
        manifest.files == sources.paths
        and manifest.stamps == sources.stamps
        and tuple(manifest.file_num_bytes.tolist()) == sources.num_bytes
        and all(sources.stamps)
    )


def _content(manifest: Manifest) -> bytes:
    texts = {name: getattr(manifest, name) for name in _TEXTS}
    texts["schemas"] = [[asdict(leaf) for leaf in schema] for schema in manifest.schemas]
    arrays = {name: getattr(manifest, name) for name in _ARRAYS}
    if manifest.chunk_num_bytes is not None:
        arrays[_CHUNK_SIZES] = manifest.chunk_num_bytes
    return packed(texts, arrays)


def _manifest(texts: dict[str, Any], arrays: dict[str, Any]) -> Manifest:
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
    has_other_sizes = (
        chunk_sizes is not None and len(chunk_sizes) != manifest.row_group_num_chunks.sum()
    )
    if manifest.digest() != manifest.fingerprint or has_other_sizes:
        raise ValueError("its parts do not belong to one manifest")
    return manifest
