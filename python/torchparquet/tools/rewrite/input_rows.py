"""Reads the rows of the input files, in order or permuted by way of buckets on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]
from numpy.typing import NDArray

from torchparquet._impl.files.listing import Listing
from torchparquet._impl.files.manifest import Manifest
from torchparquet.errors import CastError, naming, one_line, unreadable
from torchparquet.tools.rewrite.layout import Layout

_READ_BUFFER_BYTES = 1 << 20
_SAMPLED_ROW_GROUPS = 8
_SAMPLED_ROWS = 2048
_INT96_SECONDS = 2**63 // 10**9
_MAX_CHECKED_ROWS = 1 << 16
# The purpose of a generator, in the upper half of its key's second word.
_DEALS, _PERMUTES = 1, 2

Item = TypeVar("Item")


class InputRows:
    """The rows of some files, numbered over all of them."""

    def __init__(self, manifest: Manifest, schema: Any) -> None:
        """Give all rows of the manifest that schema."""
        self._manifest, self._schema = manifest, schema
        self._ends = np.cumsum(manifest.row_group_num_rows)
        self.num_rows = manifest.num_rows

    def bytes_per_row(self) -> float:
        """Return the bytes that a row takes in memory, by the largest of some samples."""
        sampled = np.linspace(0, len(self._ends) - 1, min(_SAMPLED_ROW_GROUPS, len(self._ends)))
        largest = 1.0
        for row_group in dict.fromkeys(sampled.astype(int).tolist()):
            for batch in self._batches(row_group, _SAMPLED_ROWS):
                largest = max(largest, batch.nbytes / max(1, batch.num_rows))
                break
        return largest

    def tables(self, begin: int, end: int, piece_rows: int) -> Iterator[Any]:
        """Yield the rows `[begin, end)` as tables of `piece_rows` rows or fewer."""
        row_group = int(np.searchsorted(self._ends, begin, side="right"))
        while begin < end:
            at = int(self._ends[row_group - 1]) if row_group else 0
            for batch in self._batches(row_group, piece_rows):
                skipped = min(max(0, begin - at), batch.num_rows)
                kept = batch.slice(skipped, max(0, min(batch.num_rows, end - at) - skipped))
                at += batch.num_rows
                if kept.num_rows:
                    # The columns are the same. Nullability and metadata may differ.
                    yield pa.Table.from_arrays(kept.columns, schema=self._schema)
                if at >= end:
                    return
            begin = max(begin, int(self._ends[row_group]))
            row_group += 1

    def _batches(self, row_group: int, batch_size: int) -> Iterator[Any]:
        manifest = self._manifest
        path = manifest.files[int(manifest.row_group_file[row_group])]
        number = int(manifest.row_group_in_file[row_group])
        options = {
            "pre_buffer": False,
            "buffer_size": _READ_BUFFER_BYTES,
            "page_checksum_verification": True,
        }
        try:
            with pq.ParquetFile(manifest.listing.source(path), **options) as opened:
                columns = map(opened.schema.column, range(len(opened.schema)))
                int96 = [column.path for column in columns if column.physical_type == "INT96"]
                if int96:
                    _check_int96(path, number, int96, manifest.listing)
                yield from opened.iter_batches(batch_size, [number])
        except (pa.ArrowException, OSError) as error:
            message = (
                f"cannot read {path!r}, row group {number}: {one_line(error)}; torchparquet verify "
                "names the column"
            )
            raise unreadable(error, path, message) from error


def _check_int96(path: str, row_group: int, names: list[str], listing: Listing) -> None:
    """Raise if a moment does not fit nanoseconds; pyarrow would let it wrap around."""
    source = listing.source(path)
    with pq.ParquetFile(source, coerce_int96_timestamp_unit="s", pre_buffer=False) as file:
        for batch in file.iter_batches(_MAX_CHECKED_ROWS, [row_group], names):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                for part in _moments(column):
                    extremes = pc.min_max(part.cast(pa.int64())).as_py()
                    for value in extremes.values():
                        if value is not None and abs(value) >= _INT96_SECONDS:
                            raise CastError(
                                "a moment stored as INT96 does not fit int64 nanoseconds: "
                                f"{value} s since 1970 in {path!r}, row group {row_group}, "
                                f"column {name!r}"
                            )


def _moments(array: Any) -> Iterator[Any]:
    """Yield the timestamps in an array, of lists and structs too."""
    if pa.types.is_timestamp(array.type):
        yield array
    elif pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from _moments(child)
    elif pa.types.is_map(array.type):
        yield from _moments(array.keys)
        yield from _moments(array.items)
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        yield from _moments(array.flatten())


class RowStream:
    """A sequence of tables, taken by numbers of rows."""

    def __init__(self, tables: Iterator[Any]) -> None:
        """Take from `tables`; a thread makes the next one meanwhile."""
        self._tables = prefetched(tables)
        self._rest: Any = None

    def take(self, num_rows: int) -> Iterator[Any]:
        """Yield the next `num_rows` rows, or all that are left."""
        while num_rows:
            table = self._rest if self._rest is not None else next(self._tables, None)
            if table is None:
                return
            self._rest = None
            if table.num_rows > num_rows:
                self._rest = table.slice(num_rows)
                table = table.slice(0, num_rows)
            num_rows -= table.num_rows
            yield table

    def close(self) -> None:
        """End the thread."""
        self._tables.close()


def prefetched(items: Iterator[Item]) -> Generator[Item]:
    """Yield the items; a thread makes the next one meanwhile."""
    missing = object()
    with ThreadPoolExecutor(1, thread_name_prefix="rewrite") as thread:
        pending = thread.submit(next, items, missing)
        while (item := pending.result()) is not missing:
            pending = thread.submit(next, items, missing)
            yield item  # type: ignore[misc]


class ShuffledRows:
    """The rows of the input in a random order; buckets are files in a directory.

    Each row goes to a random bucket, and the rows of a bucket are permuted in memory. Every
    permutation of all rows is equally likely. Source: Rao, "Generation of random permutations of
    given number of elements using random sampling numbers" (Sankhya, 1961).
    """

    def __init__(self, rows: InputRows, layout: Layout, seed: int, directory: Path) -> None:
        """Prepare to shuffle; reads and writes nothing yet."""
        self._rows = rows
        self._layout = layout
        self._seed = seed
        self._directory = directory
        self._num_slices = -(-rows.num_rows // layout.slice_rows)

    def deal(self, advance: Callable[[int], None]) -> None:
        """Write the rows to buckets, except those that an earlier run has written."""
        self._directory.mkdir(exist_ok=True)
        for index in range(self._num_slices):
            path = self._path(index)
            if not path.exists():
                unfinished = path.with_suffix(".tmp")
                self._write_slice(index, unfinished)
                os.replace(unfinished, path)  # noqa: PTH105
            advance(self._slice_rows(index))

    def tables(self, begin: int, end: int, piece_rows: int) -> Iterator[Any]:
        """Yield the rows `[begin, end)` of the permutation as tables of `piece_rows` or fewer."""
        ends = np.cumsum(self._bucket_rows())
        bucket = int(np.searchsorted(ends, begin, side="right"))
        while begin < end:
            num_rows = int(ends[bucket]) - (int(ends[bucket - 1]) if bucket else 0)
            first = int(ends[bucket]) - num_rows
            table = self._bucket(bucket)
            order = self._generator(_PERMUTES, bucket).permutation(num_rows)
            stop = min(end, int(ends[bucket]))
            while begin < stop:
                until = min(begin + piece_rows, stop)
                yield table.take(pa.array(order[begin - first : until - first]))
                begin = until
            bucket += 1

    def _path(self, index: int) -> Path:
        return self._directory / f"slice-{index:06}.arrow"

    def _slice_rows(self, index: int) -> int:
        begin = index * self._layout.slice_rows
        return min(self._layout.slice_rows, self._rows.num_rows - begin)

    def _generator(self, purpose: int, index: int) -> np.random.Generator:
        key = np.array([self._seed, (purpose << 60) | index], np.uint64)
        return np.random.Generator(np.random.Philox(key=key))

    def _buckets_of(self, index: int) -> NDArray[np.int64]:
        """Return the bucket of each row of a slice, int64 `[rows]`."""
        generator = self._generator(_DEALS, index)
        return generator.integers(0, self._layout.num_buckets, self._slice_rows(index))

    def _bucket_rows(self) -> NDArray[np.int64]:
        """Return the rows of each bucket, int64 `[num_buckets]`."""
        counts = np.zeros(self._layout.num_buckets, np.int64)
        for index in range(self._num_slices):
            counts += np.bincount(self._buckets_of(index), minlength=len(counts))
        return counts

    def _write_slice(self, index: int, path: Path) -> None:
        begin = index * self._layout.slice_rows
        pieces = self._rows.tables(begin, begin + self._slice_rows(index), self._layout.piece_rows)
        table = pa.concat_tables(prefetched(pieces))
        buckets = self._buckets_of(index)
        counts = np.bincount(buckets, minlength=self._layout.num_buckets)
        order = pa.array(np.argsort(buckets, kind="stable"))
        # The file format takes one dictionary for all batches.
        table = table.unify_dictionaries().take(order).combine_chunks()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with (
            naming(path),
            path.open("wb") as file,
            pa.ipc.new_file(file, table.schema, options=options) as writer,
        ):
            at = 0
            for count in counts.tolist():
                # One batch per bucket, also for a bucket without rows.
                (batch,) = table.slice(at, count).to_batches() or [_no_rows(table.schema)]
                writer.write_batch(batch)
                at += count

    def _bucket(self, bucket: int) -> Any:
        batches = []
        for index in range(self._num_slices):
            path = self._path(index)
            with naming(path), pa.OSFile(str(path)) as file:
                batches.append(pa.ipc.open_file(file).get_batch(bucket))
        return pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()


def _no_rows(schema: Any) -> Any:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
