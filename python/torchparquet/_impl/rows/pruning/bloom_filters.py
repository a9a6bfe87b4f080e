"""Values that row groups hold not, by their Bloom filters."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow.types import is_integer

from torchparquet._impl.files.listing import read_part
from torchparquet._impl.native import bloom_filter_bytes, may_hold
from torchparquet._impl.rows.pruning.bounds import Mask, StoredColumn, is_text

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from torchparquet._impl.files.manifest import Manifest


# Before a filter, which may not tell its length elsewhere.
_HEADER_BYTES = 64
_FORMATS = {"INT32": "<i", "INT64": "<q"}


def lacking(
    manifest: Manifest,
    file: int,
    groups: Sequence[pq.RowGroupMetaData],
    columns: Mapping[str, tuple[int, StoredColumn]],
    name: str,
    values: pa.Array,
) -> Mask:
    """Return which row groups have none of the values in a column, as far as filters tell."""
    lacks = np.zeros(len(groups), bool)
    if name not in columns or not (is_integer(values.type) or is_text(values.type)):
        return lacks
    leaf, stored = columns[name]
    hashed = [_plain(value, stored) for value in values.to_pylist()]
    known = [value for value in hashed if value is not None]
    for at, group in enumerate(groups):
        # Earlier releases of pyarrow do not tell.
        offset = getattr(group.column(leaf), "bloom_filter_offset", None)
        content = _filter(manifest, file, offset) if offset and len(known) == len(hashed) else None
        lacks[at] = content is not None and not any(may_hold(content, value) for value in known)
    return lacks


def _filter(manifest: Manifest, file: int, offset: int) -> bytes | None:
    with manifest.listing.open(manifest.files[file]) as opened:
        head = read_part(opened, offset, _HEADER_BYTES)
        num_bytes = bloom_filter_bytes(head)
        if num_bytes is None:
            return None
        content = head + read_part(opened, offset + len(head), num_bytes - len(head))
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
