"""Bounds of the pages of a file's columns, by its page indexes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping
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


def bounds_by_pages(
    manifest: Manifest,
    file: int,
    metadata: pq.FileMetaData,
    columns: Mapping[str, tuple[int, StoredColumn]],
    row_groups: Iterable[int],
) -> Iterator[tuple[int, int, dict[str, Bounds]]]:
    """Yield each row group, its stretches of rows within pages, and bounds of columns in these."""
    places = _places(metadata)
    wanted = {
        (number, name): [(begin, size), (other_begin, other_size)]
        for number in row_groups
        for name, (leaf, _) in columns.items()
        for at in [number * metadata.num_columns + leaf]
        if len(places) == metadata.num_row_groups * metadata.num_columns and min(places[at]) > 0
        for begin, size, other_begin, other_size in [places[at].tolist()]
    }
    contents = _read(manifest, file, [place for pair in wanted.values() for place in pair])
    for number in row_groups:
        sound = {}
        for name, (leaf, stored) in columns.items():
            indexes = [contents[place] for place in wanted.get((number, name), ())]
            found = indexes and _pages(metadata.row_group(number), leaf, stored, *indexes)
            if found:
                sound[name] = found
        begins = np.unique(
            np.concatenate([np.zeros(1, np.int64), *(of[0] for of in sound.values())])
        )
        yield (
            number,
            len(begins) if sound else 0,
            {
                name: bounds.take(np.searchsorted(first_rows, begins, side="right") - 1)
                for name, (first_rows, bounds) in sound.items()
            },
        )


def _pages(
    group: pq.RowGroupMetaData,
    leaf: int,
    stored: StoredColumn,
    column_index: bytes,
    offset_index: bytes,
) -> tuple[NDArray[np.int64], Bounds] | None:
    """Return the first rows and the bounds of a column chunk's pages."""
    chunk = group.column(leaf)
    # pyarrow checks that the order of values is known. An index has the same.
    if not chunk.is_stats_set or not chunk.statistics.has_min_max:
        return None
    begin = chunk.data_page_offset
    if chunk.has_dictionary_page:
        begin = min(begin, chunk.dictionary_page_offset)
    found = page_bounds(column_index)
    rows = page_rows(offset_index, begin, chunk.total_compressed_size, group.num_rows)
    if found is None or rows is None or len(found[0]) != len(rows) - 1:
        return None
    is_null, low, high, num_nulls = found
    # Pages of nulls hold no bounds, and empty bytes in their place.
    lowest, highest = (
        [None if null else value for null, value in zip(is_null, values, strict=True)]
        for values in (stored.unpacked(low), stored.unpacked(high))
    )
    may_be_null = np.array(num_nulls) != 0 if num_nulls else np.ones(len(is_null), bool)
    return np.array(rows[:-1], np.int64), stored.bounds(lowest, highest, may_be_null, is_null)


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
