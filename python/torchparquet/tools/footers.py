"""Facts about each column from footers and from the headers of pages."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

from torchparquet._impl.files.footers.plain_footer import footer_in, metadata_of
from torchparquet._impl.files.listing import ON_DISK, Listing
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.native import PageHeader, parse_page_header
from torchparquet.errors import (
    CorruptFileError,
    EncryptedFileError,
    FileChangedError,
    one_line,
    unreadable,
)

# The length of the footer and the magic bytes.
_TAIL_BYTES = 8
# A nonce of 12 bytes and a tag of 16.
_SIGNATURE_BYTES = 28
_HEADER_BYTES = 1 << 10
_MAX_SAMPLED_CHUNKS = 512
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


class ChunkPlace(NamedTuple):
    """The place of a column chunk's pages."""

    path: str
    row_group: int
    column: str
    begin: int
    num_bytes: int


@dataclass
class PageFacts:
    """Facts from the pages of some column chunks.

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

    def add(self, place: ChunkPlace, file: Any) -> None:
        """Add the pages of one column chunk, of which little more than headers is read."""
        encodings: set[str] = set()
        has_dictionary = False
        for header in _page_headers(place, file):
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

    @property
    def keeps_dictionary(self) -> bool:
        """True if every column chunk has a dictionary, and all its values are of it."""
        return 0 < self.num_chunks == self.with_dictionary and not self.fallbacks


def _page_headers(place: ChunkPlace, file: Any) -> Iterator[PageHeader]:
    at, end = place.begin, place.begin + place.num_bytes
    where = f"{place.path!r}, row group {place.row_group}, column {place.column!r}, byte"
    length = _HEADER_BYTES
    while at < end:
        file.seek(at)
        content = file.read(min(length, end - at))
        try:
            header = parse_page_header(content)
        except CorruptFileError as error:
            raise CorruptFileError(f"{error}: {where} {at}") from None
        if header is not None:
            yield header
            at += header.header_bytes + header.compressed_bytes
            length = _HEADER_BYTES
        elif len(content) < length:
            raise CorruptFileError(
                f"a page header does not end within its column chunk: {where} {at}"
            )
        else:
            length *= 4


@dataclass
class ColumnFacts:
    """Facts about one leaf column.

    Attributes:
        uncompressed_bytes: Encoded bytes before compression; the stored bytes where a footer
            gives less, such as 0.
        pages: Facts from the column chunks that were looked at.
    """

    name: str
    kinds: list[str] = field(default_factory=list)
    physical_types: set[str] = field(default_factory=set)
    num_values: int = 0
    null_count: int | None = 0
    compressed_bytes: int = 0
    uncompressed_bytes: int = 0
    codecs: Counter[str] = field(default_factory=Counter)
    encodings: set[str] = field(default_factory=set)
    pages: PageFacts = field(default_factory=PageFacts)

    def add(self, chunk: Any) -> None:
        """Add the facts of one column chunk."""
        nulls = null_count(chunk)
        known = nulls is not None and self.null_count is not None
        self.null_count = self.null_count + nulls if known else None  # type: ignore[operator]
        self.physical_types.add(chunk.physical_type)
        self.num_values += chunk.num_values
        self.compressed_bytes += chunk.total_compressed_size
        self.uncompressed_bytes += max(chunk.total_uncompressed_size, chunk.total_compressed_size)
        self.codecs[chunk.compression] += 1
        self.encodings.update(chunk.encodings)


def null_count(chunk: Any) -> int | None:
    """Return the nulls of a column chunk; None if its statistics do not count them."""
    known = chunk.is_stats_set and chunk.statistics.has_null_count
    return int(chunk.statistics.null_count) if known else None


@dataclass
class FooterFacts:
    """Facts from the footers of a data set."""

    columns: dict[str, ColumnFacts] = field(default_factory=dict)
    row_group_bytes: list[int] = field(default_factory=list)
    writers: Counter[str] = field(default_factory=Counter)


def read_footer(path: str, listing: Listing = ON_DISK) -> Any:
    """Return pyarrow's `FileMetaData`."""
    try:
        with listing.open(path) as file:
            try:
                metadata = pq.read_metadata(file if listing.store is not None else path)
            except pa.ArrowException:
                # A schema that Arrow cannot express: no schema is needed here.
                metadata = metadata_of(footer_in(file))
            file.seek(-_TAIL_BYTES, os.SEEK_END)
            num_bytes = int.from_bytes(file.read(4), "little")
    except Exception as error:  # pyarrow's layers raise many classes
        message = f"cannot read the footer of {path!r}: {one_line(error)}"
        raise unreadable(error, path, message) from error
    # A plain footer is signed if columns are encrypted.
    if num_bytes - metadata.serialized_size == _SIGNATURE_BYTES:
        raise EncryptedFileError(
            f"columns are encrypted, and the command line takes no keys: {path!r}"
        )
    return metadata


def sampled_row_groups(manifest: Manifest) -> set[int]:
    """Return evenly spread row groups whose column chunks are few enough to look at."""
    most_columns = max(map(len, manifest.schemas))
    count = min(manifest.num_row_groups, max(1, _MAX_SAMPLED_CHUNKS // max(1, most_columns)))
    return set(np.linspace(0, manifest.num_row_groups - 1, count).astype(int).tolist())


def read_facts(
    manifest: Manifest, wanted: Iterable[int], advance: Callable[[int], None] = lambda _: None
) -> FooterFacts:
    """Read the footers of all files, and the page headers of the wanted row groups."""
    facts, places = FooterFacts(), []
    for index, path in enumerate(manifest.files):
        metadata = read_footer(path, manifest.listing)
        leaves = manifest.schemas[int(manifest.file_schema[index])]
        if metadata.num_columns != len(leaves):
            raise FileChangedError(f"inspect it again, because it has changed: {path!r}")
        columns = [facts.columns.setdefault(leaf.path, ColumnFacts(leaf.path)) for leaf in leaves]
        for leaf, column in zip(leaves, columns, strict=True):
            column.kinds += [] if leaf.kind in column.kinds else [leaf.kind]
        facts.writers[metadata.created_by or "unknown"] += 1
        for group in range(metadata.num_row_groups):
            row_group = metadata.row_group(group)
            if len(facts.row_group_bytes) in wanted:
                places += chunk_places(path, metadata, group, leaves)
            facts.row_group_bytes.append(row_group.total_byte_size)
            for number, column in enumerate(columns):
                column.add(row_group.column(number))
        advance(1)
    for path, of_file in groupby(places, key=lambda place: place.path):
        with manifest.listing.open(path) as file:
            for place in of_file:
                facts.columns[place.column].pages.add(place, file)
    return facts


def chunk_places(
    path: str, metadata: Any, row_group: int, leaves: tuple[Any, ...]
) -> list[ChunkPlace]:
    """Return the places of a row group's column chunks."""
    places = []
    for index, leaf in enumerate(leaves):
        chunk = metadata.row_group(row_group).column(index)
        begin = chunk.data_page_offset
        first = chunk.dictionary_page_offset
        # Some writers give an offset for a dictionary that they did not write. A column chunk
        # without rows may have a dictionary alone, and then claims data pages at offset 0.
        if first is not None and (0 < first < begin or begin == 0):
            begin = first
        places.append(ChunkPlace(path, row_group, leaf.path, begin, chunk.total_compressed_size))
    return places
