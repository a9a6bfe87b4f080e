"""Reads every byte of batches, torchparquet's and pyarrow's alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
from numpy.typing import NDArray

from torchparquet.jagged import Jagged

Bytes = NDArray[np.uint8]


@dataclass
class PassTotals:
    """The totals of one pass over the data.

    Attributes:
        checksum: Sum of all bytes as 64-bit words; it only proves that they were read.
    """

    rows: int = 0
    num_bytes: int = 0
    batches: int = 0
    checksum: int = 0

    def add(self, rows: int, parts: Iterable[Bytes]) -> None:
        """Read the bytes of one batch."""
        self.rows += rows
        self.batches += 1
        for part in parts:
            words = len(part) // 8 * 8
            total = int(part[:words].view(np.uint64).sum()) + int(part[words:].sum())
            self.checksum = (self.checksum + total) % 2**64
            self.num_bytes += len(part)


def bytes_of_tensors(values: Any) -> Iterator[Bytes]:
    """Yield the memory of a tensor, or of all tensors of a `Jagged`."""
    if isinstance(values, Jagged):
        yield from bytes_of_tensors(values.offsets)
        yield from bytes_of_tensors(values.values)
    else:
        yield np.ascontiguousarray(values.numpy()).reshape(-1).view(np.uint8)


def bytes_of_array(array: Any) -> Iterator[Bytes]:
    """Yield the memory of a pyarrow array of any type; of a slice, its part alone."""
    kind, begin, end = array.type, array.offset, array.offset + len(array)
    if isinstance(kind, pa.BaseExtensionType):
        yield from bytes_of_array(array.storage)
        return
    if pa.types.is_dictionary(kind):
        yield from bytes_of_array(array.indices)
        yield from bytes_of_array(array.dictionary)
        return
    buffers = array.buffers()
    if pa.types.is_null(kind) or not len(array):
        return
    if buffers[0] is not None:
        yield _bits(buffers[0], begin, end)
    if pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            yield from bytes_of_array(array.field(index))
    elif pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        yield from bytes_of_array(array.values.slice(begin * size, len(array) * size))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        yield from _bytes_of_lists(array)
    elif kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        offsets = _offsets(buffers[1], kind in (pa.large_string(), pa.large_binary()), begin, end)
        yield offsets.view(np.uint8)
        if buffers[2] is not None:
            yield np.frombuffer(buffers[2], np.uint8)[int(offsets[0]) : int(offsets[-1])]
    elif kind.bit_width == 1:
        yield _bits(buffers[1], begin, end)
    else:
        width = kind.bit_width // 8
        yield np.frombuffer(buffers[1], np.uint8)[begin * width : end * width]


def _bytes_of_lists(array: Any) -> Iterator[Bytes]:
    kind, begin, end = array.type, array.offset, array.offset + len(array)
    offsets = _offsets(array.buffers()[1], pa.types.is_large_list(kind), begin, end)
    yield offsets.view(np.uint8)
    child = (
        pa.StructArray.from_arrays([array.keys, array.items], ["k", "v"])
        if pa.types.is_map(kind)
        else array.values
    )
    first, last = int(offsets[0]), int(offsets[-1])
    yield from bytes_of_array(child.slice(first, last - first))


def _bits(buffer: Any, begin: int, end: int) -> Bytes:
    return np.frombuffer(buffer, np.uint8)[begin // 8 : -(-end // 8)]


def _offsets(buffer: Any, is_large: bool, begin: int, end: int) -> NDArray[Any]:
    return np.frombuffer(buffer, np.int64 if is_large else np.int32)[begin : end + 1]
