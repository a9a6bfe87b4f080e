"""The layout of the output, which a journal notes, and its files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

from torchparquet._impl.files.listing import Listing
from torchparquet._impl.plan.plan_options import DEFAULT_WINDOW
from torchparquet.cli.preparing.footer_facts import read_footer, reading_threads
from torchparquet.cli.preparing.places import LocalOutput
from torchparquet.cli.preparing.text_column import TextColumn
from torchparquet.errors import SchemaMismatchError, naming, one_line

JOURNAL = "_rewrite.json"
_FORMAT = 1
CODECS = ("zstd", "lz4", "snappy", "none", "gzip", "brotli")
ENCODINGS = (
    *("dictionary", "plain", "delta_binary_packed", "delta_length_byte_array"),
    *("delta_byte_array", "byte_stream_split"),
)
_ARROW_SCHEMA = b"ARROW:schema"
_PIECE_BYTES = 8 << 20
_MAX_PIECE_ROWS = 1 << 16
# Permuting a bucket holds it twice, beside a row group under way. A column of strings has 31-bit
# offsets.
_BUCKETS_IN_MEMORY = 6
_MAX_BUCKET_BYTES = 1 << 30
_ROUND_ROWS = 1024
_ROW_GROUP_BYTES = 64 << 20
# Fewer than `inspect` calls many, where half of them may be small.
_ROW_GROUPS = 63


@dataclass(frozen=True)
class RewriteOptions:
    """The user's options."""

    row_group_rows: int | None = None
    row_group_bytes: int | None = None  # in memory
    row_groups_per_file: int = 16
    codec: str | None = None
    codec_level: int | None = None
    encodings: dict[str, str] = field(default_factory=dict)
    page_checksums: bool = True
    shuffle: bool = False
    seed: int = 0
    max_memory: int = 1 << 30
    pack: str | None = None  # the column of texts that become tokens
    tokenizer: str | None = None


@dataclass(frozen=True)
class Layout:
    """The layout of the output, as JSON values; encodings and codecs are by leaf column."""

    row_group_rows: int
    rows_per_file: int
    encodings: list[str]
    codecs: list[str]
    piece_rows: int
    slice_rows: int
    num_buckets: int


