"""Footers that pyarrow can read, of files whose columns it cannot express.

pyarrow makes an Arrow schema of all columns, whichever are read, and refuses a file for one that it
cannot express: a map with an optional key, or an Arrow schema of another library. Such a footer is
written anew without the Arrow schema and, if that is not enough, without nested columns.
"""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa

_MAGIC = b"PAR1"
_TAIL_BYTES = 8

# Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12

# A field's number and type, and the bytes of its value.
_Field = tuple[int, int, bytes]
_Result = TypeVar("_Result")


def made_of_any(
    make: Callable[[Any], _Result], source: Any, open_source: Callable[[], Any]
) -> _Result:
    """Return what ``make`` makes of a file, with a plain footer if pyarrow refuses its own."""
    try:
        return make(source)
    except (pa.ArrowException, OSError) as refused:
        for keep_nested in (True, False):
            try:
                return make(PlainFile(open_source(), keep_nested=keep_nested))
            except (pa.ArrowException, OSError, IndexError, StopIteration):
                continue
        raise refused


def metadata_of(footer: bytes) -> Any:
    """Return pyarrow's ``FileMetaData`` of a footer; it needs no Arrow schema."""
    from pyarrow._parquet import _reconstruct_filemetadata

    return _reconstruct_filemetadata(pa.py_buffer(footer))


