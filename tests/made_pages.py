"""Column chunks whose pages are made by hand: levels in either encoding, rows over many pages.

No writer at hand writes these any more. Levels and their decoder are plain loops after
parquet-format's Encodings.md; the file around them is pyarrow's.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from thrift_bytes import (
    META_COMPRESSED_BYTES,
    META_DATA_OFFSET,
    META_NUM_VALUES,
    META_UNCOMPRESSED_BYTES,
    column_metadata,
    encoded_struct,
    pages,
    replaced,
)

RLE, BIT_PACKED = 3, 4


class Levels(NamedTuple):
    """The highest levels of a column."""

    repetition: int
    definition: int


class Entry(NamedTuple):
    """One entry of a column: its levels and, where the definition level is the highest, a value."""

    repetition: int
    definition: int
    value: Any = None


def width_of(max_level: int) -> int:
    return max_level.bit_length()


def packed_from_the_highest_bit(levels: Iterable[int], width: int) -> bytes:
    """Levels in the deprecated encoding BIT_PACKED."""
    bits = "".join(f"{level:0{width}b}" for level in levels)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))


def unpacked_from_the_highest_bit(data: bytes, width: int, count: int) -> list[int]:
    bits = "".join(f"{byte:08b}" for byte in data)
    return [int(bits[i * width : (i + 1) * width], 2) for i in range(count)]


def as_runs(levels: Iterable[int], width: int) -> bytes:
    """Levels as repeated runs of the hybrid encoding, behind their length."""
    encoded = b""
    for level, run in itertools.groupby(levels):
        encoded += _varint(len(list(run)) << 1) + level.to_bytes((width + 7) // 8, "little")
    return struct.pack("<I", len(encoded)) + encoded


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def page(
    entries: Sequence[Entry],
    levels: Levels,
    encoding: int = RLE,
    form: str = "<i",
    missing_bytes: int = 0,
) -> bytes:
    """A V1 page of PLAIN values with its header.

    `form` is that of :mod:`struct` for a value; `missing_bytes` of the last values are left out.
    """
    body = b""
    for kind, most in enumerate(levels):
        if most:
            encode = as_runs if encoding == RLE else packed_from_the_highest_bit
            body += encode([entry[kind] for entry in entries], width_of(most))
    for entry in entries:
        if entry.definition == levels.definition:
            body += struct.pack(form, entry.value)
    body = body[: len(body) - missing_bytes]
    details = encoded_struct({1: len(entries), 2: 0, 3: encoding, 4: encoding})
    return encoded_struct({1: 0, 2: len(body), 3: len(body), 5: details}) + body


def write_pages(
    path: Path, field: pa.Field, num_rows: int, made: Sequence[bytes], num_entries: int
) -> str:
    """Write a file of one column chunk that has these pages instead of pyarrow's."""
    schema = pa.schema([field])
    rows = [[0]] * num_rows if pa.types.is_nested(field.type) else [0] * num_rows
    table = pa.Table.from_arrays([pa.array(rows, field.type)], schema=schema)
    options = {"use_dictionary": False, "compression": "none", "write_statistics": False}
    pq.write_table(table, path, **options)
    content = path.read_bytes()
    metadata = column_metadata(content, 0, 0)
    begin = metadata[META_DATA_OFFSET].value
    end = begin + metadata[META_COMPRESSED_BYTES].value
    content = content[:begin] + b"".join(made) + content[end:]
    sizes = {
        META_NUM_VALUES: num_entries,
        META_UNCOMPRESSED_BYTES: sum(map(len, made)),
        META_COMPRESSED_BYTES: sum(map(len, made)),
    }
    for number, value in sizes.items():
        content = replaced(content, column_metadata(content, 0, 0)[number], value)
    path.write_bytes(content)
    return str(path)


def decoded(path: str, levels: Levels, form: str = "<i") -> list[Entry]:
    """The entries of a file whose levels are BIT_PACKED, from its bytes, as slowly as can be."""
    content = Path(path).read_bytes()
    entries = []
    for found in pages(path):
        count = found.details[1].value
        assert found.details[3].value == found.details[4].value == BIT_PACKED
        at, columns = found.begin, []
        for most in levels:
            num_bytes = (count * width_of(most) + 7) // 8
            column = [0] * count
            if most:
                data = content[at : at + num_bytes]
                column = unpacked_from_the_highest_bit(data, width_of(most), count)
            columns.append(column)
            at += num_bytes if most else 0
        for repetition, definition in zip(*columns, strict=True):
            value = None
            if definition == levels.definition:
                (value,) = struct.unpack_from(form, content, at)
                at += struct.calcsize(form)
            entries.append(Entry(repetition, definition, value))
        assert at == found.end
    return entries


def list_entries(rows: Iterable[list[int | None] | None]) -> list[Entry]:
    """Rows of a nullable list of nullable numbers, whose highest levels are 1 and 3."""
    entries = []
    for row in rows:
        if not row:
            entries.append(Entry(0, 0 if row is None else 1))
        for place, value in enumerate(row or []):
            entries.append(Entry(int(place > 0), 2 if value is None else 3, value))
    return entries


def list_rows(entries: Iterable[Entry]) -> list[list[int | None] | None]:
    """What `list_entries` made entries of."""
    rows: list[list[int | None] | None] = []
    for repetition, definition, value in entries:
        if repetition == 0:
            rows.append(None if definition == 0 else [])
        if definition >= 2:
            row = rows[-1]
            assert row is not None
            row.append(value)
    return rows
