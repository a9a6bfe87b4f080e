"""Facts from footers about each column: codecs, encodings, sizes, nulls."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

from torchparquet._impl.files.footers.plain_footer import footer_in, metadata_of
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.opening import opened
from torchparquet.errors import EncryptedFileError, FileChangedError, one_line, unreadable

if TYPE_CHECKING:
    from torchparquet._impl.files.remote.remote_files import RemoteFiles

# The length of the footer and the magic bytes.
_TAIL_BYTES = 8
# A nonce of 12 bytes and a tag of 16.
_SIGNATURE_BYTES = 28


@dataclass
class ColumnFacts:
    """Facts from all footers about one leaf column.

    Attributes:
        uncompressed_bytes: Encoded bytes before compression; the stored bytes where a footer
            gives less, such as 0.
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
    with_dictionary: int = 0
    num_chunks: int = 0

    def add(self, chunk: Any) -> None:
        """Add the facts of one column chunk."""
        statistics = chunk.statistics if chunk.is_stats_set else None
        if statistics is None or not statistics.has_null_count:
            self.null_count = None
        elif self.null_count is not None:
            self.null_count += statistics.null_count
        self.physical_types.add(chunk.physical_type)
        self.num_values += chunk.num_values
        self.compressed_bytes += chunk.total_compressed_size
        self.uncompressed_bytes += max(chunk.total_uncompressed_size, chunk.total_compressed_size)
        self.codecs[chunk.compression] += 1
        self.encodings.update(chunk.encodings)
        self.with_dictionary += chunk.has_dictionary_page
        self.num_chunks += 1


class ChunkPlace(NamedTuple):
    """The place of a column chunk's pages."""

    path: str
    row_group: int
    column: str
    begin: int
    num_bytes: int


@dataclass
class FooterFacts:
    """Facts from the footers of a data set."""

    columns: dict[str, ColumnFacts] = field(default_factory=dict)
    row_group_bytes: list[int] = field(default_factory=list)
    writers: Counter[str] = field(default_factory=Counter)
    places: list[ChunkPlace] = field(default_factory=list)


def read_footer(path: str, remote: RemoteFiles | None = None) -> Any:
    """Return pyarrow's `FileMetaData`."""
    try:
        with opened(path, remote) as file:
            try:
                metadata = pq.read_metadata(path if remote is None else file)
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


def read_facts(manifest: Manifest, wanted: set[int], advance: Callable[[int], None]) -> FooterFacts:
    """Read the footers of all files, one at a time."""
    facts = FooterFacts()
    number = 0
    for index, path in enumerate(manifest.files):
        metadata = read_footer(path, manifest.remote)
        leaves = manifest.schemas[int(manifest.file_schema[index])]
        if metadata.num_columns != len(leaves):
            raise FileChangedError(f"inspect it again, because it has changed: {path!r}")
        columns = []
        for leaf in leaves:
            column = facts.columns.setdefault(leaf.path, ColumnFacts(leaf.path))
            if leaf.kind not in column.kinds:
                column.kinds.append(leaf.kind)
            columns.append(column)
        facts.writers[metadata.created_by or "unknown"] += 1
        for row_group in range(metadata.num_row_groups):
            _add_row_group(facts, columns, metadata.row_group(row_group))
            if number in wanted:
                facts.places += chunk_places(path, metadata, row_group, leaves)
            number += 1
        advance(1)
    return facts


def _add_row_group(facts: FooterFacts, columns: list[ColumnFacts], row_group: Any) -> None:
    facts.row_group_bytes.append(row_group.total_byte_size)
    for index, column in enumerate(columns):
        column.add(row_group.column(index))


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
