"""The options of a rewrite, and the layout that follows from them and from the files.

The layout is noted in the output, so that an interrupted rewrite resumes, and no other does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from torchparquet._impl.reading.window_limits import DEFAULT_WINDOW
from torchparquet.cli.rewrite.output_place import LocalOutput
from torchparquet.errors import one_line

JOURNAL = "_rewrite.json"
_FORMAT = 1
CODECS = ("zstd", "lz4", "snappy", "none", "gzip", "brotli")
ENCODINGS = (
    "dictionary",
    "plain",
    "delta_binary_packed",
    "delta_length_byte_array",
    "delta_byte_array",
    "byte_stream_split",
)


@dataclass(frozen=True)
class RewriteOptions:
    """The user's options.

    Attributes:
        row_group_bytes: Bytes of each row group in memory. None for 64 MiB, or less if that gives
            fewer than 63 row groups.
    """

    row_group_rows: int | None = None
    row_group_bytes: int | None = None
    row_groups_per_file: int = 16
    codec: str | None = None
    codec_level: int | None = None
    encodings: dict[str, str] = field(default_factory=dict)
    page_checksums: bool = True
    shuffle: bool = False
    seed: int = 0
    max_memory: int = 1 << 30

    def __post_init__(self) -> None:
        """Check what the command line does not."""
        if self.codec is None and self.codec_level is not None:
            raise ValueError(
                "codec_level needs a codec (--codec), since columns keep theirs without one; got "
                f"level {self.codec_level}"
            )


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


def make_request(fingerprint: str, options: RewriteOptions) -> dict[str, Any]:
    """Return what must be the same when a rewrite resumes, as JSON values."""
    request = {"fingerprint": fingerprint, **asdict(options)}
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
        for other in sorted(set(output.names()) - {f".{JOURNAL}.tmp"}):
            raise ValueError(
                f"--output must be a directory that is empty or of the same rewrite, "
                f"{output.shown!r} holds {other!r}"
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
            what = f"with {key}={begun!r}, not {value!r}"
            if key == "fingerprint":
                what = "of other input files, or they have changed"
            raise ValueError(f"{output.shown!r} holds a rewrite {what}; take another --output")
    return Layout(**journal["layout"])


def begin(output: LocalOutput, request: dict[str, Any], layout: Layout) -> None:
    """Note a new rewrite."""
    journal = {"format": _FORMAT, "request": request, "layout": asdict(layout)}
    output.write_text(JOURNAL, json.dumps(journal, indent=2))
