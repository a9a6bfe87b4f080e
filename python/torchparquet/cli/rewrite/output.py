"""Writes output files, in the schema of all input files. Each exists as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

from torchparquet._impl.files.opening import source_of
from torchparquet._impl.files.remote.remote_files import RemoteFiles
from torchparquet.cli.columns import read_footer
from torchparquet.cli.rewrite.layout import Layout, RewriteOptions
from torchparquet.cli.rewrite.output_place import LocalOutput
from torchparquet.errors import SchemaMismatchError, naming, one_line

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
    leaves: list[str]
    changes: list[str]
    differing_keys: list[str]


class OutputFile(NamedTuple):
    """A planned file, by the rows of its row groups."""

    name: str
    row_groups: list[int]

    @property
    def num_rows(self) -> int:
        """Rows of the file."""
        return sum(self.row_groups)


def planned_files(directory: str, num_rows: int, layout: Layout) -> list[OutputFile]:
    """Return the files of `num_rows` rows in a directory of the output, "" for itself."""
    prefix = f"{directory}/" if directory else ""
    files = []
    for number, begin in enumerate(range(0, num_rows, layout.rows_per_file)):
        end = min(begin + layout.rows_per_file, num_rows)
        groups = range(begin, end, layout.row_group_rows)
        sizes = [min(layout.row_group_rows, end - at) for at in groups]
        files.append(OutputFile(f"{prefix}part-{number:05}.parquet", sizes))
    return files


def is_there(place: LocalOutput, file: OutputFile) -> bool:
    """Return True if the file exists with all its rows."""
    found = place.manifest([file.name])
    return found is not None and found.num_rows == file.num_rows


def writer_options(schema: OutputSchema, layout: Layout, options: RewriteOptions) -> dict[str, Any]:
    """Return the options of pyarrow's writer; raise if a column cannot have its encoding."""
    encodings = dict(zip(schema.leaves, layout.encodings, strict=True))
    # pyarrow takes the others otherwise.
    named = {
        name: encoding.upper()
        for name, encoding in encodings.items()
        if encoding not in ("dictionary", "plain")
    }
    for name, encoding in named.items():
        chosen = {"use_dictionary": False, "column_encoding": {name: encoding}}
        try:
            _footer_without_rows(schema.arrow, **schema.writer_options, **chosen)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(
                f"column {name!r} cannot be encoded as {encoding.lower()}: {one_line(error)}"
            ) from error
    return {
        **schema.writer_options,
        "compression": dict(zip(schema.leaves, layout.codecs, strict=True)),
        "compression_level": options.codec_level,
        "use_dictionary": [n for n, encoding in encodings.items() if encoding == "dictionary"],
        "column_encoding": named or None,
        "write_page_checksum": options.page_checksums,
        "write_page_index": True,
    }


def write_file(
    place: LocalOutput, name: str, schema: Any, options: dict[str, Any], groups: Iterator[Any]
) -> None:
    """Write tables as the row groups of a file, which gets its name once it is complete."""
    num_rows = 0
    with place.new_file(name) as path:
        with (
            naming(path),
            path.open("wb") as sink,
            pq.ParquetWriter(sink, schema, **options) as writer,
        ):
            if not options["store_schema"]:
                # Without its own schema, pyarrow drops the metadata too.
                writer.add_key_value_metadata(schema.metadata or {})
            for table in groups:
                writer.write_table(table, row_group_size=table.num_rows)
                num_rows += table.num_rows
        metadata = read_footer(str(path))
        held = sum(metadata.row_group(at).num_rows for at in range(metadata.num_row_groups))
        if not metadata.num_rows == held == num_rows:
            raise RuntimeError(
                f"{str(path)!r} was written with {num_rows} rows and holds {metadata.num_rows}, "
                f"row groups of {held}"
            )


def common_schema(paths: Sequence[str], remote: RemoteFiles | None) -> OutputSchema:
    """Return the schema of files that all have the same columns, in the same order.

    A column that may be null in one of them may be null in the output.
    """
    first, first_metadata = _schema_of(paths[0], remote)
    fields, key_values = list(first), dict(first.metadata or {})
    differing: set[bytes] = set()
    keeps_arrow_schema = False
    for path in paths:
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
    written = _leaves(_footer_without_rows(arrow, **options))
    changes = [
        f"column {old.path!r}: {what.replace('_', ' ')} {was} becomes {becomes}"
        for old, new in zip(_leaves(first_metadata), written, strict=True)
        for what in ("path", "physical_type", "logical_type")
        if (was := str(getattr(old, what))) != (becomes := str(getattr(new, what)))
    ]
    keys = sorted(key.decode(errors="backslashreplace") for key in differing)
    return OutputSchema(arrow, options, [column.path for column in written], changes, keys)


def _schema_of(path: str, remote: RemoteFiles | None) -> tuple[Any, Any]:
    with pq.ParquetFile(source_of(path, remote)) as file:
        return file.schema_arrow, file.metadata


def _check_same(first_path: str, first: Any, path: str, schema: Any) -> None:
    if schema.names != first.names:
        ours, others = (
            [n for n in one.names if n not in set(other.names)]
            for one, other in ((first, schema), (schema, first))
        )
        what = f"only in the first {ours}, only in the second {others}"
        what = what if ours or others else "in another order"
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


def _footer_without_rows(schema: Any, **options: Any) -> Any:
    """Return the footer of a file of that schema without rows."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink, **options)
    return pq.read_metadata(pa.BufferReader(sink.getvalue()))
