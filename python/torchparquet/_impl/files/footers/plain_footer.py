"""Footers that pyarrow can read, of files whose columns it cannot express.

pyarrow makes an Arrow schema of all columns, whichever are read, and refuses a file for one that it
cannot express: a map with an optional key, or an Arrow schema of another library. Such a footer is
written anew without the Arrow schema and, if that is not enough, without nested columns.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa

from torchparquet._impl.files.remote.store import RangeFile

_MAGIC = b"PAR1"
_TAIL_BYTES = 8

# Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12

# A field: number, kind, value. The value of a struct is its fields, of a list or set the kind of
# its items and these, any other the bytes of it.
_Field = tuple[int, int, Any]
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
        parts = [b""]
        while offset < min(last, begin_of_end):
            parts.append(file.read(min(last, begin_of_end) - offset))
            if not parts[-1]:
                raise OSError("the file is shorter than before")
            offset += len(parts[-1])
        parts.append(end[offset - begin_of_end : max(0, last - begin_of_end)])
        return b"".join(parts)

    return RangeFile(begin_of_end + len(end), read, file.close)


def plain_footer(footer: bytes, *, keep_nested: bool) -> bytes:
    """Return a footer without an Arrow schema and, perhaps, without nested columns."""
    fields, _ = _read(footer, 0, _STRUCT)
    replaced: dict[int, Any] = {}
    left_out = {5}
    if not keep_nested:
        elements = _value(fields, 2)[1]
        columns, leaf, leaves = [], 0, []
        for size, at in _top_level(elements):
            if size == 1:
                columns.append(elements[at])
                leaves.append(leaf)
            leaf += sum(1 for element in elements[at : at + size] if not _num_children(element))
        count = _varint_bytes(len(columns) << 1)
        root = [(n, kind, count if n == 5 else value) for n, kind, value in elements[0]]
        row_groups = [_row_group(fields, leaves) for fields in _value(fields, 4)[1]]
        replaced = {2: (_STRUCT, [root, *columns]), 4: (_STRUCT, row_groups)}
        left_out.add(7)
    kept = [(n, kind, replaced.get(n, value)) for n, kind, value in fields if n not in left_out]
    return _written(_STRUCT, kept)


def _top_level(elements: list[list[_Field]]) -> list[tuple[int, int]]:
    """Return the number of elements of each column of a schema, and where they begin."""
    found, at = [], 1
    while at < len(elements):
        begin, left = at, 1
        while left:
            left += _num_children(elements[at]) - 1
            at += 1
        found.append((at - begin, begin))
    return found


def _num_children(element: list[_Field]) -> int:
    word = next((_varint(value, 0)[0] for number, _, value in element if number == 5), 0)
    return (word >> 1) ^ -(word & 1)


def _row_group(fields: list[_Field], leaves: list[int]) -> list[_Field]:
    chunks = [_value(fields, 1)[1][leaf] for leaf in leaves]
    # Without the sorting columns, which are numbers of leaves.
    return [
        (number, kind, (_STRUCT, chunks) if number == 1 else value)
        for number, kind, value in fields
        if number != 4
    ]


def _value(fields: list[_Field], wanted: int) -> Any:
    return next(value for number, _, value in fields if number == wanted)


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _varint_bytes(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def _read(content: bytes, at: int, kind: int) -> tuple[Any, int]:
    """Return the value of a kind that begins at a byte, and its end."""
    if kind == _STRUCT:
        return _read_struct(content, at)
    if kind in (_LIST, _SET):
        count, of, at = content[at] >> 4, content[at] & 15, at + 1
        if count == 15:
            count, at = _varint(content, at)
        of, items = (_BYTE if of in (_TRUE, _FALSE) else of), []
        for _ in range(count):
            item, at = _read(content, at, of)
            items.append(item)
        return (of, items), at
    if kind in (_TRUE, _FALSE):
        end = at
    elif kind in (_BYTE, _DOUBLE):
        end = at + (1 if kind == _BYTE else 8)
    else:
        length, end = _varint(content, at)
        end += length if kind == _BINARY else 0
    return content[at:end], end


def _read_struct(content: bytes, at: int) -> tuple[list[_Field], int]:
    fields, number = [], 0
    while content[at]:
        header, at = content[at], at + 1
        if header >> 4:
            number += header >> 4
        else:
            word, at = _varint(content, at)
            number = (word >> 1) ^ -(word & 1)
        value, at = _read(content, at, header & 15)
        fields.append((number, header & 15, value))
    return fields, at + 1


def _written(kind: int, value: Any) -> bytes:
    """Return the bytes of a value of a kind."""
    if kind in (_LIST, _SET):
        of, items = value
        few = len(items) < 15
        header = bytes([(len(items) if few else 15) << 4 | of])
        parts = [header if few else header + _varint_bytes(len(items))]
        return b"".join(parts + [_written(of, item) for item in items])
    if kind != _STRUCT:
        return bytes(value)
    parts, last = [], 0
    for number, of, one in value:
        step = number - last
        short = 0 < step < 16
        parts.append(bytes([step << 4 | of]) if short else bytes([of]) + _varint_bytes(number << 1))
        parts.append(_written(of, one))
        last = number
    return b"".join(parts) + b"\0"
