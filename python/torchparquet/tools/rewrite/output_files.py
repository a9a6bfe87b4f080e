"""Writes output files. Each exists as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

from torchparquet.errors import naming, one_line
from torchparquet.tools.footers import read_footer
from torchparquet.tools.rewrite.input_rows import RowStream
from torchparquet.tools.rewrite.options import Layout, RewriteOptions
from torchparquet.tools.rewrite.output_place import OutputPlace
from torchparquet.tools.rewrite.schemas import OutputSchema


@dataclass(frozen=True)
class OutputFile:
    """One planned file."""

    name: str
    begin: int
    num_rows: int

    def is_there(self, output: OutputPlace) -> bool:
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
        output: OutputPlace,
    ) -> None:
        """Prepare; writes nothing yet."""
        self._schema = schema
        self.layout = layout
        self._output = output
        encodings = dict(zip(schema.leaves, layout.encodings, strict=True))
        named = _named_encodings(encodings)
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
        with self._output.new_file(file.name) as path, naming(path):
            self._write(path, file, rows, advance)

    def _write(
        self, path: Path, file: OutputFile, rows: RowStream, advance: Callable[[int], None]
    ) -> None:
        with path.open("wb") as sink:
            with pq.ParquetWriter(sink, self._schema.arrow, **self._options) as writer:
                if not self._schema.writer_options["store_schema"]:
                    # Without its own schema, pyarrow drops the metadata too.
                    writer.add_key_value_metadata(self._schema.arrow.metadata or {})
                left = file.num_rows
                while left:
                    wanted = min(left, self.layout.row_group_rows)
                    table = _joined(rows.take(wanted))
                    if table is None or table.num_rows != wanted:
                        raise RuntimeError(
                            f"the input has ended {left:,} rows before {file.name!r}"
                        )
                    writer.write_table(table, row_group_size=wanted)
                    left -= wanted
                    advance(wanted)
            sink.flush()
            os.fsync(sink.fileno())
        self._check(path, file)

    def _check(self, path: Path, file: OutputFile) -> None:
        metadata = read_footer(str(path))
        rows = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
        if metadata.num_rows != file.num_rows or sum(rows) != file.num_rows:
            raise RuntimeError(
                f"{str(path)!r} was written with {file.num_rows} rows and holds "
                f"{metadata.num_rows}, row groups of {sum(rows)}"
            )


def _named_encodings(encodings: Mapping[str, str]) -> dict[str, str]:
    """Return the encodings that pyarrow takes by name."""
    return {
        name: encoding.upper()
        for name, encoding in encodings.items()
        if encoding not in ("dictionary", "plain")
    }


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


def _joined(tables: Iterable[Any]) -> Any:
    parts = list(tables)
    return pa.concat_tables(parts) if parts else None