def make_layout(
    options: RewriteOptions,
    num_rows: int,
    bytes_per_row: float,
    encodings: list[str],
    codecs: list[str],
) -> Layout:
    """Return the layout of `num_rows` rows."""
    rows = options.row_group_rows
    if rows is None:
        wanted_bytes = options.row_group_bytes or _ROW_GROUP_BYTES
        rows = max(1, min(int(wanted_bytes / bytes_per_row), 2**31 - 1))
        if options.row_group_bytes is None:
            # Dealing and shuffling work on row groups, so small data needs several too.
            least = min(_ROUND_ROWS, max(1, num_rows // DEFAULT_WINDOW))
            wanted = max(least, -(-num_rows // _ROW_GROUPS))
            rows = min(rows, -(-wanted // _ROUND_ROWS) * _ROUND_ROWS if wanted > least else least)
        rows = rows // _ROUND_ROWS * _ROUND_ROWS or rows
    if min(rows, num_rows) * bytes_per_row > options.max_memory / 2:
        fitting = max(1, int(options.max_memory / 2 / bytes_per_row))
        raise ValueError(
            "a row group must fit half of max_memory: "
            f"{rows:,} rows take about {rows * bytes_per_row / 2**20:,.0f} MiB, max_memory is "
            f"{options.max_memory / 2**20:,.0f} MiB; {fitting:,} rows fit"
        )
    bucket_bytes = min(options.max_memory / _BUCKETS_IN_MEMORY, _MAX_BUCKET_BYTES)
    bucket_rows = max(1, int(bucket_bytes / bytes_per_row))
    return Layout(
        rows,
        rows * options.row_groups_per_file,
        encodings,
        codecs,
        max(1, min(int(_PIECE_BYTES / bytes_per_row), _MAX_PIECE_ROWS)),
        bucket_rows,
        -(-num_rows // bucket_rows),
    )


def parse_encodings(texts: Sequence[str]) -> dict[str, str]:
    """Return the encoding of each column of `NAME=ENCODING` texts."""
    encodings = {}
    for text in texts:
        name, _, encoding = text.rpartition("=")
        if not name or encoding.lower() not in ENCODINGS:
            raise ValueError(
                f"must be NAME=ENCODING with one of {', '.join(ENCODINGS)}, got {text!r}"
            )
        encodings[name] = encoding.lower()
    return encodings


def make_request(
    fingerprint: str, options: RewriteOptions, texts: TextColumn | None
) -> dict[str, Any]:
    """Return what must be the same when a rewrite resumes, as JSON values."""
    request = {"fingerprint": fingerprint, **asdict(options)}
    request["tokenizer"] = None if texts is None else texts.tokenizer.key
    if options.shuffle:
        # NumPy's random numbers may change between its releases.
        return request | {"numpy": np.__version__}
    del request["seed"]
    return request


def begun_layout(output: LocalOutput, request: dict[str, Any]) -> Layout | None:
    """Return the layout of the rewrite begun in the output; None if none was begun."""
    text = output.read_text(JOURNAL)
    if text is None:
        # A killed run may leave the beginning of a journal.
        if others := sorted(set(output.names()) - {f".{JOURNAL}.tmp"}):
            raise ValueError(
                f"--output must be a directory that is empty or of the same rewrite, "
                f"{output.shown!r} holds {others[0]!r}"
            )
        return None
    path = f"{output.shown}/{JOURNAL}"
    try:
        journal = json.loads(text)
        version = journal.get("format")
    except (ValueError, AttributeError) as error:
        raise ValueError(
            f"{path!r}, the note of a rewrite, is damaged ({one_line(error)}); take "
            "another --output, or empty this one"
        ) from None
    if version != _FORMAT:
        raise ValueError(f"{path!r} was written by another version of torchparquet")
    for key, value in request.items():
        begun = journal["request"].get(key)
        if begun != value:
            what = {
                "fingerprint": "of other input files, or they have changed",
                "tokenizer": "with another tokenizer",
            }.get(key, f"with {key}={begun!r}, not {value!r}")
            raise ValueError(f"{output.shown!r} holds a rewrite {what}; take another --output")
    return Layout(**journal["layout"])


def begin(output: LocalOutput, request: dict[str, Any], layout: Layout) -> None:
    """Note a new rewrite."""
    journal = {"format": _FORMAT, "request": request, "layout": asdict(layout)}
    output.write_text(JOURNAL, json.dumps(journal, indent=2))


class OutputSchema(NamedTuple):
    """The schema of the output and its differences from the input, as sentences."""

    arrow: Any
    writer_options: dict[str, Any]  # that keep the stored types
    leaves: list[str]
    changes: list[str]
    differing_keys: list[str]  # of metadata, where the first file's value is kept

    def with_tokens(self, texts: TextColumn) -> OutputSchema:
        """Return the schema with tokens in place of texts, which has as many leaves."""
        arrow = texts.schema(self.arrow)
        leaves = _leaves(_footer_without_rows(arrow, **self.writer_options))
        return self._replace(arrow=arrow, leaves=[leaf.path for leaf in leaves])


class PlannedFile(NamedTuple):
    """A file of the output: its first row, and the rows of its row groups."""

    name: str
    begin: int
    row_groups: list[int]

    @property
    def num_rows(self) -> int:
        """Its rows."""
        return sum(self.row_groups)


def planned_files(directory: str, num_rows: int, layout: Layout) -> list[PlannedFile]:
    """Return the files of a directory of the output, "" for itself."""
    prefix = f"{directory}/" if directory else ""
    files = []
    for number, begin in enumerate(range(0, num_rows, layout.rows_per_file)):
        end = min(begin + layout.rows_per_file, num_rows)
        groups = range(begin, end, layout.row_group_rows)
        sizes = [min(layout.row_group_rows, end - at) for at in groups]
        files.append(PlannedFile(f"{prefix}part-{number:05}.parquet", begin, sizes))
    return files


def writer_options(schema: OutputSchema, layout: Layout, options: RewriteOptions) -> dict[str, Any]:
    """Return the options of pyarrow's writer; raise unless it takes encodings and codec."""
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
    made = {
        **schema.writer_options,
        "compression": dict(zip(schema.leaves, layout.codecs, strict=True)),
        "compression_level": options.codec_level,
        "use_dictionary": [n for n, encoding in encodings.items() if encoding == "dictionary"],
        "column_encoding": named or None,
        "write_page_checksum": options.page_checksums,
        "write_page_index": True,
    }
    try:
        _footer_without_rows(schema.arrow, **made)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"--codec-level {options.codec_level} does not go with --codec {options.codec}: "
            f"{one_line(error)}"
        ) from error
    return made


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


def common_schema(paths: Sequence[str], listing: Listing) -> OutputSchema:
    """Return the schema of files that have the same columns, nullable if one of them is."""
    first, first_metadata = _schema_of(paths[0], listing)
    fields, key_values = list(first), dict(first.metadata or {})
    differing: set[bytes] = set()
    keeps_arrow_schema = False
    with reading_threads(listing) as threads:
        found = threads.map(lambda path: _schema_of(path, listing), paths)
        for path, (schema, metadata) in zip(paths, found, strict=True):
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


def _schema_of(path: str, listing: Listing) -> tuple[Any, Any]:
    with pq.ParquetFile(listing.source(path)) as file:
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
