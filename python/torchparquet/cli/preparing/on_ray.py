"""A rewrite as tasks of Ray, on any number of machines; the same files as on one.

    in order:   rows of a file ──► file
    shuffled:   slice ──► its rows by bucket ──► bucket, permuted, by file ──► file
                    (objects of Ray, which spills them to disk)

A task depends on its arguments alone, so Ray repeats those that a machine took with it. Files that
are complete are not written again, so the same command resumes after an end of the whole cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from torchparquet.cli.preparing.cluster import Cluster
from torchparquet.cli.preparing.input_rows import (
    InputRows,
    dealt_slice,
    grouped,
    joined,
    order_of_bucket,
)
from torchparquet.cli.preparing.places import LocalOutput
from torchparquet.cli.preparing.writing import Layout, PlannedFile, write_file
from torchparquet.cli.screen import Advance


def write(
    cluster: Cluster,
    place: LocalOutput,
    rows: InputRows,
    layout: Layout,
    files: Sequence[PlannedFile],
    how: tuple[Any, dict[str, Any]],
    seed: int | None,
    advance: Advance,
) -> None:
    """Write some files; of permuted rows, if there is a seed."""
    if not files:
        return
    output, source = cluster.ray.put(place), cluster.ray.put(rows)
    pending: dict[Any, int] = {}
    if seed is None:
        task = cluster.task(_write_in_order)
        for file in files:
            pending[task.remote(output, source, layout, file, how)] = file.num_rows
    else:
        task = cluster.task(_write_pieces)
        pieces = _permuted(cluster, source, rows.num_rows, layout, seed, files, advance)
        for file, own in zip(files, pieces, strict=True):
            pending[task.remote(output, file, how, *own)] = file.num_rows
    cluster.wait(pending, advance)


def _permuted(
    cluster: Cluster,
    source: Any,
    num_rows: int,
    layout: Layout,
    seed: int,
    files: Sequence[PlannedFile],
    advance: Advance,
) -> list[list[Any]]:
    """Return the pieces of permuted buckets that make up each file."""
    deal = cluster.task(_dealt, num_returns=layout.num_buckets + 1)
    slices = range(-(-num_rows // layout.slice_rows))
    dealt = [deal.remote(source, index, layout, seed) for index in slices]
    lengths = [min(layout.slice_rows, num_rows - at * layout.slice_rows) for at in slices]
    cluster.wait({of[0]: length for of, length in zip(dealt, lengths, strict=True)}, advance)
    bucket_ends = np.cumsum(sum(cluster.ray.get([of[0] for of in dealt]))).tolist()
    borders = {at for file in files for at in (file.begin, file.begin + file.num_rows)}
    found: dict[int, list[Any]] = {file.begin: [] for file in files}
    for bucket, (begin, end) in enumerate(pairwise([0, *bucket_ends])):
        cuts = sorted(at for at in borders if begin < at < end)
        of_parts = [
            next((f.begin for f in files if f.begin <= at < f.begin + f.num_rows), None)
            for at in [begin, *cuts]
        ]
        if begin == end or not any(of is not None for of in of_parts):
            continue
        permute = cluster.task(_permuted_bucket, num_returns=len(of_parts))
        own = [of[bucket + 1] for of in dealt]
        made = permute.remote(seed, bucket, [at - begin for at in cuts], *own)
        for of, part in zip(of_parts, made if cuts else [made], strict=True):
            if of is not None:
                found[of].append(part)
    return list(found.values())


def _dealt(rows: InputRows, index: int, layout: Layout, seed: int) -> list[Any]:
    """Return how many rows of a slice are in each bucket, and these."""
    batches = dealt_slice(rows, index, layout, seed)
    return [np.array([batch.num_rows for batch in batches]), *map(_packed, batches)]


def _permuted_bucket(seed: int, bucket: int, cuts: Sequence[int], *parts: bytes) -> Any:
    """Return the rows of a bucket in their order, cut where files begin."""
    table = joined([batch for part in parts for batch in _unpacked(part)])
    table = table.take(pa.array(order_of_bucket(bucket, table.num_rows, seed)))
    bounds = [0, *cuts, table.num_rows]
    pieces = [_packed(table.slice(at, end - at)) for at, end in pairwise(bounds)]
    return pieces if cuts else pieces[0]


def _write_in_order(
    place: LocalOutput,
    rows: InputRows,
    layout: Layout,
    file: PlannedFile,
    how: tuple[Any, dict[str, Any]],
) -> None:
    with closing(rows.tables(file.begin, layout.piece_rows)) as tables:
        _write(place, file, how, tables)


def _write_pieces(
    place: LocalOutput, file: PlannedFile, how: tuple[Any, dict[str, Any]], *pieces: bytes
) -> None:
    _write(place, file, how, (pa.Table.from_batches(_unpacked(piece)) for piece in pieces))


def _write(
    place: LocalOutput, file: PlannedFile, how: tuple[Any, dict[str, Any]], tables: Iterator[Any]
) -> None:
    with place.elsewhere():
        groups = grouped(tables, file.row_groups, lambda _: None)
        write_file(place, file.name, *how, groups=groups)


def _packed(rows: Any) -> bytes:
    """Return a table or batch as bytes, and nothing of what it is a slice of."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", unify_dictionaries=True)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _unpacked(content: bytes) -> list[Any]:
    batches = list(pa.ipc.open_stream(content))
    return batches or [pa.RecordBatch.from_pylist([], pa.ipc.open_stream(content).schema)]
