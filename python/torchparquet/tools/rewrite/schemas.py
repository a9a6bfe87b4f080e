"""The schema of the output: that of all input files, with their key-value metadata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

from torchparquet._impl.files.opening import source_of
from torchparquet._impl.files.remote.remote_files import RemoteFiles
from torchparquet.errors import SchemaMismatchError

_ARROW_SCHEMA = b"ARROW:schema"


@dataclass(frozen=True)
class OutputSchema:
    """The schema of the output and its differences from the input.

    Attributes:
        writer_options: Options of `pyarrow.parquet.ParquetWriter` that keep the stored types.
        changes: A sentence for each type that is stored otherwise than before.
        differing_keys: Keys of metadata that files disagree about; the first file's value is kept.
    """

    arrow: Any
    writer_options: dict[str, Any]
    leaves: tuple[str, ...]
    changes: tuple[str, ...]
    differing_keys: tuple[str, ...]


def common_schema(paths: Sequence[str], remote: RemoteFiles | None = None) -> OutputSchema:
    """Return the schema of files that all have the same columns, in the same order.

    A column that may be null in one of them may be null in the output.
    """
    first, first_metadata = _schema_of(paths[0], remote)
    fields = list(first)
    key_values = dict(first.metadata or {})
    differing: set[bytes] = set()
    keeps_arrow_schema = _ARROW_SCHEMA in (first_metadata.metadata or {})
    for path in paths[1:]:
        schema, metadata = _schema_of(path, remote)
        _check_same(paths[0], first, path, schema)
        fields = [
            ours.with_nullable(ours.nullable or theirs.nullable)
            for ours, theirs in zip(fields, schema, strict=True)
        ]
        for key, value in (schema.metadata or {}).items():
            if key_values.setdefault(key, value) != value:
                differing.add(key)
        keeps_arrow_schema |= _ARROW_SCHEMA in (metadata.metadata or {})
    arrow = pa.schema(fields, metadata=key_values or None)
    options = {
        "store_schema": keeps_arrow_schema,
        "store_decimal_as_integer": any(map(_is_decimal_integer, _leaves(first_metadata))),
        # The items of lists keep their names.
        "use_compliant_nested_type": False,
    }
    written = _written(arrow, options)
    return OutputSchema(
        arrow,
        options,
        tuple(column.path for column in _leaves(written)),
        tuple(_changes(first_metadata, written)),
        tuple(sorted(key.decode(errors="backslashreplace") for key in differing)),
    )


def _schema_of(path: str, remote: RemoteFiles | None) -> tuple[Any, Any]:
    with pq.ParquetFile(source_of(path, remote)) as file:
        return file.schema_arrow, file.metadata


def _check_same(first_path: str, first: Any, path: str, schema: Any) -> None:
    if schema.names != first.names:
        ours, others = (
            [n for n in one.names if n not in set(other.names)]
            for one, other in ((first, schema), (schema, first))
        )
        what = (
            f"only in the first {ours}, only in the second {others}"
            if ours or others
            else ("in another order")
        )
        raise SchemaMismatchError(f"files disagree about columns: {first_path!r}, {path!r}: {what}")
    for mine, other in zip(first, schema, strict=True):
        if not mine.type.equals(other.type):
            raise SchemaMismatchError(
                f"files disagree about column {mine.name!r}: {mine.type} in {first_path!r}, "
                f"{other.type} in {path!r}"
            )


def _leaves(metadata: Any) -> list[Any]:
    return [metadata.schema.column(index) for index in range(metadata.num_columns)]


def _is_decimal_integer(column: Any) -> bool:
    is_decimal = column.logical_type.type == "DECIMAL" or column.converted_type == "DECIMAL"
    return is_decimal and column.physical_type in ("INT32", "INT64")


def _written(schema: Any, options: dict[str, Any]) -> Any:
    """Return the footer of a file of that schema without rows."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, **options):
        pass
    return pq.read_metadata(pa.BufferReader(sink.getvalue()))


def _changes(before: Any, after: Any) -> list[str]:
    changes = []
    for old, new in zip(_leaves(before), _leaves(after), strict=True):
        pairs = (
            ("path", old.path, new.path),
            ("physical type", old.physical_type, new.physical_type),
            ("logical type", str(old.logical_type), str(new.logical_type)),
        )
        changes += [
            f"column {old.path!r}: {what} {was} becomes {becomes}"
            for what, was, becomes in pairs
            if was != becomes
        ]
    return changes
