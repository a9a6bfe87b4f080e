"""Permutes more rows than fit memory by way of buckets on disk.

Each row goes to a random bucket, and the rows of a bucket are permuted in memory. Every permutation
of all rows is equally likely. Source: Rao, "Generation of random permutations of given number of
elements using random sampling numbers" (Sankhya, 1961).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
from numpy.typing import NDArray

from torchparquet.errors import naming
from torchparquet.tools.rewrite.input_rows import InputRows, prefetched
from torchparquet.tools.rewrite.layout import Layout

# The purpose of a generator, in the upper half of its key's second word.
_DEALS, _PERMUTES = 1, 2


class ShuffledRows:
    """The rows of the input in a random order; buckets are files in a directory."""

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
