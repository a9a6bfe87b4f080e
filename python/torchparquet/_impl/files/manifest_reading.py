"""Makes manifests: reads the footers of files by the native module, or a file that keeps them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.files.cache_file import Codec, KeptFile, Pass
from torchparquet._impl.files.discovery import SourceArgument, find_files
from torchparquet._impl.files.footers.leaf import Leaf
from torchparquet._impl.files.listing import Listing, MemoryFile
from torchparquet._impl.files.manifest import Manifest, frozen
from torchparquet._impl.files.remote.storage import NO_STORAGE, StorageArguments
from torchparquet._impl.files.remote.urls import checked_path, without_credentials
from torchparquet._impl.files.store_reading import StoreReading
from torchparquet._impl.processors import num_processors
from torchparquet.errors import CorruptFileError

if TYPE_CHECKING:
    import pyarrow as pa

    from torchparquet._impl.files.footers.decryption import FileKeys
    from torchparquet._impl.native import Decryption, Footers, LeafColumn, RemoteStore

_MAX_DEFAULT_THREADS = 16
# Whose footers come before anything is begun with them: a few for each connection.
_FILES_AT_ONCE = 256
_TUPLES = ("dtypes", "list_lengths")
_SAME_IN_LEAVES = [
    field.name for field in fields(Leaf) if field.name not in (*_TUPLES, "row_bytes", "standing")
]
_OF_DISK = ("file_mtime_ns", "file_inode")
_SAME_IN_FOOTERS = (
    *_OF_DISK,
    *("file_num_bytes", "file_digest", "file_has_hidden_columns", "file_num_rows", "file_schema"),
    *("row_group_num_rows", "row_group_num_bytes"),
)
_SIZES_OF_CHUNKS = "chunk_num_bytes"
_NOT_KEPT = ("listing", "schemas", "selection", "table", "packed", "origin", "excluded")
_KEPT = [field.name for field in fields(Manifest) if field.name not in _NOT_KEPT]


class HeldFooters:
    """The content of the footers that this process has read, by the numbers of files.

    Of files on disk, whose footers it does not read, it has all or none.
    """

    def __init__(self, listing: Listing, num_threads: int | None) -> None:
        """Hold none yet."""
        self._listing, self._num_threads = listing, num_threads
        self._parts: list[tuple[Sequence[int], Footers]] = []
        # A store's connections stay open from one part to the next.
        self.readings: list[RemoteStore] = []

    @property
    def held(self) -> list[int]:
        """The numbers of files whose footers were read."""
        return [file for files, _ in self._parts for file in files]

    def add(self, files: Sequence[int], footers: Footers) -> None:
        """Hold the footers of files, which are in order."""
        self._parts.append((files, footers))

    def read(self, files: Sequence[int]) -> None:
        """Read those footers at once that are not held; `files` are in order."""
        missing = [file for file in files if self._found(file) is None]
        if missing:
            some = self._listing.pick(missing)
            read = footers_of(some, self._num_threads, held=self.readings, with_contents=True)
            self.add(missing, read)

    def content(self, file: int) -> bytes:
        """Return the footer of a file, which is read now unless it is held."""
        if self._found(file) is None:
            self.read([file])
        found = self._found(file)
        assert found is not None  # noqa: S101
        footers, at = found
        return footers.content(at)

    def _found(self, file: int) -> tuple[Footers, int] | None:
        for files, footers in self._parts:
            at = bisect_left(files, file)
            if at < len(files) and files[at] == file:
                return footers, at
        return None


class EarlyWork(Protocol):
    """Work on files that begins as soon as their footers are there."""

    told: str  # differs for other work

    def divide(self) -> None:
        """Know that ranks divide the files."""

    def begin(self, first: int, part: Manifest, footers: HeldFooters) -> None:
        """Begin with files, of which `first` is the number of the first one."""


def open_manifest(
    paths: SourceArgument,
    num_threads: int | None = None,
    keys: FileKeys | None = None,
    *,
    storage: StorageArguments = NO_STORAGE,
    with_chunk_sizes: bool = False,
    with_contents: bool = False,
    leave_out: Callable[[Listing], Listing] | None = None,
    early: EarlyWork | None = None,
) -> tuple[Manifest, HeldFooters | None]:
    """Return the manifest of a data set, from its cache if the files have not changed since.

    The content of footers of files on disk comes only with a manifest that this process read of
    them. `leave_out` takes files away before any is opened. `early` begins with files of a store.
    """
    listing = find_files(paths, storage, empty_files=leave_out is not None)
    listing = listing if leave_out is None else leave_out(listing)
    cache = storage.manifest_cache
    options = {"with_chunk_sizes": with_chunk_sizes, "with_contents": with_contents}
    held = HeldFooters(listing, num_threads)
    whole = slice(0, len(listing.paths))
    by_each = listing.store is None or keys is not None
    # Ranks divide row groups of fewer files more evenly.
    begun = None if by_each or whole.stop < _FILES_AT_ONCE else early

    def part(files: slice) -> Listing:
        return listing if files == whole else listing.pick(range(files.start, files.stop))

    def codec(files: slice) -> Codec[Manifest]:
        return _codec(part(files), with_chunk_sizes=with_chunk_sizes)

    def read(files: slice) -> Manifest:
        footers = footers_of(part(files), num_threads, keys, held.readings, **options)
        if with_contents:
            held.add(range(files.start, files.stop), footers)
        sizes = frozen(footers.chunk_num_bytes) if with_chunk_sizes else None
        manifest = replace(_manifest_of(part(files), footers), chunk_num_bytes=sizes)
        if begun is not None:
            of_part = HeldFooters(manifest.listing, num_threads)
            of_part.add(range(len(manifest.files)), footers)
            begun.begin(files.start, manifest, of_part)
        return manifest

    def read_all(files: slice) -> Manifest:
        begins = range(files.start, files.stop, files.stop if begun is None else _FILES_AT_ONCE)
        parts = [read(slice(at, min(at + begins.step, files.stop))) for at in begins]
        return parts[0] if len(parts) == 1 else _joined(part(files), parts)

    if cache is not None and (keys is not None or listing.memory):
        shown = without_credentials(checked_path(cache, "manifest_cache"))
        if listing.memory:
            raise ValueError(f"manifest_cache needs files on disk; got {shown!r}")
        raise ValueError(
            "manifest_cache must not be given with decryption_properties, because it would hold "
            f"the content of encrypted footers in plain text; got {shown!r}"
        )
    # A store that tells nothing of its files may have changed them.
    file = None
    if cache is not None and all(listing.stamps):
        file = KeptFile(cache, codec(whole), storage, listing.paths)
    told = ["footers", listing.paths, listing.num_bytes, listing.stamps, with_chunk_sizes]
    before = (lambda: None) if begun is None else begun.divide
    told += [] if begun is None else [begun.told]
    manifest = Pass(told, codec, read_all, partial(_joined, listing), before).found(
        range(1, whole.stop + 1), file, None if by_each else storage.share
    )
    _check_rows(manifest)
    has_contents = with_contents and (held.held or listing.store is not None)
    return manifest, held if has_contents else None


def _codec(listing: Listing, *, with_chunk_sizes: bool) -> Codec[Manifest]:
    """Return how the manifest of unchanged files is kept, without what reaches them."""

    def parts(manifest: Manifest) -> dict[str, Any]:
        kept = {name: getattr(manifest, name) for name in _KEPT}
        schemas = [[asdict(leaf) for leaf in schema] for schema in manifest.schemas]
        return kept | {"schemas": schemas, "files": listing.paths, "stamps": listing.stamps}

    def made(parts: dict[str, Any]) -> Manifest | None:
        if not with_chunk_sizes:
            parts[_SIZES_OF_CHUNKS] = None
        files = [tuple(parts.pop(name)) for name in ("files", "stamps")]
        sizes = tuple(parts["file_num_bytes"].tolist())
        is_same = [*files, sizes] == [listing.paths, listing.stamps, listing.num_bytes]
        if not is_same or (with_chunk_sizes and parts[_SIZES_OF_CHUNKS] is None):
            return None
        # JSON has lists.
        parts["schemas"] = tuple(
            tuple(Leaf(**(leaf | {name: tuple(leaf[name]) for name in _TUPLES})) for leaf in schema)
            for schema in parts["schemas"]
        )
        manifest = Manifest(listing=listing, **parts)
        chunks = manifest.chunk_num_bytes
        has_other_sizes = chunks is not None and len(chunks) != manifest.row_group_num_chunks.sum()
        if manifest.digest() != manifest.fingerprint or has_other_sizes:
            raise ValueError("its parts do not belong to one manifest")
        return manifest

    return Codec(parts, made)


def read_manifest(paths: SourceArgument, storage: StorageArguments = NO_STORAGE) -> Manifest:
    """Find the files of a data set and read their footers; see `find_files` for the paths."""
    return manifest_of(find_files(paths, storage))


def manifest_of(listing: Listing) -> Manifest:
    """Open each file of a data set once and read its footer."""
    manifest = _manifest_of(listing, footers_of(listing))
    _check_rows(manifest)
    return manifest


def footers_of(
    listing: Listing,
    num_threads: int | None = None,
    keys: FileKeys | None = None,
    held: list[RemoteStore] | None = None,
    **options: Any,
) -> Footers:
    """Read the footers of files; `keys` are remembered.

    A later reading of the store goes on with the connections of one that is in `held`.
    """
    if num_threads is None:
        num_threads = min(num_processors(), _MAX_DEFAULT_THREADS)
    # Imported here, so that unpickling a manifest does not load the native module.
    from torchparquet._impl.native import Decryption, load_bridge, read_footers

    load_bridge()
    paths, contents = list(listing.paths), [file.content for file in listing.memory]
    decryption = None if keys is None else Decryption([keys.of_file(path) for path in paths])
    reading = None
    if listing.store is not None:
        reading = StoreReading(listing, just_listed=True)
        options["remote"] = reading.native
    with nullcontext() if reading is None else closing(reading):
        footers = read_footers(paths, num_threads, contents, decryption, **options)
    if held is not None and reading is not None:
        held[:] = [reading.native]
    if keys is not None:
        keys.native = decryption
    return footers


def native_keys(manifest: Manifest, keys: FileKeys, num_threads: int) -> Decryption:
    """Return the native keys of a manifest's files; a copy of `keys` reads the footers first."""
    if keys.native is None:
        footers_of(manifest.listing, num_threads, keys)
    assert keys.native is not None  # noqa: S101
    return keys.native


