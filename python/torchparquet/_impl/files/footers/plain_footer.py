"""Footers that pyarrow can read, of files whose columns it cannot express.

pyarrow makes an Arrow schema of all columns, whichever are read, and refuses a file for one that it
cannot express: a map with an optional key, or an Arrow schema of another library. Such a footer is
taken without the Arrow schema or, if that is not enough, written anew without nested columns.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa

from torchparquet._impl.files.remote.store import RangeFile

_MAGIC = b"PAR1"
_TAIL_BYTES = 8
_END_BYTES = 1 << 16  # pyarrow reads so much of a file's end before it knows the footer's length
_ARROW_SCHEMA = b"\x0cARROW:schema"  # a key of the footer, after its length

# Kinds of values in Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12

_Result = TypeVar("_Result")


def made_of_any(
    make: Callable[[Any], _Result], source: Any, open_source: Callable[[], Any]
) -> _Result:
    """Return what ``make`` makes of a file, with a plain footer if pyarrow refuses its own."""
    try:
        return make(source)
    except (pa.ArrowException, OSError) as refused:
        for plain in (_without_arrow_schema, _without_nested_columns):
            try:
                file = open_source()
                return make(with_footer(file, plain(footer_in(file))))
            except (pa.ArrowException, OSError, LookupError, TypeError):
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


def with_footer(file: Any, footer: bytes) -> RangeFile:
    """Return a file, and after its end a footer that replaces its own."""
    end = bytes(_END_BYTES) + footer + len(footer).to_bytes(4, "little") + _MAGIC
    begin_of_end = file.seek(0, os.SEEK_END)

    def read(offset: int, num_bytes: int) -> bytes:
        last = offset + num_bytes
        file.seek(min(offset, begin_of_end))
        kept = bytes(file.read(max(0, min(last, begin_of_end) - offset)))
        content = kept + end[max(0, offset - begin_of_end) : max(0, last - begin_of_end)]
        if len(content) != num_bytes:
            raise OSError("the file is shorter than before")
        return content

    return RangeFile(begin_of_end + len(end), read, file.close)


def _without_arrow_schema(footer: bytes) -> bytes:
    """Return a footer in which the Arrow schema has a key that nobody looks for."""
    # The last such text: row groups and schema, which come before, may hold it too.
    before, key, after = footer.rpartition(_ARROW_SCHEMA)
    return before + key.lower() + after


def _without_nested_columns(footer: bytes) -> bytes:
    """Return a footer without nested columns and without other lists of columns."""
    fields = _read(io.BytesIO(footer), _STRUCT)
    _, (_, (root, *elements)) = fields[2]
    columns, leaves, num_leaves, left = [], [], 0, 0
    for element in elements:
        children = element[5][1] >> 1 if 5 in element else 0
        if left == 0 and not children:
            columns.append(element)
            leaves.append(num_leaves)
        num_leaves += not children
        left = max(left, 1) + children - 1
    root[5] = (root[5][0], len(columns) << 1)
    fields[2] = (_LIST, (_STRUCT, [root, *columns]))
    _, (_, row_groups) = fields[4]
    for row_group in row_groups:
        _, (_, chunks) = row_group[1]
        row_group[1] = (_LIST, (_STRUCT, [chunks[leaf] for leaf in leaves]))
        row_group.pop(4, None)  # the columns that sort its rows
    for number in (5, 7):  # keys and values, the orders of columns
        fields.pop(number, None)
    return _written(_STRUCT, fields)


def _read(file: BinaryIO, kind: int) -> Any:
    """Return a value: of a struct kinds and values by number, of a list its kind and items."""
    if kind == _STRUCT:
        fields: dict[int, tuple[int, Any]] = {}
        number = 0
        while header := file.read(1)[0]:
            number = number + (header >> 4) if header >> 4 else _read_varint(file) >> 1
            fields[number] = (header & 15, _read(file, header & 15))
        return fields
    if kind in (_LIST, _SET):
        header = file.read(1)[0]
        count = header >> 4 if header >> 4 < 15 else _read_varint(file)
        of = _BYTE if header & 15 in (_TRUE, _FALSE) else header & 15
        return of, [_read(file, of) for _ in range(count)]
    if kind in (_TRUE, _FALSE):
        return b""
    if kind in (_BYTE, _DOUBLE):
        return file.read(1 if kind == _BYTE else 8)
    number = _read_varint(file)
    return file.read(number) if kind == _BINARY else number


def _written(kind: int, value: Any) -> bytes:
    """Return the bytes of what `_read` has returned, with no header in its short form."""
    if kind == _STRUCT:
        parts = [
            bytes([of]) + _varint(number << 1) + _written(of, inner)
            for number, (of, inner) in value.items()
        ]
        return b"".join([*parts, b"\0"])
    if kind in (_LIST, _SET):
        of, items = value
        parts = [_written(of, item) for item in items]
        return b"".join([bytes([15 << 4 | of]), _varint(len(items)), *parts])
    if isinstance(value, int):
        return _varint(value)
    return _varint(len(value)) + value if kind == _BINARY else bytes(value)


def _read_varint(file: BinaryIO) -> int:
    value = shift = 0
    while (byte := file.read(1)[0]) > 127:
        value |= (byte & 127) << shift
        shift += 7
    return value | byte << shift


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])
