"""Bounds of a column's values, as a footer or a page index tells them."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow.parquet as pq

Mask: TypeAlias = NDArray[np.bool_]

_FORMATS = {"BOOLEAN": "<?", "INT32": "<i", "INT64": "<q", "FLOAT": "<f", "DOUBLE": "<d"}
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}


@dataclass(frozen=True)
class Bounds:
    """The values but NaN that a column may have in `N` sets of rows; a null bound is not known."""

    low: pa.Array
    high: pa.Array
    may_be_null: Mask
    is_null: Mask

    def take(self, sets: NDArray[np.int64]) -> Bounds:
        """Return the bounds of some of the sets."""
        taken = self.low.take(sets), self.high.take(sets)
        return Bounds(*taken, self.may_be_null[sets], self.is_null[sets])


class StoredColumn:
    """Makes values that a file stores for a column into those of the data set's schema."""

    def __init__(self, column: pq.ColumnSchema, kind: pa.DataType, wanted: pa.DataType) -> None:
        """Remember the types."""
        self.physical = column.physical_type
        self._unit = None
        if column.logical_type.type in ("TIMESTAMP", "TIME"):
            self._unit = _UNITS.get(json.loads(column.logical_type.to_json()).get("timeUnit"))
        self.kind, self.wanted = map(_plain_type, (kind, wanted))

    def bounds(self, low: list[Any], high: list[Any], may_be_null: Any, is_null: Any) -> Bounds:
        """Return bounds of values of the physical type; None stands for unknown ones."""
        # Some writers store small integers with the other extension, and order them by that: a
        # value that does not fit the type shows it.
        try:
            made = self._array(low), self._array(high)
        except (pa.ArrowException, OverflowError):
            made = (pa.nulls(len(low), self.wanted),) * 2
        return Bounds(*made, np.array(may_be_null, bool), np.array(is_null, bool))

    def unpacked(self, contents: Iterable[bytes]) -> list[Any]:
        """Return values of the physical type from their PLAIN bytes without lengths."""
        form = _FORMATS.get(self.physical)
        if form is None:
            return list(contents)
        size = struct.calcsize(form)
        return [struct.unpack(form, one)[0] if len(one) == size else None for one in contents]

    def _array(self, stored: list[Any]) -> pa.Array:
        kind, physical, types = self.kind, self.physical, pa.types
        made = pa.nulls(len(stored), kind)
        if types.is_decimal(kind) and physical.endswith(("BYTE_ARRAY", "INT32", "INT64")):
            made = _decimals(stored, kind)
        elif physical == "BYTE_ARRAY" and is_text(kind):
            made = pa.array(stored, pa.binary()).cast(kind)
        elif (physical, kind) in (("FLOAT", pa.float32()), ("DOUBLE", pa.float64())):
            # NaN becomes null.
            made = pa.array(stored, kind, from_pandas=True)
        elif (physical, kind) == ("BOOLEAN", pa.bool_()):
            made = pa.array(stored, kind)
        elif physical in ("INT32", "INT64"):
            numbers = pa.array(stored, pa.int32() if physical == "INT32" else pa.int64())
            if types.is_unsigned_integer(kind):
                numbers = numbers.view(pa.uint32() if physical == "INT32" else pa.uint64())
            if types.is_integer(kind):
                made = numbers.cast(kind)
            elif types.is_date32(kind) or getattr(kind, "unit", "") == self._unit:
                made = numbers.view(kind)
        return made.cast(self.wanted)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values, also of those in a dictionary."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_text(kind: pa.DataType) -> bool:
    """Return whether values are strings, or bytes of any length."""
    return kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def _decimals(stored: list[Any], kind: pa.DataType) -> pa.Array:
    numbers = [int.from_bytes(v, "big", signed=True) if isinstance(v, bytes) else v for v in stored]
    is_known = pa.array([number is not None for number in numbers], pa.bool_())
    content = b"".join(
        (number or 0).to_bytes(kind.bit_width // 8, "little", signed=True) for number in numbers
    )
    return pa.Array.from_buffers(kind, len(numbers), [is_known.buffers()[1], pa.py_buffer(content)])


def bounds_of_chunks(chunks: Iterable[pq.ColumnChunkMetaData], stored: StoredColumn) -> Bounds:
    """Return what footers tell of column chunks."""
    low, high, may_be_null, is_null = [], [], [], []
    for chunk in chunks:
        statistics = chunk.statistics
        counts_nulls = statistics is not None and statistics.has_null_count
        num_nulls = statistics.null_count if counts_nulls else None
        has_bounds = statistics is not None and statistics.has_min_max
        low.append(statistics.min_raw if has_bounds else None)
        high.append(statistics.max_raw if has_bounds else None)
        may_be_null.append(num_nulls != 0)
        is_null.append(num_nulls == chunk.num_values)
    return stored.bounds(low, high, may_be_null, is_null)


def flat_leaves(leaves: pq.ParquetSchema, schema: pa.Schema) -> dict[str, int]:
    """Return the numbers of a file's columns that are not nested, by name."""
    paths = [leaves.column(at).path for at in range(len(leaves))]
    count = Counter(paths)
    flat = {field.name for field in schema if not pa.types.is_nested(field.type)}
    # A name with dots may be the path of a field of another column too.
    return {path: at for at, path in enumerate(paths) if path in flat and count[path] == 1}
