"""Sides that do the least that reading needs: pread and the codec over the same pages, or pread.

`least_work.cc` does it, with the codecs that the reader uses: its own kernels, and those of the
Arrow library in the pyarrow wheel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import pyarrow.parquet as pq

from passes.native_program import compiled
from passes.sides import CommandSide

# As Parquet numbers them.
_CODECS = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6, "LZ4": 7}
Way = Literal["codec", "pread"]


def _fixed_width_bytes(footer: pq.FileMetaData) -> Iterator[int]:
    """Yields the bytes of each column chunk as a tensor holds it, which may be fewer there."""
    arrow_types = footer.schema.to_arrow_schema().types
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for arrow_type in arrow_types:
            yield group.num_rows * (arrow_type.bit_width // 8)


def _column_chunks(path: Path, output_bytes: Iterable[int] | None) -> str:
    """Returns the list of column chunks that the program takes."""
    footer = pq.read_metadata(path)
    sizes = iter(_fixed_width_bytes(footer) if output_bytes is None else output_bytes)
    lines = []
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for index in range(group.num_columns):
            chunk = group.column(index)
            starts = [chunk.data_page_offset]
            if chunk.dictionary_page_offset is not None:
                starts.append(chunk.dictionary_page_offset)
            codec = _CODECS[chunk.compression]
            num_rows = 0 if index else group.num_rows
            size = chunk.total_compressed_size
            lines.append(f"{min(starts)} {size} {codec} {next(sizes)} {num_rows}\n")
    return "".join(lines)


def least_work_side(
    name: str,
    path: Path,
    num_threads: int,
    way: Way,
    *,
    read: bool = True,
    output_bytes: Iterable[int] | None = None,
) -> CommandSide:
    """Returns a side that does the least that reading ``path`` needs.

    Args:
        name: Of the side.
        path: A Parquet file; of flat columns of fixed width unless `output_bytes` is given.
        num_threads: Of the program.
        way: "codec": pread, decompress, store as many bytes as the tensors have. "pread": only
            read all bytes to memory that is used again.
        read: True if the stored bytes are read once, as by one who takes batches.
        output_bytes: Of each column chunk as tensors, in the order of the file.
    """
    column_chunks = path.with_suffix(".column_chunks")
    listed = _column_chunks(path, output_bytes)
    # Not anew while another side may be reading it.
    if not column_chunks.exists() or column_chunks.read_text() != listed:
        column_chunks.write_text(listed)
    command = [
        str(compiled("least_work.cc", path.parent)),
        str(path),
        str(column_chunks),
        str(num_threads),
    ]
    return CommandSide(name, [*command, way, "read" if read else "count"])
