"""The manifest: the files and row groups of a data set, from its footers."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import unquote

import numpy as np

from torchparquet.errors import CorruptFileError
from torchparquet.files.discovery import discover_files
from torchparquet.files.leaf import Leaf, TableFacts
from torchparquet.files.memory_files import MemoryFile, MemorySource, memory_files
from torchparquet.files.remote.path_rules import PathArgument, path_texts
from torchparquet.files.remote.remote_files import RemoteFiles, find_remote_files
from torchparquet.files.remote.storage import NO_STORAGE, StorageArguments
from torchparquet.files.remote.urls import split_scheme
from torchparquet.files.row_selection import PackedRows, RowSelection
from torchparquet.processors import num_processors

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import ArrayLike, NDArray

    from torchparquet.files.decryption import FileKeys
    from torchparquet.native import Decryption, Footers, LeafColumn

PathsArgument: TypeAlias = "PathArgument | Sequence[PathArgument]"
SourceArgument: TypeAlias = "PathsArgument | MemorySource | Sequence[MemorySource]"

_MAX_DEFAULT_THREADS = 16


@dataclass(frozen=True, eq=False)
class Manifest:
    """The files of a data set and their row groups, numbered over all files.

    It holds no native object, so it can be pickled. ``F`` is the number of files, ``G`` that of row
    groups; all arrays are int64.

    Attributes:
        files: Absolute paths, in data set order; of files in a store URLs without credentials, of
            files in memory names such as ``"<buffer>"``.
        root: The deepest directory that holds all files; ``""`` for files in memory.
        file_num_bytes: [F] sizes in bytes.
        file_mtime_ns: [F] times of the last change, nanoseconds since 1970; -1 unless on disk.
        file_inode: [F] inode numbers; -1 unless on disk.
        file_digest: [F] XXH64 of the footers, which hold sizes, offsets and statistics.
        file_has_hidden_columns: [F] 1 if a column is encrypted and no key decrypts it.
        file_num_rows: [F] rows.
        file_schema: [F] index into ``schemas``.
        schemas: The distinct schemas, in order of first appearance.
        row_group_file: [G] index into ``files``.
        row_group_in_file: [G] number within the file.
        row_group_num_rows: [G] rows; with ``selection`` the selected ones.
        row_group_num_bytes: [G] compressed bytes of all columns.
        row_group_first_row: [G] global row number, in file order, of the first row. All stored
            rows are counted, those that are not selected too.
        fingerprint: Hex digest, equal for equal relative names, sizes, times of change, ETags,
            footers, row groups and schemas. For files in memory it depends on the bytes instead
            of names and times.
        memory: [F] the files in memory; empty for others.
        file_stamp: [F] what a store says that changes with the content, such as an ETag;
            empty for files that are not in a store.
        remote: The files in a store, and how to reach them; None for others.
        chunk_num_bytes: The compressed bytes of each column chunk, row group after row group, in
            the order of the leaves; None unless they were asked for.
        selection: The selected rows; None for all.
        table: What the metadata of a table say of the files; None if they are of none.
        packed: What rows become, such as packed sequences; None if a row is a row. Rows and first
            rows of row groups count these then, and ``selection`` has the rows that become them.
    """

    files: tuple[str, ...]
    root: str
    file_num_bytes: NDArray[np.int64]
    file_mtime_ns: NDArray[np.int64]
    file_inode: NDArray[np.int64]
    file_digest: NDArray[np.int64]
    file_has_hidden_columns: NDArray[np.int64]
    file_num_rows: NDArray[np.int64]
    file_schema: NDArray[np.int64]
    schemas: tuple[tuple[Leaf, ...], ...]
    row_group_file: NDArray[np.int64]
    row_group_in_file: NDArray[np.int64]
    row_group_num_rows: NDArray[np.int64]
    row_group_num_bytes: NDArray[np.int64]
    row_group_first_row: NDArray[np.int64]
    fingerprint: str
    memory: tuple[MemoryFile, ...] = ()
    file_stamp: tuple[str, ...] = ()
    remote: RemoteFiles | None = None
    chunk_num_bytes: NDArray[np.int64] | None = None
    selection: RowSelection | None = None
    table: TableFacts | None = None
    packed: PackedRows | None = None

    @property
    def num_rows(self) -> int:
        """The rows of all files."""
        return int(self.row_group_num_rows.sum())

    @property
    def num_row_groups(self) -> int:
        """The row groups of all files, empty ones included."""
        return len(self.row_group_num_rows)

    @property
    def content_fingerprint(self) -> str:
        """Like ``fingerprint`` without times and ETags, so equal for copies of the same files."""
        times = _frozen(np.zeros(len(self.files)))
        return replace(self, file_mtime_ns=times, file_stamp=()).digest()

    def digest(self) -> str:
        """Compute ``fingerprint``, with the length of each piece before the piece."""
        prefix = len(self.root.rstrip("/")) + 1
        names = [file.digest for file in self.memory] or [file[prefix:] for file in self.files]
        # The dtype of a leaf may differ between releases for the same data.
        schemas = [[(leaf.path, leaf.kind, leaf.nullable) for leaf in s] for s in self.schemas]
        arrays = (
            self.file_num_bytes,
            self.file_mtime_ns,
            self.file_digest,
            self.file_schema,
            self.row_group_file,
            self.row_group_in_file,
            self.row_group_num_rows,
        )
        texts: list[Any] = [names, schemas, list(self.file_stamp)]
        if self.table is not None:
            texts.append([self.table.identity, dict(self.table.keys)])
        digest = hashlib.blake2b(digest_size=16)
        for piece in (
            json.dumps(texts if self.file_stamp or self.table else texts[:2]).encode(),
            *(array.astype("<i8").tobytes() for array in arrays),
            *([] if self.selection is None else [self.selection.digest()]),
            *([] if self.packed is None else [self.packed.digest()]),
        ):
            digest.update(len(piece).to_bytes(8, "little"))
            digest.update(piece)
        return digest.hexdigest()

    @property
    def row_group_num_chunks(self) -> NDArray[np.int64]:
        """The number of column chunks of each row group, int64 ``[G]``."""
        num_leaves = np.array([len(_stored(schema)) for schema in self.schemas])
        return num_leaves[self.file_schema[self.row_group_file]]

    def bytes_of_columns(self, columns: Collection[str]) -> NDArray[np.int64]:
        """Return the compressed bytes that each row group has in ``columns``, int64 ``[G]``.

        Args:
            columns: The paths of leaves; other names add 0.
        """
        assert self.chunk_num_bytes is not None  # noqa: S101
        selected = [
            np.array([leaf.path in columns for leaf in _stored(schema)]) for schema in self.schemas
        ]
        of_row_group = [selected[schema] for schema in self.file_schema[self.row_group_file]]
        chunk_bytes = np.where(np.concatenate(of_row_group), self.chunk_num_bytes, 0)
        ends = np.cumsum(self.row_group_num_chunks)
        totals = np.concatenate([[0], np.cumsum(chunk_bytes)])
        return np.diff(totals[ends], prepend=0)

    @property
    def partition_keys(self) -> dict[str, tuple[str, ...]]:
        """The [F] values of each key: a table's, or of all ``key=value`` directories of paths."""
        if self.table is not None:
            return dict(self.table.keys)
        keys = [_partition_keys(file) for file in self.files]
        common = [key for key in keys[0] if all(key in others for others in keys)]
        return {key: tuple(of_file[key] for of_file in keys) for key in common}

    def keep(self, row_groups: NDArray[np.bool_]) -> Manifest:
        """Return the manifest without the other row groups; rows and files keep their numbers.

        Args:
            row_groups: [G] True for each row group to keep.
        """
        chunk_num_bytes = self.chunk_num_bytes
        if chunk_num_bytes is not None:
            of_kept = np.repeat(row_groups, self.row_group_num_chunks)
            chunk_num_bytes = _frozen(chunk_num_bytes[of_kept])
        kept = replace(
            self,
            chunk_num_bytes=chunk_num_bytes,
            row_group_file=_frozen(self.row_group_file[row_groups]),
            row_group_in_file=_frozen(self.row_group_in_file[row_groups]),
            row_group_num_rows=_frozen(self.row_group_num_rows[row_groups]),
            row_group_num_bytes=_frozen(self.row_group_num_bytes[row_groups]),
            row_group_first_row=_frozen(self.row_group_first_row[row_groups]),
            selection=None if self.selection is None else self.selection.keep(row_groups),
            packed=None if self.packed is None else self.packed.keep(row_groups),
        )
        return replace(kept, fingerprint=kept.digest())

    def select(self, selection: RowSelection) -> Manifest:
        """Return the manifest of the selected rows, without the row groups that have none.

        Args:
            selection: Of all rows of all row groups.
        """
        selected = replace(
            self, selection=selection, row_group_num_rows=_frozen(selection.num_rows)
        )
        return selected.keep(selection.num_rows > 0)

    def pack(self, packed: PackedRows) -> Manifest:
        """Return the manifest of what rows become, without the row groups that have none.

        Args:
            packed: Of all row groups.
        """
        num_units = packed.num_units
        made = replace(
            self,
            packed=packed,
            row_group_num_rows=_frozen(num_units),
            row_group_first_row=_frozen(np.cumsum(num_units) - num_units),
        )
        return made.keep(num_units > 0)

    def stored_rows(self, row_group: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return rows, which are counted as in ``row_group_num_rows``, by number in the file's.

        Args:
            row_group: Number of the row group in the data set.
            rows: Numbers of rows, below its ``row_group_num_rows``.

        Returns:
            Numbers among all rows that the row group stores.
        """
        if self.selection is None or self.packed is not None:
            return rows
        return self.selection.stored_rows(row_group, rows)


def read_manifest(
    paths: SourceArgument,
    num_threads: int | None = None,
    keys: FileKeys | None = None,
    storage: StorageArguments = NO_STORAGE,
) -> Manifest:
    """Find the files of a data set and read their footers.

    Args:
        paths: Path, directory, pattern, URL, or a sequence of them; see
            :func:`torchparquet.files.discovery.find_files`. Or files in memory; see
            :func:`torchparquet.files.memory_files.memory_files`.
        num_threads: Threads that read footers; None for one per usable core, at most 16.
        keys: Keys of encrypted files; None if no file is encrypted.
        storage: Of the store that the paths are of.

    Returns:
        The manifest.

    Raises:
        FileNotFoundError: A file is missing, or ``paths`` names none.
        CorruptFileError: A footer cannot be read or contradicts itself.
        EncryptedFileError: A footer is encrypted, and no key decrypts it.
        ValueError: ``paths`` or ``num_threads`` is wrong, or the files hold no row at all.
        TypeError: ``paths`` or ``num_threads`` has a wrong type.
    """
    return walk_footers(paths, num_threads, keys, storage=storage)[0]


def walk_footers(
    paths: SourceArgument,
    num_threads: int | None = None,
    keys: FileKeys | None = None,
    *,
    storage: StorageArguments = NO_STORAGE,
    remote: RemoteFiles | None = None,
    with_chunk_sizes: bool = False,
    with_contents: bool = False,
) -> tuple[Manifest, Footers]:
    """Open each file of a data set once and read its footer.

    Args:
        paths: As those of `read_manifest`.
        num_threads: As that of `read_manifest`.
        keys: As those of `read_manifest`.
        storage: As that of `read_manifest`.
        remote: The files, if they are in a store and have been listed just now.
        with_chunk_sizes: True if the manifest has `chunk_num_bytes`.
        with_contents: True if the footers have their `content`; those of files in memory have
            none.

    Returns:
        The manifest and the footers.
    """
    memory = memory_files(paths)
    if remote is None and not memory:
        remote = remote_files(paths, storage)
    if memory:
        files = [file.name for file in memory]
    elif remote is not None:
        files = list(remote.paths)
    else:
        files = discover_files(cast("PathsArgument", paths))
    footers = footers_of(
        files,
        num_threads,
        keys,
        [file.content for file in memory],
        remote,
        with_chunk_sizes=with_chunk_sizes,
        with_contents=with_contents and not memory,
    )
    manifest = build_manifest(files, footers, memory, remote)
    if with_chunk_sizes:
        manifest = replace(manifest, chunk_num_bytes=_frozen(footers.chunk_num_bytes))
    return manifest, footers


def remote_files(
    paths: SourceArgument, storage: StorageArguments, *, empty_files: bool = False
) -> RemoteFiles | None:
    """List the files of a store that ``paths`` names; return None for paths on disk.

    Raises:
        FileNotFoundError: A path leads to no file.
        OSError: The store cannot be listed.
        TypeError: ``paths`` is not a path or a sequence of paths.
        ValueError: Paths are of several stores, or do not fit ``storage``.
    """
    return find_remote_files(path_texts(paths), storage, empty_files=empty_files)


def footers_of(
    files: Sequence[str],
    num_threads: int | None = None,
    keys: FileKeys | None = None,
    contents: Sequence[pa.Buffer] = (),
    remote: RemoteFiles | None = None,
    *,
    with_chunk_sizes: bool = False,
    with_contents: bool = False,
) -> Footers:
    """Read the footers of files.

    Args:
        files: Their paths or, in memory, names.
        num_threads: As that of `read_manifest`.
        keys: As those of `read_manifest`.
        contents: The bytes of files in memory.
        remote: The files, if they are in a store.
        with_chunk_sizes: True to return `chunk_num_bytes`.
        with_contents: True to return the `content` of footers.
    """
    threads = _resolve_num_threads(num_threads)
    # Imported here, so that unpickling a manifest does not load the native module.
    from torchparquet.native import read_footers

    asked = {"with_chunk_sizes": with_chunk_sizes, "with_contents": with_contents}
    with ExitStack() as open_until_read:
        options: dict[str, Any] = asked | _remote_option(remote, open_until_read)
        if keys is not None:
            return keys.read_footers(files, threads, contents, options)
        return read_footers(list(files), threads, list(contents), **options)


def native_keys(manifest: Manifest, keys: FileKeys, num_threads: int) -> Decryption:
    """Return the native keys of a manifest's files; a copy of `keys` reads the footers first."""
    contents = [file.content for file in manifest.memory]
    with ExitStack() as open_until_read:
        options = {} if keys.is_read else _remote_option(manifest.remote, open_until_read)
        return keys.native(manifest.files, num_threads, contents, options)


def _remote_option(remote: RemoteFiles | None, scope: ExitStack) -> dict[str, Any]:
    """Return the argument `remote` of `read_footers`, open until the scope ends."""
    if remote is None:
        return {}
    return {"remote": scope.enter_context(remote.connect(just_listed=True)).native}


def build_manifest(
    files: Sequence[str],
    footers: Footers,
    memory: Sequence[MemoryFile] = (),
    remote: RemoteFiles | None = None,
) -> Manifest:
    """Build the manifest of ``files`` from their footers.

    Args:
        files: Absolute paths, or the names of files in memory; at least one.
        footers: The result of ``read_footers`` for exactly these files.
        memory: The files, if they are in memory.
        remote: The files, if they are in a store.

    Returns:
        The manifest; it shares no memory with ``footers``.

    Raises:
        CorruptFileError: The files claim more rows than int64 can number.
        ValueError: The files hold no row.
    """
    counts = _frozen(footers.file_num_row_groups)
    rows = _frozen(footers.row_group_num_rows)
    row_group_file = _frozen(np.repeat(np.arange(len(files)), counts))
    _check_countable(files, row_group_file, rows)
    if not rows.any():
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        raise ValueError(f"the files must hold at least one row; all are empty: {files[0]!r}{more}")
    first_row_group = np.cumsum(counts) - counts
    unknown = np.full(len(files), -1)
    manifest = Manifest(
        files=tuple(files),
        root="" if memory else _common_root(files),
        file_num_bytes=_frozen(footers.file_num_bytes),
        file_mtime_ns=_frozen(footers.file_mtime_ns if remote is None else unknown),
        file_inode=_frozen(footers.file_inode if remote is None else unknown),
        file_digest=_frozen(footers.file_digest),
        file_has_hidden_columns=_frozen(footers.file_has_hidden_columns),
        file_num_rows=_frozen(footers.file_num_rows),
        file_schema=_frozen(footers.file_schema),
        schemas=_schemas(footers),
        row_group_file=row_group_file,
        row_group_in_file=_frozen(np.arange(len(rows)) - first_row_group[row_group_file]),
        row_group_num_rows=rows,
        row_group_num_bytes=_frozen(footers.row_group_num_bytes),
        row_group_first_row=_frozen(np.cumsum(rows) - rows),
        fingerprint="",
        memory=tuple(memory),
        file_stamp=() if remote is None else remote.stamps,
        remote=remote,
    )
    return replace(manifest, fingerprint=manifest.digest())


def _stored(schema: Sequence[Leaf]) -> list[Leaf]:
    return [leaf for leaf in schema if leaf.standing != "added"]


def leaves_of(schema: pa.Schema) -> tuple[Leaf, ...]:
    """Return the leaves that files of a schema of Arrow would have."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    footers = footers_of(["<schema>"], 1, contents=[sink.getvalue()])
    return _schemas(footers)[0]


def _common_root(files: Sequence[str]) -> str:
    """Return the deepest directory that holds all files, which may be URLs."""
    scheme, _ = split_scheme(files[0])
    directories = {os.path.dirname(split_scheme(file)[1]) for file in files}  # noqa: PTH120
    root = os.path.commonpath(directories)
    return f"{scheme}://{root}" if scheme else root


def _resolve_num_threads(num_threads: int | None) -> int:
    if num_threads is None:
        return min(num_processors(), _MAX_DEFAULT_THREADS)
    if isinstance(num_threads, bool) or not isinstance(num_threads, int):
        raise TypeError(f"num_threads must be an int or None; got {num_threads!r}")
    if num_threads < 1:
        raise ValueError(f"num_threads must be at least 1; got {num_threads}")
    return num_threads


def _partition_keys(path: str) -> dict[str, str]:
    directories = PurePath(path).parent.parts
    pairs = (directory.split("=", 1) for directory in directories if "=" in directory)
    return {unquote(key): unquote(value) for key, value in pairs}


def _schemas(footers: Footers) -> tuple[tuple[Leaf, ...], ...]:
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
    return Leaf(
        leaf.path,
        leaf.kind,
        leaf.dtype,
        leaf.nullable,
        tuple(leaf.dtypes),
        leaf.items,
        leaf.num_lists,
        leaf.is_bytes,
        row_bytes,
        leaf.list_length,
        leaf.field_id,
    )


def _frozen(values: ArrayLike) -> NDArray[np.int64]:
    array = np.array(values, dtype=np.int64)
    array.flags.writeable = False
    return array


def _check_countable(
    files: Sequence[str], row_group_file: NDArray[np.int64], num_rows: NDArray[np.int64]
) -> None:
    """Raise if the row numbers exceed int64; the native walk checks each file alone."""
    beyond = np.flatnonzero(np.cumsum(num_rows, dtype=np.float64) >= 2.0**62)
    if beyond.size:
        at = int(beyond[0])
        raise CorruptFileError(
            "a row group claims more rows than int64 can number: "
            f"{files[row_group_file[at]]!r}, {int(num_rows[at])} rows"
        )
