"""What a rewrite is asked for, and what follows from that and from the files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from torchparquet.checks import checked_int

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
    """What the user asks for.

    Attributes:
        row_group_rows: Rows of each row group; None for what `row_group_bytes` says.
        row_group_bytes: Of each row group, in memory; None for 64 MiB, or less where all rows would
            be fewer than 64 row groups.
        row_groups_per_file: Of each file but the last.
        codec: One of `CODECS`.
        codec_level: None for the codec's usual one.
        encodings: By column; others keep theirs.
        page_checksums: Whether pages get them.
        shuffle: Permute the rows of all files.
        seed: Of the permutation, `0 <= seed < 2**64`.
        max_memory: Bytes; what is held at any time.
    """

    row_group_rows: int | None = None
    row_group_bytes: int | None = None
    row_groups_per_file: int = 16
    codec: str = "zstd"
    codec_level: int | None = None
    encodings: Mapping[str, str] = field(default_factory=dict)
    page_checksums: bool = True
    shuffle: bool = False
    seed: int = 0
    max_memory: int = 1 << 30

    def __post_init__(self) -> None:
        """Check every field."""
        if self.row_group_rows is not None:
            checked_int("row_group_rows", self.row_group_rows, 1, 2**31)
        if self.row_group_bytes is not None:
            checked_int("row_group_bytes", self.row_group_bytes, 1, 2**62)
        checked_int("row_groups_per_file", self.row_groups_per_file, 1, 2**15)
        checked_int("seed", self.seed, 0, 2**64)
        checked_int("max_memory", self.max_memory, 1 << 20, 2**62)
        if self.codec not in CODECS:
            raise ValueError(f"codec must be one of {CODECS}, got {self.codec!r}")
        for name, encoding in self.encodings.items():
            if encoding not in ENCODINGS:
                raise ValueError(
                    f"encoding must be one of {ENCODINGS}, got {encoding!r} for {name!r}"
                )


@dataclass(frozen=True)
class Layout:
    """How the output is laid out; all of it is JSON, for the journal.

    Attributes:
        row_group_rows: Rows of each row group but a file's last.
        rows_per_file: Rows of each file but the last.
        encodings: One of `ENCODINGS` for each leaf column, in the order of the files.
        piece_rows: Rows that are read at once.
        slice_rows: Rows that are dealt to buckets at once, when shuffling.
        num_buckets: That rows are dealt to, when shuffling; each fits memory.
    """

    row_group_rows: int
    rows_per_file: int
    encodings: tuple[str, ...]
    piece_rows: int
    slice_rows: int
    num_buckets: int


_PIECE_BYTES = 8 << 20
_MAX_PIECE_ROWS = 1 << 16
# A bucket is there twice when it is permuted, beside a row group that is being written; and a
# column of strings is addressed by 31 bits.
_BUCKETS_IN_MEMORY = 6
_MAX_BUCKET_BYTES = 1 << 30
_ROUND_ROWS = 1024
_ROW_GROUP_BYTES = 64 << 20
_ROW_GROUPS = 64


def make_layout(
    options: RewriteOptions, num_rows: int, bytes_per_row: float, encodings: tuple[str, ...]
) -> Layout:
    """Return the layout of `num_rows` rows.

    Args:
        options: What the user asks for.
        num_rows: Of all files.
        bytes_per_row: That a row takes in memory.
        encodings: Of each leaf column.

    Raises:
        ValueError: A row group does not fit `max_memory`.
    """
    rows = options.row_group_rows
    if rows is None:
        wanted_bytes = options.row_group_bytes or _ROW_GROUP_BYTES
        rows = max(1, min(int(wanted_bytes / bytes_per_row), 2**31 - 1))
        if options.row_group_bytes is None:
            # Ranks are dealt row groups, and shuffling begins with them: small data needs some too.
            rows = min(rows, max(_ROUND_ROWS, -(-num_rows // _ROW_GROUPS)))
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
        max(1, min(int(_PIECE_BYTES / bytes_per_row), _MAX_PIECE_ROWS)),
        bucket_rows,
        -(-num_rows // bucket_rows),
    )


def parse_encoding(text: str) -> tuple[str, str]:
    """Return name and encoding of `NAME=ENCODING`.

    Raises:
        ValueError: It is not that.
    """
    match = re.fullmatch(r"(.+)=([A-Za-z_]+)", text)
    if match is None or match[2].lower() not in ENCODINGS:
        raise ValueError(f"must be NAME=ENCODING with one of {', '.join(ENCODINGS)}, got {text!r}")
    return match[1], match[2].lower()
