"""Facts from page headers that footers lack: checksums, and the encoding of each page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torchparquet._impl.native import PageHeader, parse_page_header
from torchparquet.errors import CorruptFileError
from torchparquet.tools.inspect.column_chunks import ChunkPlace

if TYPE_CHECKING:
    pass

_HEADER_BYTES = 1 << 10
_DICTIONARY_ENCODINGS = frozenset(["PLAIN_DICTIONARY", "RLE_DICTIONARY"])
# parquet.thrift, Encoding.
_ENCODINGS = {
    0: "PLAIN",
    2: "PLAIN_DICTIONARY",
    3: "RLE",
    4: "BIT_PACKED",
    5: "DELTA_BINARY_PACKED",
    6: "DELTA_LENGTH_BYTE_ARRAY",
    7: "DELTA_BYTE_ARRAY",
    8: "RLE_DICTIONARY",
    9: "BYTE_STREAM_SPLIT",
}


@dataclass
class PageFacts:
    """Facts from the pages of some column chunks of one column.

    Attributes:
        fallbacks: Column chunks that begin with a dictionary and continue without it.
    """

    num_chunks: int = 0
    num_pages: int = 0
    num_checksums: int = 0
    encodings: set[str] = field(default_factory=set)
    with_dictionary: int = 0
    fallbacks: int = 0
    most_words: int = 0

    @property
    def has_checksums(self) -> bool:
        """True if all pages have a checksum."""
        return self.num_pages > 0 and self.num_checksums == self.num_pages

    def add(self, headers: Iterable[PageHeader]) -> None:
        """Add the pages of one column chunk."""
        encodings: set[str] = set()
        has_dictionary = False
        for header in headers:
            self.num_pages += 1
            self.num_checksums += header.checksum is not None
            if header.is_dictionary:
                has_dictionary = True
                self.most_words = max(self.most_words, header.num_values)
            elif header.is_data:
                encodings.add(_ENCODINGS.get(header.encoding, f"encoding {header.encoding}"))
        self.num_chunks += 1
        self.encodings |= encodings
        self.with_dictionary += has_dictionary
        self.fallbacks += has_dictionary and not encodings <= _DICTIONARY_ENCODINGS


def page_headers(place: ChunkPlace, file: Any) -> Iterable[PageHeader]:
    """Yield the headers of a column chunk's pages; reads little more than these."""
    at, end = place.begin, place.begin + place.num_bytes
    while at < end:
        header = _header_at(place, file, at, end)
        yield header
        at += header.header_bytes + header.compressed_bytes


def _header_at(place: ChunkPlace, file: Any, at: int, end: int) -> PageHeader:
    length = _HEADER_BYTES
    while True:
        file.seek(at)
        content = file.read(min(length, end - at))
        try:
            header = parse_page_header(content)
        except CorruptFileError as error:
            raise CorruptFileError(f"{error}: {_name(place, at)}") from None
        if header is not None:
            return header
        if len(content) < length:
            raise CorruptFileError(
                f"a page header does not end within its column chunk: {_name(place, at)}"
            )
        length *= 4


def _name(place: ChunkPlace, at: int) -> str:
    return f"{place.path!r}, row group {place.row_group}, column {place.column!r}, byte {at}"