def leaves_of(schema: pa.Schema) -> tuple[Leaf, ...]:
    """Return the leaves that files of a schema of Arrow would have."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    file = MemoryFile("<schema>", sink.getvalue(), "")
    return _schemas_of(footers_of(Listing((file.name,), memory=(file,)), 1))[0]


def _schemas_of(footers: Footers) -> tuple[tuple[Leaf, ...], ...]:
    """Return the leaves of each schema, with the average bytes of a row's values."""
    num_rows = np.zeros(len(footers.schemas))
    np.add.at(num_rows, footers.file_schema, footers.file_num_rows)
    return tuple(
        tuple(
            _leaf(leaf, total / max(rows, 1.0)) for leaf, total in zip(schema, totals, strict=True)
        )
        for schema, totals, rows in zip(
            footers.schemas, footers.schema_leaf_bytes, num_rows.tolist(), strict=True
        )
    )


def _leaf(leaf: LeafColumn, row_bytes: float) -> Leaf:
    same = {name: getattr(leaf, name) for name in _SAME_IN_LEAVES}
    lengths = tuple(leaf.list_lengths) if all(leaf.list_lengths) else ()
    return Leaf(**same, dtypes=tuple(leaf.dtypes), list_lengths=lengths, row_bytes=row_bytes)


