"""Columns of files of a store, as many as there is room for, by the native client."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from torchparquet._impl.files.store_reading import StoreReading
from torchparquet._impl.rows.pruning.bounds import flat_leaves

if TYPE_CHECKING:
    from torchparquet._impl.files.listing import Listing
    from torchparquet._impl.native import RemoteStore
    from torchparquet._impl.rows.pruning.row_groups import PrunedFile

# From an offset and a number of bytes.
ReadRange: TypeAlias = Callable[[int, int], "bytes | memoryview"]

# So many files have room always, and more as far as their bytes go.
_FILES, _BYTES = 8, 128 << 20
# Ranges that lie together are one request, as pyarrow would ask.
_HOLE_BYTES, _REQUEST_BYTES = 8 << 10, 32 << 20


class ColumnBytes:
    """The bytes of columns of some files, which threads ask for. They share its memory."""

    def __init__(self, listing: Listing, files: Sequence[int]) -> None:
        """Ask for nothing yet."""
        self._listing, self._files = listing, files
        self._changed, self._num_files, self._num_bytes = threading.Condition(), 0, 0
        self._lock = threading.Lock()  # held while the reading begins or ends
        self._reading: StoreReading | None = None
        self._is_stopped = False

    @contextmanager
    def of(self, place: int, file: PrunedFile, row_groups: Sequence[int]) -> Iterator[ReadRange]:
        """Ask for the columns of row groups of the file at a place, and give what reads them."""
        size = self._listing.num_bytes[file.number]
        places, num_bytes = _places(file, row_groups, size)
        with self._room_for(num_bytes):
            store = self._store()
            begins = [offset for offset, _ in places]
            contents = [memoryview(content) for content in store.read(place, places)]

            def read(offset: int, num_bytes: int) -> bytes | memoryview:
                at = bisect_right(begins, offset) - 1
                begin = offset - begins[at] if at >= 0 else 0
                if at >= 0 and begin + num_bytes <= len(contents[at]):
                    return contents[at][begin : begin + num_bytes]
                return store.read(place, [(offset, num_bytes)])[0]

            yield read

    def _store(self) -> RemoteStore:
        with self._lock:
            if self._reading is None:
                files = self._listing.pick(self._files)
                self._reading = StoreReading(files, just_listed=True)
            if self._is_stopped:
                self._reading.close()
            return self._reading.native

    def stop(self) -> None:
        """End all reads."""
        with self._lock:
            self._is_stopped = True
            if self._reading is not None:
                self._reading.close()

    @contextmanager
    def _room_for(self, num_bytes: int) -> Iterator[None]:
        """Wait until a file has room; a few have it always."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._num_files < _FILES or self._num_bytes + num_bytes <= _BYTES
            )
            self._num_files += 1
            self._num_bytes += num_bytes
        try:
            yield
        finally:
            with self._changed:
                self._num_files -= 1
                self._num_bytes -= num_bytes
                self._changed.notify_all()


def _places(
    file: PrunedFile, row_groups: Sequence[int], size: int
) -> tuple[list[tuple[int, int]], int]:
    """Return the ranges of flat columns, and the bytes that they and their values take."""
    metadata = file.footer.metadata
    leaves = flat_leaves(metadata.schema, file.schema)
    chunks, num_bytes = [], 0
    for group in map(metadata.row_group, row_groups):
        for chunk in (group.column(leaves[name]) for name in file.names.values() if name in leaves):
            begin = chunk.data_page_offset
            if chunk.has_dictionary_page:
                begin = min(begin, chunk.dictionary_page_offset)
            num_bytes += chunk.total_compressed_size + chunk.total_uncompressed_size
            # pyarrow tells what is wrong with others.
            if 0 <= begin <= begin + chunk.total_compressed_size <= size:
                chunks.append((begin, begin + chunk.total_compressed_size))
    places: list[tuple[int, int]] = []
    for begin, end in sorted(chunks):
        last, last_end = places[-1] if places else (0, -1 - _HOLE_BYTES)
        if begin <= last_end + _HOLE_BYTES and end - last <= _REQUEST_BYTES:
            places[-1] = (last, max(end, last_end))
        else:
            places.append((begin, end))
    return [(begin, end - begin) for begin, end in places], num_bytes
