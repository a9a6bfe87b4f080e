"""A condition that nobody here looks into: which columns it names, where it can be true.

pyarrow's data set engine simplifies a condition by what is known of rows. It is right as long as
values are within their bounds, and as long as comparing a value and its bounds by way of a cast
gives the same. Conditions for which that may not hold are found by their literals and casts.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import pyarrow.compute as pc
    from numpy.typing import NDArray


class Condition:
    """A condition on the rows of a data set."""

    def __init__(self, expression: pc.Expression, schema: pa.Schema) -> None:
        """Take the schema of the columns that it names: others make simplifying slow."""
        self.expression = expression
        self._schema = schema
        content = expression.__reduce__()[1][0]
        self.num_bytes = memoryview(content).nbytes
        literals = _Literals(content)
        # The columns whose bounds may be used.
        self.bounded = [
            field.name
            for field in self._schema
            if literals.allow_bounds_of(field.type) and not self._may_hold_for_nan(field)
        ]
        has_floats = any(pa.types.is_floating(field.type) for field in self._schema)
        # It takes bounds of -0.0 and 0.0 for the one value -0.0, which no list with 0.0 holds.
        self.is_plain = len(self.bounded) == len(schema) and not has_floats

    def _may_hold_for_nan(self, field: pa.Field) -> bool:
        import pyarrow.compute as pc

        kind = field.type
        if pa.types.is_float32(kind) or pa.types.is_float64(kind):
            is_nan = pc.field(field.name) == pa.scalar(float("nan"), kind)
            return bool(self.may_hold([[is_nan]])[0])
        # Nested ones may have such numbers within.
        return bool(pa.types.is_nested(kind) or pa.types.is_floating(kind))

    def may_hold(
        self, known: Sequence[Sequence[pc.Expression]], always: Sequence[pc.Expression] = ()
    ) -> NDArray[np.bool_]:
        """Return for each list of what is known of rows whether one may fulfil the condition."""
        import pyarrow.compute as pc
        import pyarrow.dataset as pads
        import pyarrow.fs as pafs

        files, kind = pafs.LocalFileSystem(), pads.ParquetFileFormat()
        # No file is opened; its name is its number.
        parts = [
            kind.make_fragment(
                str(number),
                filesystem=files,
                partition_expression=functools.reduce(
                    operator.and_, [*always, *conditions], pc.scalar(value=True)
                ),
            )
            for number, conditions in enumerate(known)
        ]
        found = np.zeros(len(parts), bool)
        dataset = pads.FileSystemDataset(parts, self._schema, kind, files)
        try:
            for left in dataset.get_fragments(filter=self.expression):
                found[int(left.path)] = True
        except pa.ArrowException:
            # A part of the condition has no value there. Evaluating it says so, if a row needs it.
            found[:] = True
        return found


class _Literals:
    """The constants of an expression, and the options of its functions.

    pyarrow pickles an expression as a record batch that holds them.
    """

    def __init__(self, content: pa.Buffer) -> None:
        self._has_cast = self._has_nan = self._has_float = True
        try:
            batch = pa.ipc.open_file(content).get_batch(0)
        except (pa.ArrowException, OSError):
            return
        kinds = [field.type for field in batch.schema]
        flat = [
            column.flatten() if pa.types.is_nested(column.type) else [column] for column in batch
        ]
        self._has_cast = any(
            pa.types.is_struct(kind) and kind.get_field_index("to_type") >= 0 for kind in kinds
        )
        floats = [
            part
            for parts in flat
            for column in parts
            for part in [column.flatten() if pa.types.is_list(column.type) else column]
            if pa.types.is_floating(part.type)
        ]
        self._has_float = bool(floats)
        self._has_nan = any(
            bool(np.isnan(part.drop_null().to_numpy(zero_copy_only=False)).any()) for part in floats
        )

    def allow_bounds_of(self, kind: pa.DataType) -> bool:
        # A cast may wrap or round. No bound of integers is on either side of NaN. And integers
        # of 64 bits are rounded to be compared with a float.
        is_long = pa.types.is_int64(kind) or pa.types.is_uint64(kind)
        return not (self._has_cast or self._has_nan or (self._has_float and is_long))


def named_columns(expression: pc.Expression, schema: pa.Schema) -> list[str]:
    """Return the columns of a schema without which an expression does not fit it."""
    fields = list(schema)

    def fits_without(begin: int, end: int) -> bool:
        import pyarrow.dataset as pads

        left = pa.schema(fields[:begin] + fields[end:])
        try:
            pads.Scanner.from_batches([], schema=left, columns={"": expression})
        except (pa.ArrowException, KeyError):
            return False
        return True

    def needed(begin: int, end: int) -> list[str]:
        if begin == end or fits_without(begin, end):
            return []
        if end - begin == 1:
            return [fields[begin].name]
        middle = (begin + end) // 2
        return needed(begin, middle) + needed(middle, end)

    return needed(0, len(fields))
