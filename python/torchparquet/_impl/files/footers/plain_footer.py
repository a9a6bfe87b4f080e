"""Footers that pyarrow can read, of files whose columns it cannot express.

pyarrow makes an Arrow schema of all columns, whichever are read, and refuses a file for one that it
cannot express: a map with an optional key, or an Arrow schema of another library. Such a footer is
written anew without the Arrow schema and, if that is not enough, without nested columns.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeVar

import pyarrow as pa

from torchparquet._impl.files.remote.store import RangeFile

_MAGIC = b"PAR1"
_TAIL_BYTES = 8

# Kinds of values in Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12

_Field = tuple[int, int, bytes]  # number, kind, value
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
                return make(_plain_file(open_source(), keep_nested=keep_nested))
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


def _plain_file(file: Any, *, keep_nested: bool) -> RangeFile:
    """Return a file, and after its end a footer that replaces its own."""
    footer = plain_footer(footer_in(file), keep_nested=keep_nested)
    end = footer + len(footer).to_bytes(4, "little") + _MAGIC
    begin_of_end = file.seek(0, os.SEEK_END)

    def read(offset: int, num_bytes: int) -> bytes:
        last = offset + num_bytes
        file.seek(offset)
        kept = bytes(file.read(max(0, min(last, begin_of_end) - offset)))
        content = kept + end[max(0, offset - begin_of_end) : max(0, last - begin_of_end)]
        if len(content) != num_bytes:
            raise OSError("the file is shorter than before")
        return content

    return RangeFile(begin_of_end + len(end), read, file.close)


def plain_footer(footer: bytes, *, keep_nested: bool) -> bytes:
    """Return a footer without an Arrow schema and, perhaps, without nested columns."""
    fields = [field for field in _fields(footer) if field[0] != 5]
    if keep_nested:
        return _struct(fields)
    values = {number: value for number, _, value in fields}
    root, *elements = map(_fields, _items(values[2]))
    columns, leaves, num_leaves, left = [], [], 0, 0
    for element in elements:
        children = next((_zigzag(value) for number, _, value in element if number == 5), 0)
        if left == 0 and not children:
            columns.append(_struct(element))
            leaves.append(num_leaves)
        num_leaves += not children
        left = max(left, 1) + children - 1
    count = _varint_bytes(len(columns) << 1)
    root = [(n, kind, count if n == 5 else value) for n, kind, value in root]
    row_groups = [_row_group(_fields(value), leaves) for value in _items(values[4])]
    replaced = {2: _list([_struct(root), *columns]), 4: _list(row_groups)}
    return _struct([(n, kind, replaced.get(n, value)) for n, kind, value in fields if n != 7])


def _row_group(fields: list[_Field], leaves: list[int]) -> bytes:
    """Return a row group of some column chunks, without sorting columns: numbers of leaves."""
    chunks = _items(next(value for number, _, value in fields if number == 1))
    kept = _list([chunks[leaf] for leaf in leaves])
    return _struct([(n, kind, kept if n == 1 else value) for n, kind, value in fields if n != 4])


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a number that begins at a byte, and its end."""
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _zigzag(content: bytes, at: int = 0) -> int:
    word, _ = _varint(content, at)
    return (word >> 1) ^ -(word & 1)


def _varint_bytes(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def _end(content: bytes, at: int, kind: int) -> int:
    """Return the end of a value of a kind that begins at a byte."""
    if kind in (_TRUE, _FALSE):
        return at
    if kind in (_BYTE, _DOUBLE):
        return at + (1 if kind == _BYTE else 8)
    if kind in (_LIST, _SET):
        return _walk_list(content, at)[-1]
    if kind == _STRUCT:
        return _walk_struct(content, at)[1]
    length, end = _varint(content, at)
    return end + length if kind == _BINARY else end


def _walk_list(content: bytes, at: int) -> list[int]:
    """Return where the items of a list begin, and its end."""
    count, kind, at = content[at] >> 4, content[at] & 15, at + 1
    if count == 15:
        count, at = _varint(content, at)
    bounds = [at]
    for _ in range(count):
        bounds.append(_end(content, bounds[-1], _BYTE if kind in (_TRUE, _FALSE) else kind))
    return bounds


def _walk_struct(content: bytes, at: int) -> tuple[list[_Field], int]:
    """Return the fields of a struct, and its end."""
    fields, number = [], 0
    while content[at]:
        header, at = content[at], at + 1
        if header >> 4:
            number += header >> 4
        else:
            number, at = _zigzag(content, at), _varint(content, at)[1]
        end = _end(content, at, header & 15)
        fields.append((number, header & 15, content[at:end]))
        at = end
    return fields, at + 1


def _fields(content: bytes) -> list[_Field]:
    return _walk_struct(content, 0)[0]


def _items(content: bytes) -> list[bytes]:
    return [content[begin:end] for begin, end in pairwise(_walk_list(content, 0))]


def _struct(fields: list[_Field]) -> bytes:
    parts, last = [], 0
    for number, kind, value in fields:
        step = number - last
        short = 0 < step < 16
        head = bytes([step << 4 | kind]) if short else bytes([kind]) + _varint_bytes(number << 1)
        parts += [head, value]
        last = number
    return b"".join(parts) + b"\0"


def _list(structs: list[bytes]) -> bytes:
    count = len(structs)
    few = count < 15
    head = bytes([(count if few else 15) << 4 | _STRUCT])
    return b"".join([head if few else head + _varint_bytes(count), *structs])
