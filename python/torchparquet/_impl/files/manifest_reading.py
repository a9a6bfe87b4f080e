"""Makes manifests: reads the footers of files by the native module."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from torchparquet._impl.files.discovery import SourceArgument, Sources, find_sources
from torchparquet._impl.files.footers.leaf import Leaf
from torchparquet._impl.files.manifest import Manifest, frozen
from torchparquet._impl.files.memory_files import MemoryFile
from torchparquet._impl.files.remote.storage import NO_STORAGE, StorageArguments
from torchparquet._impl.files.remote.urls import split_scheme
from torchparquet._impl.processors import num_processors
from torchparquet.errors import CorruptFileError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from torchparquet._impl.files.footers.decryption import FileKeys
    from torchparquet._impl.native import Decryption, Footers, LeafColumn

_MAX_DEFAULT_THREADS = 16
_CONVERTED = ("dtypes", "list_lengths", "row_bytes", "standing")
_SAME_IN_LEAVES = [field.name for field in fields(Leaf) if field.name not in _CONVERTED]


def read_manifest(
    paths: SourceArgument,
    num_threads: int | None = None,
    keys: FileKeys | None = None,
    storage: StorageArguments = NO_STORAGE,
) -> Manifest:
    """Find the files of a data set and read their footers; see `find_sources` for the paths."""
    return walk_footers(find_sources(paths, storage), num_threads, keys)[0]


def walk_footers(
    sources: Sources,
    num_threads: int | None = None,
    keys: FileKeys | None = None,
    *,
    with_chunk_sizes: bool = False,
    with_contents: bool = False,
) -> tuple[Manifest, Footers]:
    """Open each file of a data set once and read its footer."""
    footers = footers_of(
        sources,
        num_threads,
        keys,
        with_chunk_sizes=with_chunk_sizes,
        with_contents=with_contents and not sources.memory,
    )
    manifest = _manifest_of(sources, footers)
    if with_chunk_sizes:
        manifest = replace(manifest, chunk_num_bytes=frozen(footers.chunk_num_bytes))
    return manifest, footers


def footers_of(
    files: Sources | Manifest,
    num_threads: int | None = None,
    keys: FileKeys | None = None,
    **options: bool,
) -> Footers:
    """Read the footers of files; `keys` are remembered."""
    threads = _resolve_num_threads(num_threads)
    # Imported here, so that unpickling a manifest does not load the native module.
    from torchparquet._impl.native import Decryption, load_bridge, read_footers

    load_bridge()
    paths = list(files.paths if isinstance(files, Sources) else files.files)
    contents = [file.content for file in files.memory]
    decryption = None if keys is None else Decryption([keys.of_file(path) for path in paths])
    with ExitStack() as open_until_read:
        store = None
        if files.remote is not None:
            store = open_until_read.enter_context(files.remote.connect(just_listed=True)).native
        footers = read_footers(paths, threads, contents, decryption, remote=store, **options)
    if keys is not None:
        keys.native = decryption
    return footers


def native_keys(manifest: Manifest, keys: FileKeys, num_threads: int) -> Decryption:
    """Return the native keys of a manifest's files; a copy of `keys` reads the footers first."""
    if keys.native is None:
        footers_of(manifest, num_threads, keys)
    assert keys.native is not None  # noqa: S101
    return keys.native


def _resolve_num_threads(num_threads: int | None) -> int:
    if num_threads is None:
        return min(num_processors(), _MAX_DEFAULT_THREADS)
    if isinstance(num_threads, bool) or not isinstance(num_threads, int):
        raise TypeError(f"num_threads must be an int or None; got {num_threads!r}")
    if num_threads < 1:
        raise ValueError(f"num_threads must be at least 1; got {num_threads}")
    return num_threads


def leaves_of(schema: pa.Schema) -> tuple[Leaf, ...]:
    """Return the leaves that files of a schema of Arrow would have."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    file = MemoryFile("<schema>", sink.getvalue(), "")
    return _schemas_of(footers_of(Sources((file.name,), memory=(file,)), 1))[0]


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
    dtypes = tuple(leaf.dtypes)
    return Leaf(**same, dtypes=dtypes, list_lengths=lengths, row_bytes=row_bytes)


def _manifest_of(sources: Sources, footers: Footers) -> Manifest:
    files, remote = sources.paths, sources.remote
    counts = frozen(footers.file_num_row_groups)
    rows = frozen(footers.row_group_num_rows)
    row_group_file = frozen(np.repeat(np.arange(len(files)), counts))
    _check_countable(files, row_group_file, rows)
    if not rows.any():
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        raise ValueError(f"the files must hold at least one row; all are empty: {files[0]!r}{more}")
    first_row_group = np.cumsum(counts) - counts
    unknown = np.full(len(files), -1)
    manifest = Manifest(
        files=files,
        root="" if sources.memory else _common_root(files),
        file_num_bytes=frozen(footers.file_num_bytes),
        file_mtime_ns=frozen(footers.file_mtime_ns if remote is None else unknown),
        file_inode=frozen(footers.file_inode if remote is None else unknown),
        file_digest=frozen(footers.file_digest),
        file_has_hidden_columns=frozen(footers.file_has_hidden_columns),
        file_num_rows=frozen(footers.file_num_rows),
        file_schema=frozen(footers.file_schema),
        schemas=_schemas_of(footers),
        row_group_file=row_group_file,
        row_group_in_file=frozen(np.arange(len(rows)) - first_row_group[row_group_file]),
        row_group_num_rows=rows,
        row_group_num_bytes=frozen(footers.row_group_num_bytes),
        row_group_first_row=frozen(np.cumsum(rows) - rows),
        fingerprint="",
        memory=sources.memory,
        file_stamp=() if remote is None else remote.stamps,
        remote=remote,
    )
    return replace(manifest, fingerprint=manifest.digest())


def _common_root(files: Sequence[str]) -> str:
    """Return the deepest directory that holds all files, which may be URLs."""
    scheme, _ = split_scheme(files[0])
    directories = {os.path.dirname(split_scheme(file)[1]) for file in files}  # noqa: PTH120
    root = os.path.commonpath(directories)
    return f"{scheme}://{root}" if scheme else root


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
