"""Writes output files, in the schema of all input files. Each exists as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

from torchparquet._impl.files.listing import Listing
from torchparquet.errors import SchemaMismatchError, naming, one_line
from torchparquet.tools.footers import read_footer
from torchparquet.tools.rewrite.input_rows import RowStream
from torchparquet.tools.rewrite.layout import Layout, RewriteOptions
from torchparquet.tools.rewrite.output_place import LocalOutput

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


@dataclass(frozen=True)
class OutputFile:
    """One planned file."""

    name: str
    begin: int
    num_rows: int

    def is_there(self, output: LocalOutput) -> bool:
        """True if the file exists with all its rows."""
        return output.num_rows_of(self.name) == self.num_rows


def planned_files(directory: str, num_rows: int, layout: Layout) -> list[OutputFile]:
    """Return the files of `num_rows` rows in a directory of the output, "" for itself."""
    prefix = f"{directory}/" if directory else ""
    per_file = layout.rows_per_file
    begins = range(0, num_rows, per_file)
    return [
        OutputFile(f"{prefix}part-{number:05}.parquet", begin, min(per_file, num_rows - begin))
        for number, begin in enumerate(begins)
    ]


class FileWriter:
    """Writes output files of one schema and layout."""

    def __init__(
        self,
        schema: OutputSchema,
        layout: Layout,
        options: RewriteOptions,
        output: LocalOutput,
    ) -> None:
        """Prepare; writes nothing yet."""
        self._schema = schema
        self.layout = layout
        self._output = output
        encodings = dict(zip(schema.leaves, layout.encodings, strict=True))
        # pyarrow takes the others otherwise.
        named = {
            name: encoding.upper()
            for name, encoding in encodings.items()
            if encoding not in ("dictionary", "plain")
        }
        self._options = {
            **schema.writer_options,
            "compression": dict(zip(schema.leaves, layout.codecs, strict=True)),
            "compression_level": options.codec_level,
            "use_dictionary": [n for n, encoding in encodings.items() if encoding == "dictionary"],
            "column_encoding": named or None,
            "write_page_checksum": options.page_checksums,
            "write_page_index": True,
        }
        for name, encoding in named.items():
            _check_encoding(schema, name, encoding)

    def write(self, file: OutputFile, rows: RowStream, advance: Callable[[int], None]) -> None:
        """Write the next rows as a file. It gets its name once it is complete and on disk."""
        with (
            self._output.new_file(file.name) as path,
            naming(path),
            path.open("wb") as sink,
        ):
            with pq.ParquetWriter(sink, self._schema.arrow, **self._options) as writer:
                if not self._schema.writer_options["store_schema"]:
                    # Without its own schema, pyarrow drops the metadata too.
                    writer.add_key_value_metadata(self._schema.arrow.metadata or {})
                left = file.num_rows
                while left:
                    wanted = min(left, self.layout.row_group_rows)
                    tables = list(rows.take(wanted))
                    if sum(table.num_rows for table in tables) != wanted:
                        raise RuntimeError(
                            f"the input has ended {left:,} rows before {file.name!r}"
                        )
                    writer.write_table(pa.concat_tables(tables), row_group_size=wanted)
                    left -= wanted
                    advance(wanted)
            sink.flush()
            os.fsync(sink.fileno())
            metadata = read_footer(str(path))
            held = sum(metadata.row_group(at).num_rows for at in range(metadata.num_row_groups))
            if not metadata.num_rows == held == file.num_rows:
                raise RuntimeError(
                    f"{str(path)!r} was written with {file.num_rows} rows and holds "
                    f"{metadata.num_rows}, row groups of {held}"
                )


def _check_encoding(schema: OutputSchema, name: str, encoding: str) -> None:
    """Write the column without rows; pyarrow refuses the encoding as it would with rows."""
    options = {
        **schema.writer_options,
        "use_dictionary": False,
        "column_encoding": {name: encoding},
    }
    try:
        with pq.ParquetWriter(pa.BufferOutputStream(), schema.arrow, **options) as writer:
            writer.write_table(schema.arrow.empty_table())
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"column {name!r} cannot be encoded as {encoding.lower()}: {one_line(error)}"
        ) from error


def common_schema(paths: Sequence[str], listing: Listing) -> OutputSchema:
    """Return the schema of files that all have the same columns, in the same order.

    A column that may be null in one of them may be null in the output.
    """
    first, first_metadata = _schema_of(paths[0], listing)
    fields = list(first)
    key_values = dict(first.metadata or {})
    differing: set[bytes] = set()
    keeps_arrow_schema = _ARROW_SCHEMA in (first_metadata.metadata or {})
    for path in paths[1:]:
        schema, metadata = _schema_of(path, listing)
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


def _schema_of(path: str, listing: Listing) -> tuple[Any, Any]:
    with pq.ParquetFile(listing.source(path)) as file:
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
