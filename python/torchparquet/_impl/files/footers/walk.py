"""The walk over footers, by the native module."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from torchparquet._impl.files.footers.leaf import Leaf
from torchparquet._impl.processors import num_processors

if TYPE_CHECKING:
    import pyarrow as pa

    from torchparquet._impl.files.footers.decryption import FileKeys
    from torchparquet._impl.files.remote.remote_files import RemoteFiles
    from torchparquet._impl.native import Footers, LeafColumn

_MAX_DEFAULT_THREADS = 16


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
    """Read the footers of files."""
    threads = _resolve_num_threads(num_threads)
    # Imported here, so that unpickling a manifest does not load the native module.
    from torchparquet._impl.native import load_bridge, read_footers

    load_bridge()

    asked = {"with_chunk_sizes": with_chunk_sizes, "with_contents": with_contents}
    with ExitStack() as open_until_read:
        options: dict[str, Any] = asked | remote_option(remote, open_until_read)
        if keys is not None:
            return keys.read_footers(files, threads, contents, options)
        return read_footers(list(files), threads, list(contents), **options)


def remote_option(remote: RemoteFiles | None, scope: ExitStack) -> dict[str, Any]:
    """Return the argument `remote` of `read_footers`, open until the scope ends."""
    if remote is None:
        return {}
    return {"remote": scope.enter_context(remote.connect(just_listed=True)).native}


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
    footers = footers_of(["<schema>"], 1, contents=[sink.getvalue()])
    return schemas_of(footers)[0]


def schemas_of(footers: Footers) -> tuple[tuple[Leaf, ...], ...]:
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
        tuple(leaf.list_lengths) if all(leaf.list_lengths) else (),
        leaf.tensor_shape,
        leaf.field_id,
    )
