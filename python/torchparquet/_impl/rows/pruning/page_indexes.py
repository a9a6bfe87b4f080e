"""Bounds of the pages of a file's columns, by its page indexes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from torchparquet._impl.files.listing import read_part
from torchparquet._impl.native import find_indexes, page_bounds, page_rows
from torchparquet._impl.rows.pruning.bounds import Bounds, StoredColumn

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    from torchparquet._impl.files.manifest import Manifest

# Between indexes that are read at once.
_MAX_HOLE_BYTES = 64 << 10
_FOOTER_END_BYTES = 8
_MAGIC_BYTES = 4


@dataclass(frozen=True)
class Pages:
    """The data pages of a column chunk, `P` of them."""

    first_rows: NDArray[np.int64]
    bounds: list[Bounds]


class PageIndexes:
    """The page indexes of one file, of the columns of interest."""

    def __init__(
        self,
        manifest: Manifest,
        file: int,
        metadata: pq.FileMetaData,
        columns: Mapping[int, StoredColumn],
        row_groups: Iterable[int],
    ) -> None:
        """Read the indexes."""
        self._metadata = metadata
        self._columns = columns
        self._places = _places(metadata)
        wanted = [
            place
            for row_group in row_groups
            for column in columns
            for place in self._places_of(row_group, column)
        ]
        self._parts = _read(manifest, file, wanted)

    def pages(self, row_group: int, column: int) -> Pages | None:
        """Return the pages of a column chunk; None if no sound index tells of them."""
        places = self._places_of(row_group, column)
        if not places:
            return None
        column_index, offset_index = (self._parts[place] for place in places)
        group = self._metadata.row_group(row_group)
        chunk = group.column(column)
        if not chunk.is_stats_set or not chunk.statistics.has_min_max:
            # pyarrow checks that the order of values is known. An index has the same.
            return None
        begin = chunk.data_page_offset
        if chunk.has_dictionary_page:
            begin = min(begin, chunk.dictionary_page_offset)
        bounds = page_bounds(column_index)
        rows = page_rows(offset_index, begin, chunk.total_compressed_size, group.num_rows)
        if bounds is None or rows is None or len(bounds[0]) != len(rows) - 1:
            return None
        is_null, low, high, num_nulls = bounds
        stored = self._columns[column]
        made = [
            Bounds(is_null=True)
            if is_null[page]
            else Bounds(
                *stored.trusted(
                    stored.value_of_bytes(low[page]), stored.value_of_bytes(high[page])
                ),
                may_be_null=not num_nulls or num_nulls[page] != 0,
            )
            for page in range(len(is_null))
        ]
        return Pages(np.array(rows[:-1], np.int64), made)

    def _places_of(self, row_group: int, column: int) -> list[tuple[int, int]]:
        metadata = self._metadata
        if len(self._places) != metadata.num_row_groups * metadata.num_columns:
            return []
        number = row_group * metadata.num_columns + column
        offset, num_bytes, other_offset, other_bytes = self._places[number].tolist()
        if min(offset, num_bytes, other_offset, other_bytes) <= 0:
            return []
        return [(offset, num_bytes), (other_offset, other_bytes)]


def _places(metadata: pq.FileMetaData) -> NDArray[np.int64]:
    """Return [C, 4]: of each column chunk the offsets and bytes of its two indexes."""
    written = io.BytesIO()
    metadata.write_metadata_file(written)
    return find_indexes(written.getvalue()[_MAGIC_BYTES:-_FOOTER_END_BYTES])


def _read(
    manifest: Manifest, file: int, places: list[tuple[int, int]]
) -> dict[tuple[int, int], bytes]:
    """Return the bytes of each place; those near each other are read at once."""
    found: dict[tuple[int, int], bytes] = {}
    if not places:
        return found
    with manifest.listing.open(manifest.files[file]) as opened:
        # Indexes have places of their own.
        if sum(num_bytes for _, num_bytes in places) > opened.seek(0, os.SEEK_END):
            return dict.fromkeys(places, b"")
        together: list[tuple[int, int]] = []
        end = 0
        for place in [*sorted(places), None]:
            if together and (place is None or place[0] > end + _MAX_HOLE_BYTES):
                begin = together[0][0]
                content = read_part(opened, begin, end - begin)
                for offset, num_bytes in together:
                    at = offset - begin
                    found[offset, num_bytes] = content[at : at + num_bytes]
                together = []
            if place is not None:
                end = max(end, sum(place)) if together else sum(place)
                together.append(place)
    return found
