"""pyarrow's own routes from a Parquet file to torch tensors, each as well tuned as its users could.

Every route is a function of (path, batch_size) that yields ``dict[str, Tensor]``, one tensor per
column, [rows], and copies nothing that pyarrow does not copy itself: tensors are views of Arrow's
buffers. The threads are pyarrow's CPU pool, whose size the caller sets with
``pyarrow.set_cpu_count``, except where a route's comment says otherwise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import torch

Batch = dict[str, torch.Tensor]
Read = Callable[[Path, int | None], Iterator[Batch]]
Shape = Literal["exact", "cut at row groups", "row groups"]

_TORCH_TYPES = {
    pa.int8(): (torch.int8, 1),
    pa.int64(): (torch.int64, 8),
    pa.int32(): (torch.int32, 4),
    pa.float32(): (torch.float32, 4),
}
# The suffix of a column's name for the offsets of its values.
OFFSETS = ".offsets"


@dataclass(frozen=True)
class Route:
    """One way to read a file.

    Attributes:
        name: unique among the contenders.
        shape: "exact" batches of batch_size rows; batches "cut at row groups", of which each row
            group's last is short; or whole "row groups".
        batches: (path, batch_size) to the batches of one pass.
    """

    name: str
    shape: Shape
    batches: Read


@dataclass(frozen=True)
class Open:
    """How ``pyarrow.parquet.ParquetFile`` opens a file."""

    memory_map: bool = False
    pre_buffer: bool = False

    def __call__(self, path: Path) -> pq.ParquetFile:
        """Opens ``path``."""
        return pq.ParquetFile(path, memory_map=self.memory_map, pre_buffer=self.pre_buffer)


def _tensor(array: pa.Array) -> torch.Tensor:
    # frombuffer costs half of from_numpy(array.to_numpy()) and from_dlpack(array).
    if array.null_count:
        raise ValueError(f"a column without nulls is required, got {array.null_count} nulls")
    buffer = array.buffers()[1]
    if not buffer.is_mutable:  # which frombuffer refuses, and others hand out
        return torch.from_numpy(array.to_numpy())
    dtype, item_bytes = _TORCH_TYPES[array.type]
    offset_bytes = array.offset * item_bytes
    return torch.frombuffer(buffer, dtype=dtype, count=len(array), offset=offset_bytes)


def _list_tensors(name: str, array: pa.Array) -> Batch:
    """A string column: its bytes and offsets. A column of equally long lists: one tensor."""
    if not pa.types.is_string(array.type):
        return {name: _tensor(array.flatten()).view(len(array), -1)}
    _validity, offset_bytes, text = array.buffers()
    offsets = torch.frombuffer(
        offset_bytes, dtype=torch.int32, count=len(array) + 1, offset=4 * array.offset
    )
    begin, end = int(offsets[0]), int(offsets[-1])
    values = torch.frombuffer(text, dtype=torch.uint8, count=end - begin, offset=begin)
    return {name: values, name + OFFSETS: offsets}


def _tensors(names: Iterable[str], arrays: Iterable[pa.Array]) -> Batch:
    batch: Batch = {}
    for name, array in zip(names, arrays, strict=True):
        if array.type in _TORCH_TYPES:
            batch[name] = _tensor(array)
        else:
            batch |= _list_tensors(name, array)
    return batch


def record_batch_tensors(record_batch: pa.RecordBatch) -> Batch:
    """Returns views of the columns of ``record_batch``."""
    return _tensors(record_batch.schema.names, record_batch.columns)


def table_tensors(table: pa.Table) -> Batch:
    """Returns the columns of ``table``: views, where a column is in one piece."""
    pieces = (
        column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        for column in table.columns
    )
    return _tensors(table.column_names, pieces)


def _rows(batch: Batch) -> int:
    return len(next(iter(batch.values())))


def _concatenated(pieces: list[Batch]) -> Batch:
    return {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}


def rebatched(parts: Iterable[Batch], batch_size: Any) -> Iterator[Batch]:
    """Cuts parts of any length into exact batches; only a batch that straddles parts is copied."""
    carried: list[Batch] = []
    carried_rows = 0
    for part in parts:
        begin = min(batch_size - carried_rows, _rows(part)) if carried else 0
        if begin:
            carried.append({name: tensor[:begin] for name, tensor in part.items()})
            carried_rows += begin
            if carried_rows < batch_size:
                continue
            yield _concatenated(carried)
        carried = []
        end = begin + (_rows(part) - begin) // batch_size * batch_size
        if begin < end:
            columns = [torch.split(tensor[begin:end], batch_size) for tensor in part.values()]
            for views in zip(*columns, strict=True):
                yield dict(zip(part, views, strict=True))
        carried_rows = _rows(part) - end
        if carried_rows:
            carried = [{name: tensor[end:] for name, tensor in part.items()}]
    if carried:
        yield _concatenated(carried)


def prefetched(
    reads: Iterable[Callable[[], Batch]], num_threads: int, ahead: int
) -> Iterator[Batch]:
    """Runs ``reads`` on background threads and yields their results in order.

    Args:
        reads: each reads one part of the file.
        num_threads: Python threads that run them; pyarrow holds no GIL while it decodes.
        ahead: parts that are read or wait beside the one that the consumer holds.
    """
    with ThreadPoolExecutor(num_threads) as threads:
        pending: deque[Future[Batch]] = deque()
        for read in reads:
            pending.append(threads.submit(read))
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def iter_batches(open_file: Open) -> Read:
    """``ParquetFile.iter_batches`` of the wanted size."""

    def batches(path: Path, batch_size: int | None) -> Iterator[Batch]:
        with open_file(path) as file:
            for record_batch in file.iter_batches(batch_size=batch_size, use_threads=True):
                yield record_batch_tensors(record_batch)

    return batches


def iter_large_batches(open_file: Open, multiple: int, ahead: int) -> Read:
    """``ParquetFile.iter_batches`` of ``multiple`` batches, read ``ahead`` and then cut."""

    def batches(path: Path, batch_size: int | None) -> Iterator[Batch]:
        with open_file(path) as file:
            large = file.iter_batches(batch_size=batch_size * multiple, use_threads=True)  # type: ignore[operator]
            if not ahead:
                yield from rebatched(map(record_batch_tensors, large), batch_size)
                return
            # One thread: an iterator serves one caller at a time.
            total = -(-file.metadata.num_rows // (batch_size * multiple))  # type: ignore[operator]
            reads = [lambda: record_batch_tensors(next(large))] * total
            yield from rebatched(prefetched(reads, 1, ahead), batch_size)

    return batches


def row_groups(open_file: Open, ahead: int) -> Read:
    """``read_row_group`` as a table, whole; the next ``ahead`` read by a background thread."""

    def batches(path: Path, batch_size: int | None) -> Iterator[Batch]:
        del batch_size
        with open_file(path) as file:

            def read(i: Any) -> Batch:
                return table_tensors(file.read_row_group(i, use_threads=True))

            reads = [partial(read, i) for i in range(file.num_row_groups)]
            if ahead:
                yield from prefetched(reads, 1, ahead)
            else:
                yield from (read() for read in reads)

    return batches


def parallel_row_groups(open_file: Open, num_threads: int, ahead: int) -> Read:
    """Whole row groups, one per Python thread, each decoded by that thread alone.

    ``num_threads`` threads stand in for pyarrow's own CPU threads, which stay idle.
    """

    def batches(path: Path, batch_size: int | None) -> Iterator[Batch]:
        del batch_size
        metadata = pq.read_metadata(path)

        def read(i: Any) -> Batch:
            # A ParquetFile is not safe to share between threads; opening with metadata is cheap.
            with pq.ParquetFile(
                path,
                metadata=metadata,
                memory_map=open_file.memory_map,
                pre_buffer=open_file.pre_buffer,
            ) as file:
                return table_tensors(file.read_row_group(i, use_threads=False))

        reads = [partial(read, i) for i in range(metadata.num_row_groups)]
        yield from prefetched(reads, num_threads, ahead)

    return batches


def cut(route: Read) -> Read:
    """Cuts the parts that ``route`` yields into exact batches."""
    return lambda path, batch_size: rebatched(route(path, batch_size), batch_size)


@dataclass(frozen=True)
class ScanOptions:
    """The settings that ``pyarrow.dataset`` lets its users tune."""

    batch_readahead: int = 16
    fragment_readahead: int = 4
    pre_buffer: bool = True
    multiple: int = 1


def scanner(options: ScanOptions) -> Read:
    """``Dataset.to_batches``; with ``multiple`` above 1, large batches that are then cut."""

    def batches(path: Path, batch_size: int | None) -> Iterator[Batch]:
        scan_options = pads.ParquetFragmentScanOptions(pre_buffer=options.pre_buffer)
        file_format = pads.ParquetFileFormat(default_fragment_scan_options=scan_options)
        scanned = pads.dataset(path, format=file_format).to_batches(
            batch_size=batch_size * options.multiple,  # type: ignore[operator]
            batch_readahead=options.batch_readahead,
            fragment_readahead=options.fragment_readahead,
            use_threads=True,
        )
        parts = (record_batch_tensors(b) for b in scanned if b.num_rows)
        yield from rebatched(parts, batch_size) if options.multiple > 1 else parts

    return batches
