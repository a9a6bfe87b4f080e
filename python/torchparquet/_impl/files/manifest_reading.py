"""Makes manifests: reads the footers of files by the native module."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from torchparquet._impl.files.discovery import SourceArgument, Sources, find_sources
from torchparquet._impl.files.footers.walk import footers_of, schemas_of
from torchparquet._impl.files.manifest import Manifest, frozen
from torchparquet._impl.files.remote.storage import NO_STORAGE, StorageArguments
from torchparquet._impl.files.remote.urls import split_scheme
from torchparquet.errors import CorruptFileError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torchparquet._impl.files.footers.decryption import FileKeys
    from torchparquet._impl.native import Decryption, Footers


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
        sources.paths,
        num_threads,
        keys,
        [file.content for file in sources.memory],
        sources.remote,
        with_chunk_sizes=with_chunk_sizes,
        with_contents=with_contents and not sources.memory,
    )
    manifest = _manifest_of(sources, footers)
    if with_chunk_sizes:
        manifest = replace(manifest, chunk_num_bytes=frozen(footers.chunk_num_bytes))
    return manifest, footers


def native_keys(manifest: Manifest, keys: FileKeys, num_threads: int) -> Decryption:
    """Return the native keys of a manifest's files; a copy of `keys` reads the footers first."""
    if keys.native is None:
        contents = [file.content for file in manifest.memory]
        footers_of(manifest.files, num_threads, keys, contents, manifest.remote)
    assert keys.native is not None  # noqa: S101
    return keys.native


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
        schemas=schemas_of(footers),
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
