"""Reads the rows of the input files, in order or permuted by way of buckets on disk."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]
from numpy.typing import NDArray

from torchparquet._impl.files.listing import Listing
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.places import Disk
from torchparquet._impl.files.remote.store import may_be_same
from torchparquet.cli.preparing.footer_facts import reading_threads
from torchparquet.cli.preparing.text_column import TextColumn
from torchparquet.cli.preparing.writing import Layout
from torchparquet.cli.screen import Advance
from torchparquet.errors import CastError, FileChangedError, naming, one_line, unreadable

_READ_BUFFER_BYTES = 1 << 20
_SAMPLED_ROW_GROUPS = 8
# Of a slice, which fits the memory as a whole; each has a buffer for every column.
_ROW_GROUPS_AT_ONCE = 4
_SAMPLED_ROWS = 2048
_INT96_MILLISECONDS = 2**63 // 10**6
_MAX_CHECKED_ROWS = 1 << 16
# The purpose of a generator, in the upper half of its key's second word.
_DEALS, _PERMUTES = 1, 2

Item = TypeVar("Item")


class InputRows:
    """The rows of some files, numbered over all of them."""

    def __init__(self, manifest: Manifest, schema: Any, texts: TextColumn | None = None) -> None:
        """Give all rows of the manifest that schema, and tokens in place of texts."""
        self._manifest, self._schema, self._texts = manifest, schema, texts
        self._ends = np.cumsum(manifest.row_group_num_rows)
        self.num_rows = manifest.num_rows

    def bytes_per_row(self) -> float:
        """Return the bytes that a row takes in memory, by the largest of some samples."""
        sampled = np.linspace(0, len(self._ends) - 1, min(_SAMPLED_ROW_GROUPS, len(self._ends)))

        def read(row_group: int) -> tuple[int, int, Any]:
            with closing(self._batches(row_group, _SAMPLED_ROWS)) as batches:
                return row_group, 0, next(batches, None)

        largest = 1.0
        with reading_threads(self._manifest.listing) as threads:
            for piece in threads.map(read, set(sampled.astype(int).tolist())):
                for one in () if piece[2] is None else (piece[2], self._made(*piece)):
                    largest = max(largest, one.nbytes / max(1, one.num_rows))
        return largest

    def tables(self, begin: int, piece_rows: int) -> Generator[Any]:
        """Yield the rows from `begin` on as tables of `piece_rows` rows or fewer.

        Raises, when closed too, if a file is not the one that was listed.
        """
        for row_group in self._row_groups(begin, self.num_rows):
            with closing(self._pieces(row_group, begin, self.num_rows, piece_rows)) as pieces:
                for piece in pieces:
                    yield self._made(*piece)

    def table(self, begin: int, end: int, piece_rows: int) -> Any:
        """Return the rows of a range as a table, of row groups that threads read side by side."""

        def read(row_group: int) -> list[tuple[int, int, Any]]:
            return list(self._pieces(row_group, begin, end, piece_rows))

        with reading_threads(self._manifest.listing, _ROW_GROUPS_AT_ONCE) as threads:
            found = threads.map(read, self._row_groups(begin, end))
            return pa.concat_tables([self._made(*piece) for pieces in found for piece in pieces])

    def _row_groups(self, begin: int, end: int) -> range:
        """Return the row groups that have the rows of a range."""
        first, last = np.searchsorted(self._ends, [begin, end - 1], "right").tolist()
        return range(first, last + 1)

    def _pieces(
        self, row_group: int, begin: int, end: int, piece_rows: int
    ) -> Generator[tuple[int, int, Any]]:
        """Yield the stored rows of a row group in a range, each with the arguments of `_made`."""
        first_row = at = int(self._ends[row_group - 1]) if row_group else 0
        with closing(self._batches(row_group, piece_rows)) as batches:
            for batch in batches:
                first = min(max(0, begin - at), batch.num_rows)
                kept = batch.slice(first, max(0, min(end - at, batch.num_rows) - first))
                at += batch.num_rows
                if kept.num_rows:
                    yield row_group, at + first - batch.num_rows - first_row, kept
                if at >= end:
                    return

    def _made(self, row_group: int, first_row: int, batch: Any) -> Any:
        """Return the table of stored rows."""
        columns = batch.columns
        if self._texts is not None:
            columns = self._texts.columns(
                batch, lambda row: self._manifest.place_of(row_group, first_row + row)
            )
        # The columns are the same. Nullability and metadata may differ.
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _batches(self, row_group: int, batch_size: int) -> Generator[Any]:
        manifest = self._manifest
        path = manifest.files[int(manifest.row_group_file[row_group])]
        number = int(manifest.row_group_in_file[row_group])
        options = {"buffer_size": _READ_BUFFER_BYTES, "page_checksum_verification": True}
        try:
            with pq.ParquetFile(
                manifest.listing.source(path), pre_buffer=False, **options
            ) as opened:
                columns = map(opened.schema.column, range(len(opened.schema)))
                int96 = [column.path for column in columns if column.physical_type == "INT96"]
                if int96:
                    _check_int96(path, number, int96, manifest.listing)
                try:
                    yield from opened.iter_batches(batch_size, [number])
                except GeneratorExit:
                    _check_unchanged(path, manifest.listing)
                    raise
            _check_unchanged(path, manifest.listing)
        except FileChangedError:
            raise
        except (pa.ArrowException, OSError) as error:
            _check_unchanged(path, manifest.listing)  # a change explains it better
            message = (
                f"cannot read {path!r}, row group {number}: {one_line(error)}; torchparquet verify "
                "names the column"
            )
            raise unreadable(error, path, message) from error


def _check_unchanged(path: str, listing: Listing) -> None:
    """Raise if a file is not the one that was listed, as far as its place tells."""
    at, store = listing.paths.index(path), listing.store
    if store is None:
        entry, is_same = Disk().look_up(path), _is_of_one_time
    else:
        entry, is_same = store.look_up(listing.names[at], afresh=True), may_be_same
    stamp, num_bytes = listing.stamps[at], listing.num_bytes[at]
    if entry is None or entry.num_bytes != num_bytes or not is_same(entry.stamp, stamp):
        raise FileChangedError(
            "the file has changed since the rewrite began, so what was written is of another one; "
            f"rewrite to another --output: {path!r}"
        )


def _is_of_one_time(stamp: str, other: str) -> bool:
    # Machines that share a disk may number its files otherwise.
    return stamp.partition(" ")[0] == other.partition(" ")[0]


def _check_int96(path: str, row_group: int, names: list[str], listing: Listing) -> None:
    """Raise if a moment does not fit nanoseconds; pyarrow would let it wrap around."""
    source = listing.source(path)
    # Milliseconds hold every moment of INT96. The last one does not fit nanoseconds to its end.
    with pq.ParquetFile(source, coerce_int96_timestamp_unit="ms", pre_buffer=False) as file:
        for batch in file.iter_batches(_MAX_CHECKED_ROWS, [row_group], names):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                for part in _moments(column):
                    for value in pc.min_max(part.cast(pa.int64())).as_py().values():
                        if value is not None and abs(value) >= _INT96_MILLISECONDS:
                            raise CastError(
                                "a moment stored as INT96 does not fit int64 nanoseconds: "
                                f"{value} ms since 1970 in {path!r}, row group {row_group}, "
                                f"column {name!r}"
                            )


def _moments(array: Any) -> Iterator[Any]:
    """Yield the timestamps in an array, of lists, maps and structs too."""
    if pa.types.is_timestamp(array.type):
        yield array
    elif pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from _moments(child)
    elif pa.types.is_map(array.type):
        yield from _moments(array.keys)
        yield from _moments(array.items)
    elif pa.types.is_nested(array.type):
        yield from _moments(array.flatten())


def prefetched(items: Iterator[Item]) -> Generator[Item]:
    """Yield the items; a thread makes the next one meanwhile, which may raise when closed too."""
    missing = object()
    with ThreadPoolExecutor(1, thread_name_prefix="rewrite") as thread:
        pending = thread.submit(next, items, missing)
        try:
            while (item := pending.result()) is not missing:
                pending = thread.submit(next, items, missing)
                yield item  # type: ignore[misc]
        except GeneratorExit:
            pending.result()
            raise


def grouped(tables: Iterator[Any], sizes: Iterable[int], advance: Advance) -> Iterator[Any]:
    """Yield tables of `sizes` rows, made of the next rows of `tables`."""
    rest: list[Any] = []
    for size in sizes:
        parts, left = [], size
        while left:
            table = rest.pop() if rest else next(tables, None)
            if table is None:
                raise RuntimeError(f"the input has ended {left:,} rows before a row group's end")
            if table.num_rows > left:
                rest = [table.slice(left)]
            parts.append(table.slice(0, left))
            left -= parts[-1].num_rows
        yield pa.concat_tables(parts)
        advance(size)


def deal(
    rows: InputRows, layout: Layout, seed: int, directory: Path, advance: Advance
) -> tuple[list[Path], NDArray[np.int64]]:
    """Write each slice of the rows as a file of random buckets; return files and bucket sizes."""
    directory.mkdir(exist_ok=True)
    begins = range(0, rows.num_rows, layout.slice_rows)
    lengths = [min(layout.slice_rows, rows.num_rows - begin) for begin in begins]
    paths = [directory / f"slice-{index:06}.arrow" for index in range(len(begins))]
    # Slices are written in order, so the existing ones come first.
    first = len(list(takewhile(Path.exists, paths)))
    tables = rows.tables(sum(lengths[:first]), layout.piece_rows)
    sizes = np.zeros(layout.num_buckets, np.int64)
    with closing(prefetched(tables)) as stream:
        slices = grouped(stream, lengths[first:], lambda _: None)
        for index, (path, length) in enumerate(zip(paths, lengths, strict=True)):
            buckets = _buckets_of(index, length, layout, seed)
            sizes += np.bincount(buckets, minlength=layout.num_buckets)
            if index >= first:
                unfinished = path.with_suffix(".tmp")
                _write_slice(unfinished, list(in_buckets(next(slices), buckets, layout)))
                os.replace(unfinished, path)  # noqa: PTH105
            advance(length)
    return paths, sizes


def dealt_slice(rows: InputRows, index: int, layout: Layout, seed: int) -> list[Any]:
    """Return the rows of a slice in their buckets, a batch for each."""
    begin = index * layout.slice_rows
    end = min(begin + layout.slice_rows, rows.num_rows)
    table = rows.table(begin, end, layout.piece_rows)
    return list(in_buckets(table, _buckets_of(index, end - begin, layout, seed), layout))


def in_buckets(table: Any, buckets: NDArray[np.int64], layout: Layout) -> Iterator[Any]:
    """Yield a batch for each bucket, also for one without rows."""
    # The file format takes one dictionary for all batches.
    order = pa.array(np.argsort(buckets, kind="stable"))
    table = table.unify_dictionaries().take(order).combine_chunks()
    at = 0
    for count in np.bincount(buckets, minlength=layout.num_buckets).tolist():
        own = table.slice(at, count).to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
        if len(own) > 1:
            # The batches that follow would count as those of other buckets.
            raise ValueError(
                "a column of the rows that are permuted together must fit 2 GiB; give less "
                f"--max-memory: {layout.slice_rows:,} rows do not fit"
            )
        yield own[0]
        at += count


def _buckets_of(index: int, length: int, layout: Layout, seed: int) -> NDArray[np.int64]:
    return _generator(seed, _DEALS, index).integers(0, layout.num_buckets, length)


def shuffled(
    paths: list[Path], sizes: NDArray[np.int64], layout: Layout, seed: int, begin: int
) -> Iterator[Any]:
    """Yield the rows of all buckets, permuted within each, from `begin` on.

    Every permutation of all rows is equally likely. Source: Rao, "Generation of random permutations
    of given number of elements using random sampling numbers" (Sankhya, 1961).
    """
    first = 0
    for bucket, end in enumerate(np.cumsum(sizes).tolist()):
        if begin < end:
            table, order = _read_bucket(paths, bucket), order_of_bucket(bucket, end - first, seed)
            for at in range(max(begin, first), end, layout.piece_rows):
                until = min(at + layout.piece_rows, end)
                yield table.take(pa.array(order[at - first : until - first]))
        first = end


def order_of_bucket(bucket: int, num_rows: int, seed: int) -> NDArray[np.int64]:
    """Return the order of the rows of a bucket."""
    return _generator(seed, _PERMUTES, bucket).permutation(num_rows)


def _generator(seed: int, purpose: int, index: int) -> np.random.Generator:
    key = np.array([seed, (purpose << 60) | index], np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def _write_slice(path: Path, batches: Sequence[Any]) -> None:
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        naming(path),
        path.open("wb") as file,
        pa.ipc.new_file(file, batches[0].schema, options=options) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)


def _read_bucket(paths: list[Path], bucket: int) -> Any:
    batches = []
    for path in paths:
        with naming(path), pa.OSFile(str(path)) as file:
            batches.append(pa.ipc.open_file(file).get_batch(bucket))
    return joined(batches)


def joined(batches: Sequence[Any]) -> Any:
    """Return batches as a table in one piece."""
    return pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
