"""Row groups that hold none of the values that a condition needs, by their Bloom filters."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from torchparquet._impl.files.listing import read_part
from torchparquet._impl.native import bloom_filter_bytes, may_hold

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from torchparquet._impl.files.manifest import Manifest


@dataclass(frozen=True)
class Equality:
    """A column that must have one of some values."""

    column: str
    values: tuple[Any, ...]


# One of the lists must hold, and of that all of its equalities.
Alternatives: TypeAlias = list[list[Equality]]

# Nothing is known.
ANYTHING: Alternatives = [[]]
# Before a filter, which may not tell its length elsewhere.
_HEADER_BYTES = 64
_FORMATS = {"INT32": "<i", "INT64": "<q"}


class BloomFilters:
    """The Bloom filters of one file."""

    def __init__(
        self,
        manifest: Manifest,
        file: int,
        metadata: pq.FileMetaData,
        schema: pa.Schema,
        leaves: Mapping[str, int],
    ) -> None:
        """Read nothing yet."""
        self._manifest = manifest
        self._file = file
        self._metadata = metadata
        self._types = {field.name: field.type for field in schema}
        self._leaves = leaves

    def rule_out(self, row_group: int, alternatives: Alternatives) -> bool:
        """Return True if no row of a row group can be as one of the alternatives says."""
        return all(
            any(self._lacks(row_group, equality) for equality in together)
            for together in alternatives
        )

    def _lacks(self, row_group: int, equality: Equality) -> bool:
        leaf = self._leaves.get(equality.column)
        if leaf is None:
            return False
        chunk = self._metadata.row_group(row_group).column(leaf)
        # Earlier releases of pyarrow do not tell.
        offset = getattr(chunk, "bloom_filter_offset", None)
        if not offset:
            return False
        kind = self._types[equality.column]
        plain = [_plain(value, kind, chunk.physical_type) for value in equality.values]
        stored = [value for value in plain if value is not None]
        if len(stored) < len(plain):
            return False
        content = self._filter(offset)
        return content is not None and not any(may_hold(content, value) for value in stored)

    def _filter(self, offset: int) -> bytes | None:
        with self._manifest.listing.open(self._manifest.files[self._file]) as file:
            head = read_part(file, offset, _HEADER_BYTES)
            num_bytes = bloom_filter_bytes(head)
            if num_bytes is None:
                return None
            content = head + read_part(file, offset + len(head), num_bytes - len(head))
            return content[:num_bytes] if len(content) >= num_bytes else None


def _plain(value: Any, kind: pa.DataType, physical: str) -> bytes | None:
    """Return a value as the filter's hash takes it; None if that is not known."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind) and physical in _FORMATS:
        if isinstance(value, bool) or not isinstance(value, int):
            return None
        bits = struct.calcsize(_FORMATS[physical]) * 8
        is_signed = pa.types.is_signed_integer(kind)
        low, high = (-(1 << kind.bit_width - 1), 1 << kind.bit_width - 1)
        if not is_signed:
            low, high = 0, 1 << kind.bit_width
        if not low <= value < high:
            return None
        # Unsigned ones are stored as signed ones of the same bits.
        wrapped = value - (1 << bits) if value >= 1 << bits - 1 else value
        return struct.pack(_FORMATS[physical], wrapped)
    if physical == "BYTE_ARRAY" and _is_text(kind):
        if isinstance(value, str):
            return value.encode()
        return value if isinstance(value, bytes) else None
    return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )
