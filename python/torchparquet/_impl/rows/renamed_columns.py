"""Values of expressions in a file that stores columns by other names than its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import pyarrow.compute as pc
    import pyarrow.dataset as pads


def batches_of_renamed(
    fragment: pads.ParquetFileFragment,
    schema: pa.Schema,
    stored_names: Mapping[str, str],
    values: Mapping[str, pa.Scalar],
    expressions: Mapping[str, pc.Expression],
) -> Iterator[pa.RecordBatch]:
    """Yield the values of expressions for a file's rows, in order."""
    import pyarrow.compute as pc
    import pyarrow.dataset as pads

    in_file = fragment.physical_schema
    names = {name: stored_names.get(name, name) for name in schema.names}
    stored = {name: pc.field(other) for name, other in names.items() if other in in_file.names}
    for batch in fragment.scanner(schema=in_file, columns=stored).to_batches():
        columns = [
            batch.column(field.name).cast(field.type)
            if field.name in stored
            else _repeated(values.get(field.name), field.type, len(batch))
            for field in schema
        ]
        held = pa.Table.from_arrays(columns, schema=schema)
        yield from pads.dataset(held).scanner(columns=dict(expressions)).to_table().to_batches()


def _repeated(value: pa.Scalar | None, kind: pa.DataType, count: int) -> pa.Array:
    return pa.nulls(count, kind) if value is None else pa.repeat(value.cast(kind), count)


def flat_renames(fields: pa.Schema, renames: Mapping[str, str], stored: pa.Schema) -> set[str]:
    """Return the columns among `fields` that a file stores by another name, or lacks."""
    for field in fields:
        if not pa.types.is_nested(field.type):
            continue
        for path, other in renames.items():
            is_within = path.startswith(f"{field.name}.")
            if is_within and (other or field.name in stored.names):
                raise ValueError(
                    f"rows cannot be selected by column {field.name!r}: a file of the table stores "
                    f"{path!r} by another name, or is older than it"
                )
    return {
        name for name in fields.names if name in renames and (renames[name] or name in stored.names)
    }