def _manifest_of(listing: Listing, footers: Footers) -> Manifest:
    files = listing.paths
    counts, rows = footers.file_num_row_groups, frozen(footers.row_group_num_rows)
    row_group_file = frozen(np.repeat(np.arange(len(files)), counts))
    first_row_group = np.cumsum(counts) - counts
    arrays: dict[str, Any] = {name: frozen(getattr(footers, name)) for name in _SAME_IN_FOOTERS}
    if listing.store is not None:
        arrays |= dict.fromkeys(_OF_DISK, frozen(np.full(len(files), -1)))
    manifest = Manifest(
        listing=listing,
        schemas=_schemas_of(footers),
        row_group_file=row_group_file,
        row_group_in_file=frozen(np.arange(len(rows)) - first_row_group[row_group_file]),
        row_group_first_row=frozen(np.cumsum(rows) - rows),
        fingerprint="",
        **arrays,
    )
    return replace(manifest, fingerprint=manifest.digest())


def _check_rows(manifest: Manifest) -> None:
    """Raise unless there are rows, and int64 numbers them; the native walk checks each file."""
    files, rows = manifest.files, manifest.row_group_num_rows
    beyond = np.flatnonzero(np.cumsum(rows, dtype=np.float64) >= 2.0**62)
    if beyond.size:
        at = int(beyond[0])
        raise CorruptFileError(
            "a row group claims more rows than int64 can number: "
            f"{files[manifest.row_group_file[at]]!r}, {int(rows[at])} rows"
        )
    if not rows.any():
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        raise ValueError(f"the files must hold at least one row; all are empty: {files[0]!r}{more}")


