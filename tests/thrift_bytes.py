"""Where the numbers of a Parquet file's footer and page headers stand, to check and to falsify.

A reader of Thrift's compact protocol, apart from the package's and pyarrow's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

# Field numbers of parquet.thrift.
FILE_NUM_ROWS, FILE_ROW_GROUPS = 3, 4
GROUP_COLUMNS, GROUP_NUM_ROWS = 1, 3
COLUMN_META_DATA = 3
META_NUM_VALUES, META_UNCOMPRESSED_BYTES, META_COMPRESSED_BYTES = 5, 6, 7
META_DATA_OFFSET, META_DICTIONARY_OFFSET = 9, 11
PAGE_TYPE, PAGE_BYTES, PAGE_COMPRESSED_BYTES, PAGE_CRC = 1, 2, 3, 4
PAGE_HEADERS = {0: 5, 2: 7, 3: 8}  # by page type: data, dictionary, data version 2
PLAIN, RLE_DICTIONARY = 0, 8


class Number(NamedTuple):
    """An integer and the bytes `[begin, end)` that hold it, zigzag encoded."""

    value: int
    begin: int
    end: int


class Items(list[Any]):
    """A list, and the bytes `[begin, end)` that hold its size and its elements' type."""

    def __init__(self, items: list[Any], begin: int, end: int, kind: int) -> None:
        super().__init__(items)
        self.begin, self.end, self.kind = begin, end, kind


class Page(NamedTuple):
    """A page's header and the bytes `[begin, end)` of its body."""

    header: dict[int, Any]
    begin: int
    end: int

    @property
    def is_data(self) -> bool:
        return self.header[PAGE_TYPE].value in (0, 3)

    @property
    def details(self) -> dict[int, Any]:
        """The header of the page's own type: num_values is 1, a data page's encoding 2 (V2: 4)."""
        return self.header[PAGE_HEADERS[self.header[PAGE_TYPE].value]]

    @property
    def encoding(self) -> int:
        return self.details[4 if self.header[PAGE_TYPE].value == 3 else 2].value


def footer(content: bytes) -> dict[int, Any]:
    """The FileMetaData of a file's bytes, by field number."""
    fields, _ = _struct(content, footer_begin(content))
    return fields


def footer_begin(content: bytes) -> int:
    """Offset of the footer."""
    return len(content) - 8 - int.from_bytes(content[-8:-4], "little")


def column_metadata(content: bytes, row_group: int, column: int) -> dict[int, Any]:
    """The ColumnMetaData of a column chunk."""
    return footer(content)[FILE_ROW_GROUPS][row_group][GROUP_COLUMNS][column][COLUMN_META_DATA]


def pages(path: Path | str, row_group: int = 0, column: int = 0) -> list[Page]:
    """The pages of a column chunk, that of the dictionary first."""
    content = Path(path).read_bytes()
    return pages_of(content, column_metadata(content, row_group, column))


def chunk_begin(metadata: dict[int, Any]) -> int:
    """Offset of a column chunk's first page."""
    keys = (META_DATA_OFFSET, META_DICTIONARY_OFFSET)
    return min(metadata[key].value for key in keys if key in metadata)


def pages_of(content: bytes, metadata: dict[int, Any]) -> list[Page]:
    """The pages of the column chunk with that ColumnMetaData."""
    begin = chunk_begin(metadata)
    found, at = [], begin
    while at < begin + metadata[META_COMPRESSED_BYTES].value:
        header, body = _struct(content, at)
        at = body + header[PAGE_COMPRESSED_BYTES].value
        found.append(Page(header, body, at))
    return found


def numbers(value: Any) -> Iterator[Number]:
    """All numbers of a struct, those of inner structs and lists too."""
    if isinstance(value, Number):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from numbers(inner)


def lists(value: Any) -> Iterator[Items]:
    """All lists of a struct, those of inner structs and lists too."""
    if isinstance(value, Items):
        yield value
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from lists(inner)


def num_bytes(value: int) -> int:
    """Bytes that a number takes."""
    return len(_zigzag(value))


def replaced(content: bytes, number: Number, value: int) -> bytes:
    """`content` with another value in the number's place, and the footer's length set right.

    Offsets within the footer still count from the file's start: they are wrong from here on
    where the new value takes another number of bytes than the old one.
    """
    return _spliced(content, number.begin, number.end, _zigzag(value))


def resized(content: bytes, items: Items, size: int) -> bytes:
    """`content` with another size in the list's head, and the footer's length set right."""
    return _spliced(content, items.begin, items.end, bytes([0xF0 | items.kind]) + _encoded(size))


def _spliced(content: bytes, begin: int, end: int, new: bytes) -> bytes:
    grown = len(new) - (end - begin) if begin >= footer_begin(content) else 0
    changed = content[:begin] + new + content[end:]
    length = int.from_bytes(content[-8:-4], "little") + grown
    return changed[:-8] + length.to_bytes(4, "little") + changed[-4:]


def all_replaced(content: bytes, values: dict[Number, int]) -> bytes:
    """`content` with other values in several numbers' places."""
    for number in sorted(values, key=lambda number: -number.begin):
        content = replaced(content, number, values[number])
    return content


def encoded_struct(fields: dict[int, int | bytes]) -> bytes:
    """A struct of 32-bit integers and, as bytes that this function returned, of structs."""
    encoded, last = b"", 0
    for number, value in fields.items():
        kind = 12 if isinstance(value, bytes) else 5
        encoded += bytes([(number - last) << 4 | kind])
        encoded += value if isinstance(value, bytes) else _zigzag(value)
        last = number
    return encoded + b"\0"


def _zigzag(value: int) -> bytes:
    return _encoded(((value << 1) ^ (value >> 63)) & (2**64 - 1))


def _encoded(rest: int) -> bytes:
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _number(content: bytes, at: int) -> tuple[Number, int]:
    value, end = _varint(content, at)
    return Number((value >> 1) ^ -(value & 1), at, end), end


def _struct(content: bytes, at: int) -> tuple[dict[int, Any], int]:
    fields: dict[int, Any] = {}
    number = 0
    while content[at]:
        delta, kind = content[at] >> 4, content[at] & 15
        at += 1
        if delta:
            number += delta
        else:
            field, at = _number(content, at)
            number = field.value
        if kind in (1, 2):
            fields[number] = kind == 1
        else:
            fields[number], at = _value(content, at, kind)
    return fields, at + 1


def _value(content: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (1, 2, 3):  # a byte; booleans within lists are bytes too
        return content[at], at + 1
    if kind in (4, 5, 6):
        return _number(content, at)
    if kind == 7:
        return content[at : at + 8], at + 8
    if kind == 8:
        size, at = _varint(content, at)
        return content[at : at + size], at + size
    if kind in (9, 10):
        begin = at
        size, kind = content[at] >> 4, content[at] & 15
        at += 1
        if size == 15:
            size, at = _varint(content, at)
        items = Items([], begin, at, kind)
        for _ in range(size):
            item, at = _value(content, at, kind)
            items.append(item)
        return items, at
    if kind == 12:
        return _struct(content, at)
    raise ValueError(f"no such type: {kind}")
