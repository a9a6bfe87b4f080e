"""Bounds of a column's values, as a footer or a page index tells them."""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

_LEAST_STORED_BITS = 32
_FORMATS = {"INT32": "<i", "INT64": "<q", "FLOAT": "<f", "DOUBLE": "<d"}
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}


@dataclass(frozen=True)
class Bounds:
    """The values that a column may have in some rows. NaN is outside of all bounds."""

    low: pa.Scalar | None = None
    high: pa.Scalar | None = None
    may_be_null: bool = True
    is_null: bool = False

    def conditions(self, name: str) -> list[pc.Expression]:
        """Return what holds for a column of that name in each of the rows."""
        import pyarrow.compute as pc

        column = pc.field(name)
        if self.is_null:
            return [column.is_null()]
        known = [column >= self.low] if self.low is not None else []
        known += [column <= self.high] if self.high is not None else []
        if self.may_be_null:
            # pyarrow understands this form, and not one of both bounds or null.
            return [condition | column.is_null() for condition in known]
        return [*known, column.is_valid()]


class StoredColumn:
    """Makes values that a file stores for a column into those of the data set's schema."""

    def __init__(self, column: pq.ColumnSchema, kind: pa.DataType, wanted: pa.DataType) -> None:
        """Remember the types."""
        self._physical = column.physical_type
        self._unit = None
        if column.logical_type.type == "TIMESTAMP":
            self._unit = _UNITS.get(json.loads(column.logical_type.to_json()).get("timeUnit"))
        self._kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        self._wanted = wanted

    def value_of_bytes(self, content: bytes) -> pa.Scalar | None:
        """Return a value from its PLAIN bytes without a length; None if it is not known."""
        form = _FORMATS.get(self._physical)
        if form is None:
            return self.value(content)
        if len(content) != struct.calcsize(form):
            return None
        return self.value(struct.unpack(form, content)[0])

    def trusted(
        self, low: pa.Scalar | None, high: pa.Scalar | None
    ) -> tuple[pa.Scalar | None, pa.Scalar | None]:
        """Return the lowest and the highest value as far as the order of both can be known."""
        # Some writers store small integers with the other extension, and order them by that: a
        # bound that does not fit the type shows it.
        is_small = pa.types.is_integer(self._kind) and self._kind.bit_width < _LEAST_STORED_BITS
        is_unknown = is_small and (low is None or high is None)
        return (None, None) if is_unknown else (low, high)

    def value(self, stored: Any) -> pa.Scalar | None:
        """Return a value from that of the physical type; None if it is not known."""
        try:
            made = self._of_kind(stored)
            return None if made is None else made.cast(self._wanted)
        except (pa.ArrowException, OverflowError, UnicodeDecodeError):
            return None

    def _of_kind(self, stored: Any) -> pa.Scalar | None:
        kind, physical = self._kind, self._physical
        if physical == "BYTE_ARRAY" and isinstance(stored, bytes):
            if pa.types.is_string(kind) or pa.types.is_large_string(kind):
                return pa.scalar(stored.decode(), kind)
            is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
            return pa.scalar(stored, kind) if is_binary else None
        if physical in ("FLOAT", "DOUBLE") and pa.types.is_floating(kind):
            return None if math.isnan(stored) else pa.scalar(stored, kind)
        if physical not in ("INT32", "INT64"):
            return None
        if pa.types.is_unsigned_integer(kind) and stored < 0:
            stored += 1 << 8 * struct.calcsize(_FORMATS[physical])
        if pa.types.is_integer(kind):
            return pa.scalar(stored, kind)
        if pa.types.is_date32(kind):
            return pa.scalar(stored, pa.int32()).cast(kind)
        if pa.types.is_timestamp(kind) and kind.unit == self._unit:
            return pa.scalar(stored, pa.int64()).cast(kind)
        return None


def bounds_of_chunk(chunk: pq.ColumnChunkMetaData, stored: StoredColumn) -> Bounds:
    """Return what a footer tells of a column chunk."""
    statistics = chunk.statistics
    if statistics is None:
        return Bounds()
    num_nulls = statistics.null_count if statistics.has_null_count else None
    if num_nulls is not None and num_nulls == chunk.num_values:
        return Bounds(is_null=True)
    may_be_null = num_nulls != 0
    if not statistics.has_min_max:
        return Bounds(may_be_null=may_be_null)
    low, high = stored.value(statistics.min_raw), stored.value(statistics.max_raw)
    return Bounds(*stored.trusted(low, high), may_be_null)


def known_conditions(values: Mapping[str, pa.Scalar]) -> list[pc.Expression]:
    """Return what holds where columns have one value each."""
    import pyarrow.compute as pc

    return [
        pc.field(name) == value if value.is_valid else pc.field(name).is_null()
        for name, value in values.items()
    ]


def flat_leaves(leaves: pq.ParquetSchema, schema: pa.Schema) -> dict[str, int]:
    """Return the numbers of a file's columns that are not nested, by name."""
    paths = [leaves.column(at).path for at in range(len(leaves))]
    count = Counter(paths)
    flat = {field.name for field in schema if not pa.types.is_nested(field.type)}
    # A name with dots may be the path of a field of another column too.
    return {path: at for at, path in enumerate(paths) if path in flat and count[path] == 1}