def _joined(listing: Listing, parts: Sequence[Manifest]) -> Manifest:
    """Return the manifest of files, of which each part has the next ones."""
    found: dict[tuple[Leaf, ...], NDArray[np.float64]] = {}  # bytes and rows of each leaf
    file_schema = []
    for part in parts:
        num_rows = np.bincount(part.file_schema, part.file_num_rows, len(part.schemas))
        plain = [tuple(replace(leaf, row_bytes=0.0) for leaf in of) for of in part.schemas]
        for key, schema, rows in zip(plain, part.schemas, num_rows.tolist(), strict=True):
            totals = [[leaf.row_bytes * rows, rows] for leaf in schema]
            found[key] = found.get(key, 0) + np.array(totals)
        numbers = {key: number for number, key in enumerate(found)}
        file_schema.append(np.array([numbers[key] for key in plain])[part.file_schema])
    arrays: dict[str, Any] = {
        name: frozen(np.concatenate([getattr(part, name) for part in parts]))
        for name in (*_SAME_IN_FOOTERS, "row_group_in_file", _SIZES_OF_CHUNKS)
        if getattr(parts[0], name) is not None
    }
    first_file = np.cumsum([0, *(len(part.files) for part in parts)])
    rows = arrays["row_group_num_rows"]
    manifest = Manifest(
        listing=listing,
        schemas=tuple(
            tuple(
                replace(leaf, row_bytes=total / max(rows_of, 1.0))
                for leaf, (total, rows_of) in zip(schema, totals.tolist(), strict=True)
            )
            for schema, totals in found.items()
        ),
        row_group_file=frozen(
            np.concatenate(
                [
                    first + part.row_group_file
                    for first, part in zip(first_file.tolist(), parts, strict=False)
                ]
            )
        ),
        row_group_first_row=frozen(np.cumsum(rows) - rows),
        fingerprint="",
        **arrays | {"file_schema": frozen(np.concatenate(file_schema))},
    )
    return replace(manifest, fingerprint=manifest.digest())