def footer_in(file: Any) -> bytes:
    """Return the footer of an open file without its length and magic bytes."""
    num_bytes = file.seek(0, os.SEEK_END)
    file.seek(max(0, num_bytes - _TAIL_BYTES))
    tail = file.read(_TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or length > num_bytes - _TAIL_BYTES:
        raise OSError("the file does not end as a Parquet file")
    file.seek(num_bytes - _TAIL_BYTES - length)
    footer: bytes = file.read(length)
    return footer


class PlainFile(io.RawIOBase):
    """A file, and after its end a footer that replaces its own."""

    def __init__(self, file: Any, *, keep_nested: bool) -> None:
        """Read the footer."""
        self._file = file
        footer = plain_footer(footer_in(file), keep_nested=keep_nested)
        self._end = footer + len(footer).to_bytes(4, "little") + _MAGIC
        self._begin_of_end = file.seek(0, os.SEEK_END)
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a place in the file."""
        size = self._begin_of_end + len(self._end)
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: size}[whence]
        return self._at

    def tell(self) -> int:
        """Return the place in the file."""
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes, fewer than ``size`` at the end of the file."""
        total = self._begin_of_end + len(self._end)
        left = max(0, total - self._at)
        size = left if size is None or size < 0 else min(size, left)
        parts = []
        while size > 0:
            if self._at < self._begin_of_end:
                self._file.seek(self._at)
                part = self._file.read(min(size, self._begin_of_end - self._at))
                if not part:
                    break
            else:
                begin = self._at - self._begin_of_end
                part = self._end[begin : begin + size]
            parts.append(part)
            self._at += len(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._file.close()
        super().close()


def plain_footer(footer: bytes, *, keep_nested: bool) -> bytes:
    """Return a footer without an Arrow schema and, perhaps, without nested columns."""
    fields, _ = _struct(footer, 0)
    kept: list[_Field] = []
    leaves = None if keep_nested else _flat_leaves(fields)
    for number, kind, value in fields:
        if number == 2 and leaves is not None:
            value = _flat_schema(value)
        elif number == 4 and leaves is not None:
            value = _list_of(_STRUCT, [_row_group(one, leaves) for one in _items(value)])
        elif number == 5 or (number == 7 and leaves is not None):
            continue
        kept.append((number, kind, value))
    return _written(kept)


def _flat_leaves(fields: list[_Field]) -> list[int]:
    """Return the numbers of the leaves that are columns by themselves."""
    elements = [_struct(one, 0)[0] for one in _items(_value(fields, 2))]
    flat, leaf = [], 0
    for at, size in _top_level(elements):
        if size == 1:
            flat.append(leaf)
        leaf += sum(1 for element in elements[at : at + size] if not _num_children(element))
    return flat


def _flat_schema(value: bytes) -> bytes:
    items = _items(value)
    elements = [_struct(one, 0)[0] for one in items]
    flat = [items[at] for at, size in _top_level(elements) if size == 1]
    root = [
        (number, kind, _zigzag(len(flat)) if number == 5 else one)
        for number, kind, one in elements[0]
    ]
    return _list_of(_STRUCT, [_written(root), *flat])


def _top_level(elements: list[list[_Field]]) -> Iterator[tuple[int, int]]:
    """Yield where each column begins among the elements of a schema, and its number of these."""
    at = 1
    while at < len(elements):
        begin, left = at, 1
        while left:
            left += _num_children(elements[at]) - 1
            at += 1
        yield begin, at - begin


def _num_children(element: list[_Field]) -> int:
    for number, _, value in element:
        if number == 5:
            word = _varint(value, 0)[0]
            return (word >> 1) ^ -(word & 1)
    return 0


def _row_group(value: bytes, leaves: list[int]) -> bytes:
    fields, _ = _struct(value, 0)
    chunks = _items(_value(fields, 1))
    kept = _list_of(_STRUCT, [chunks[leaf] for leaf in leaves])
    # Without the sorting columns, which are numbers of leaves.
    return _written(
        [
            (number, kind, kept if number == 1 else one)
            for number, kind, one in fields
            if number != 4
        ]
    )


def _value(fields: list[_Field], wanted: int) -> bytes:
    return next(value for number, _, value in fields if number == wanted)


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _as_varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def _zigzag(value: int) -> bytes:
    return _as_varint(value << 1)


def _struct(content: bytes, at: int) -> tuple[list[_Field], int]:
    """Return the fields of a struct, and its end."""
    fields, number = [], 0
    while content[at]:
        header, at = content[at], at + 1
        if header >> 4:
            number += header >> 4
        else:
            word, at = _varint(content, at)
            number = (word >> 1) ^ -(word & 1)
        end = _end(content, at, header & 15)
        fields.append((number, header & 15, content[at:end]))
        at = end
    return fields, at + 1


def _end(content: bytes, at: int, kind: int) -> int:
    if kind in (_TRUE, _FALSE):
        return at
    if kind == _BYTE:
        return at + 1
    if kind == _DOUBLE:
        return at + 8
    if kind == _BINARY:
        length, at = _varint(content, at)
        return at + length
    if kind in (_LIST, _SET):
        return _places(content, at)[-1]
    if kind == _STRUCT:
        return _struct(content, at)[1]
    return _varint(content, at)[1]


def _places(content: bytes, at: int) -> list[int]:
    """Return where each item of a list begins, and the end of the list."""
    count, kind, at = content[at] >> 4, content[at] & 15, at + 1
    if count == 15:
        count, at = _varint(content, at)
    places = [at]
    for _ in range(count):
        # Bools in lists have a byte.
        at = at + 1 if kind in (_TRUE, _FALSE) else _end(content, at, kind)
        places.append(at)
    return places


def _items(value: bytes) -> list[bytes]:
    places = _places(value, 0)
    return [value[begin:end] for begin, end in itertools.pairwise(places)]


def _list_of(kind: int, items: list[bytes]) -> bytes:
    few = len(items) < 15
    header = (
        bytes([len(items) << 4 | kind]) if few else bytes([240 | kind]) + _as_varint(len(items))
    )
    return header + b"".join(items)


def _written(fields: list[_Field]) -> bytes:
    out, last = [], 0
    for number, kind, value in fields:
        step = number - last
        short = 0 < step < 16
        out.append(bytes([step << 4 | kind]) if short else bytes([kind]) + _zigzag(number))
        out.append(value)
        last = number
    return b"".join(out) + b"\0"
