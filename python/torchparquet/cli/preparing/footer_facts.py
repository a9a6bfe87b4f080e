"""Facts about each column: what footers and headers of pages say."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

from torchparquet._impl.files.footers.plain_footer import footer_in, metadata_of
from torchparquet._impl.files.listing import ON_DISK, Listing
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.places import MAX_THREADS
from torchparquet._impl.native import PageHeader, parse_page_header
from torchparquet.errors import (
    CorruptFileError,
    EncryptedFileError,
    FileChangedError,
    one_line,
    unreadable,
)

if TYPE_CHECKING:
    from torchparquet._impl.files.footers.leaf import Leaf
    from torchparquet.cli.preparing.cluster import Cluster
    from torchparquet.cli.screen import Advance

# The length of the footer and the magic bytes.
_TAIL_BYTES = 8
# A nonce of 12 bytes and a tag of 16.
_SIGNATURE_BYTES = 28
_HEADER_BYTES = 1 << 10
_MAX_SAMPLED_CHUNKS = 512
_SUMS = (
    *("num_values", "compressed_bytes", "uncompressed_bytes", "num_chunks", "num_pages"),
    *("num_checksums", "with_dictionary", "fallbacks"),
)
_DICTIONARY_ENCODINGS = frozenset(["PLAIN_DICTIONARY", "RLE_DICTIONARY"])
# parquet.thrift, Encoding.
_ENCODINGS = (
    *("PLAIN", "GROUP_VAR_INT", "PLAIN_DICTIONARY", "RLE", "BIT_PACKED", "DELTA_BINARY_PACKED"),
    *("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "RLE_DICTIONARY", "BYTE_STREAM_SPLIT"),
)


@dataclass
class ColumnFacts:
    """Facts from all column chunks of a leaf; from `num_chunks` on, from those looked at."""

    kinds: list[str] = field(default_factory=list)
    physical_types: set[str] = field(default_factory=set)
    num_values: int = 0
    null_count: int | None = 0
    compressed_bytes: int = 0
    uncompressed_bytes: int = 0  # at least the stored ones
    codecs: Counter[str] = field(default_factory=Counter)
    encodings: set[str] = field(default_factory=set)
    num_chunks: int = 0
    num_pages: int = 0
    num_checksums: int = 0
    page_encodings: set[str] = field(default_factory=set)
    with_dictionary: int = 0
    fallbacks: int = 0  # from a dictionary to values without it
    most_words: int = 0

    def add(self, chunk: Any) -> None:
        """Add what a footer says of a column chunk."""
        nulls = null_count(chunk)
        known = nulls is not None and self.null_count is not None
        self.null_count = self.null_count + nulls if known else None  # type: ignore[operator]
        self.physical_types.add(chunk.physical_type)
        self.num_values += chunk.num_values
        self.compressed_bytes += chunk.total_compressed_size
        self.uncompressed_bytes += max(chunk.total_uncompressed_size, chunk.total_compressed_size)
        self.codecs[chunk.compression] += 1
        self.encodings.update(chunk.encodings)

    def add_pages(self, headers: Iterable[PageHeader]) -> None:
        """Add the pages of a column chunk."""
        encodings: set[str] = set()
        has_dictionary = False
        for header in headers:
            self.num_pages += 1
            self.num_checksums += header.checksum is not None
            if header.is_dictionary:
                has_dictionary = True
                self.most_words = max(self.most_words, header.num_values)
            elif header.is_data:
                code = header.encoding
                encodings.add(_ENCODINGS[code] if code < len(_ENCODINGS) else f"encoding {code}")
        self.num_chunks += 1
        self.page_encodings |= encodings
        self.with_dictionary += has_dictionary
        self.fallbacks += has_dictionary and not encodings <= _DICTIONARY_ENCODINGS

    def merge(self, other: ColumnFacts) -> None:
        """Add the facts from other column chunks."""
        self.kinds += [kind for kind in other.kinds if kind not in self.kinds]
        known = self.null_count is not None and other.null_count is not None
        self.null_count = self.null_count + other.null_count if known else None  # type: ignore[operator]
        self.most_words = max(self.most_words, other.most_words)
        self.codecs += other.codecs
        for name in ("physical_types", "encodings", "page_encodings"):
            getattr(self, name).update(getattr(other, name))
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def keeps_dictionary(self) -> bool:
        """True if every column chunk has a dictionary, and all its values are of it."""
        return 0 < self.num_chunks == self.with_dictionary and not self.fallbacks


class FooterFacts(NamedTuple):
    """Facts from the footers of a data set."""

    columns: dict[str, ColumnFacts]
    row_group_bytes: list[int]
    writers: Counter[str]

    def add(self, other: FooterFacts) -> None:
        """Add those of other files."""
        for name, column in other.columns.items():
            self.columns.setdefault(name, ColumnFacts()).merge(column)
        self.row_group_bytes.extend(other.row_group_bytes)
        self.writers.update(other.writers)


def null_count(chunk: Any) -> int | None:
    """Return the nulls of a column chunk; None if its statistics do not count them."""
    known = chunk.is_stats_set and chunk.statistics.has_null_count
    return int(chunk.statistics.null_count) if known else None


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


def page_headers(
    file: Any, where: str, row_group: Any, leaves: Sequence[Leaf]
) -> Iterator[Iterator[PageHeader]]:
    """Yield the headers of the pages of each column chunk, read from an open file."""
    for index, leaf in enumerate(leaves):
        chunk = row_group.column(index)
        begin, first = chunk.data_page_offset, chunk.dictionary_page_offset
        # Some writers give an offset for a dictionary that they did not write. A column chunk
        # without rows may have a dictionary alone, and then claims data pages at offset 0.
        if first is not None and (0 < first < begin or begin == 0):
            begin = first
        end = begin + chunk.total_compressed_size
        yield _page_headers(file, f"{where}, column {leaf.path!r}, byte", begin, end)


def _page_headers(file: Any, where: str, at: int, end: int) -> Iterator[PageHeader]:
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


def reading_threads(listing: Listing, most: int = MAX_THREADS) -> ThreadPoolExecutor:
    """Return threads that read files: several for a store, for which they wait most of the time."""
    return ThreadPoolExecutor(1 if listing.store is None else most)


def sampled_row_groups(manifest: Manifest) -> set[int]:
    """Return evenly spread row groups whose column chunks are few enough to look at."""
    most_columns = max(map(len, manifest.schemas))
    count = min(manifest.num_row_groups, max(1, _MAX_SAMPLED_CHUNKS // max(1, most_columns)))
    return set(np.linspace(0, manifest.num_row_groups - 1, count).astype(int).tolist())


def read_facts(
    manifest: Manifest,
    wanted: Container[int],
    advance: Advance = lambda _: None,
    cluster: Cluster | None = None,
) -> FooterFacts:
    """Read the footers of all files, and the page headers of the wanted row groups."""
    borders = np.searchsorted(manifest.row_group_file, range(len(manifest.files) + 1)).tolist()
    given = []
    for index, (begin, end) in enumerate(pairwise(borders)):
        leaves = manifest.schemas[int(manifest.file_schema[index])]
        looked_at = [number for number in range(begin, end) if number in wanted]
        in_file = manifest.row_group_in_file[looked_at].tolist()
        given.append((manifest.listing.pick([index]), manifest.files[index], leaves, in_file))
    facts = FooterFacts({}, [], Counter())
    if cluster is not None:
        for one in cluster.each(_facts_of_file, given, [1] * len(given), advance):
            facts.add(one)
        return facts
    with reading_threads(manifest.listing) as threads:
        for one in threads.map(_facts_of_file, *zip(*given, strict=True)):
            facts.add(one)
            advance(1)
    return facts


def _facts_of_file(
    listing: Listing, path: str, leaves: Sequence[Leaf], looked_at: Sequence[int]
) -> FooterFacts:
    """Read a footer, and the page headers of some of the file's row groups."""
    metadata = read_footer(path, listing)
    if metadata.num_columns != len(leaves):
        raise FileChangedError(f"inspect it again, because it has changed: {path!r}")
    of_leaves: dict[str, ColumnFacts] = {}  # a name may be that of several
    columns = [of_leaves.setdefault(leaf.path, ColumnFacts()) for leaf in leaves]
    for leaf, column in zip(leaves, columns, strict=True):
        column.kinds += [] if leaf.kind in column.kinds else [leaf.kind]
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for group in groups:
        for at, column in enumerate(columns):
            column.add(group.column(at))
    # It may take a request to open a file of a store.
    with listing.open(path) if looked_at else nullcontext() as file:
        for number in looked_at:
            where = f"{path!r}, row group {number}"
            every = page_headers(file, where, groups[number], leaves)
            for column, headers in zip(columns, every, strict=True):
                column.add_pages(headers)
    group_bytes = [group.total_byte_size for group in groups]
    return FooterFacts(of_leaves, group_bytes, Counter([metadata.created_by or "unknown"]))
