"""Values that row groups hold not, by their Bloom filters."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow.types import is_integer

from torchparquet._impl.files.opening import opened_file, read_part
from torchparquet._impl.native import bloom_filter_bytes, may_hold
from torchparquet._impl.rows.pruning.bounds import StoredColumn, is_text

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from torchparquet._impl.files.manifest import Manifest


# Before a filter, which may not tell its length elsewhere.
_HEADER_BYTES = 64
_FORMATS = {"INT32": "<i", "INT64": "<q"}


class BloomFilters:
    """The Bloom filters of some row groups of one file."""

    def __init__(
        self,
        manifest: Manifest,
        file: int,
        metadata: pq.FileMetaData,
        columns: Mapping[str, tuple[int, StoredColumn]],
        row_groups: Sequence[int],
    ) -> None:
        """Read nothing yet."""
        self._manifest = manifest
        self._file = file
        self._groups = [metadata.row_group(number) for number in row_groups]
        self._columns = columns

    def lack(self, name: str, values: pa.Array) -> NDArray[np.bool_]:
        """Return which of the row groups have none of the values in a column."""
        if name not in self._columns or not (is_integer(values.type) or is_text(values.type)):
            return np.zeros(len(self._groups), bool)
        leaf, stored = self._columns[name]
        hashed = [_plain(value, stored) for value in values.to_pylist()]
        return np.array([self._lacks(group.column(leaf), hashed) for group in self._groups], bool)

    def _lacks(self, chunk: pq.ColumnChunkMetaData, hashed: Sequence[bytes | None]) -> bool:
        # Earlier releases of pyarrow do not tell.
        offset = getattr(chunk, "bloom_filter_offset", None)
        known = [value for value in hashed if value is not None]
        content = self._filter(offset) if offset and len(known) == len(hashed) else None
        return content is not None and not any(may_hold(content, value) for value in known)

    def _filter(self, offset: int) -> bytes | None:
        with opened_file(self._manifest, self._file) as file:
            head = read_part(file, offset, _HEADER_BYTES)
            num_bytes = bloom_filter_bytes(head)
            if num_bytes is None:
                return None
            content = head + read_part(file, offset + len(head), num_bytes - len(head))
            return content[:num_bytes] if len(content) >= num_bytes else None


def _plain(value: Any, stored: StoredColumn) -> bytes | None:
    """Return an integer, string or bytes as the filter's hash takes it; None if it is not known."""
    if not isinstance(value, int):
        is_known = stored.physical == "BYTE_ARRAY" and is_text(stored.kind)
        content: bytes = value.encode() if isinstance(value, str) else value
        return content if is_known else None
    form = _FORMATS.get(stored.physical)
    if form is None or not (is_integer(stored.kind) and is_integer(stored.wanted)):
        return None
    try:
        pa.scalar(value, stored.kind)
    except (pa.ArrowException, OverflowError):
        return None
    # Unsigned ones are stored as signed ones of the same bits.
    bits = struct.calcsize(form) * 8
    return struct.pack(form, value - (1 << bits) if value >= 1 << bits - 1 else value)
