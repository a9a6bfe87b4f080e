"""Offset indexes that a hostile footer places within column chunks, or at their ends.

Bytes of a column chunk are then read as an index while they are held to be read as values.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.fixtures import thrift_bytes
from tests.remote.conftest import write_small_pages
from tests.remote.reading import by_http, open_dataset
from tests.servers.faulty_origin import FaultyOrigin
from torchparquet import CorruptFileError

NUM_ROWS, GROUP_ROWS = 120_000, 40_000
# The second half of each row group, so that the last pages of its column chunks are held.
WANTED = [row for row in range(NUM_ROWS) if row % GROUP_ROWS >= GROUP_ROWS // 2]
BLOCK_BYTES = 64 << 10  # of column chunks of which parts are read
LENGTH_OF_INDEX = 5  # of a ColumnChunk, after the offset


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file whose row groups are of several blocks each."""
    path = tmp_path_factory.mktemp("misplaced") / "a.parquet"
    rng = np.random.default_rng(5)
    columns = {"id": np.arange(NUM_ROWS)}
    columns |= {name: rng.integers(0, 2**62, NUM_ROWS) for name in ("x", "y", "z")}
    write_small_pages(pa.table(columns), path, row_group_size=GROUP_ROWS)
    return path.read_bytes()


PLACES = {
    "end of a chunk": lambda begin, end, length: end - length,
    "end of a block": lambda begin, end, length: begin + 4 * BLOCK_BYTES - length,
    "middle of a chunk": lambda begin, end, length: (begin + end) // 2,
    "begin of a chunk": lambda begin, end, length: begin,
    "around the end of a chunk": lambda begin, end, length: end - length // 2,
}


def misplaced(content: bytes, place: str) -> bytes:
    """Let the indexes of each row group but the first lie in the one before, which is held."""
    groups = [
        group[thrift_bytes.GROUP_COLUMNS]
        for group in thrift_bytes.footer(content)[thrift_bytes.FILE_ROW_GROUPS]
    ]
    values: dict[thrift_bytes.Number, int] = {}
    for columns, before in zip(groups[1:], groups, strict=False):
        for column, other in zip(columns, [*before[1:], before[0]], strict=True):
            metadata = other[thrift_bytes.COLUMN_META_DATA]
            begin = thrift_bytes.chunk_begin(metadata)
            end = begin + metadata[thrift_bytes.META_COMPRESSED_BYTES].value
            offset = column[thrift_bytes.COLUMN_OFFSET_INDEX]
            values[offset] = PLACES[place](begin, end, column[LENGTH_OF_INDEX].value)
    return thrift_bytes.all_replaced(content, values)


@pytest.mark.parametrize("place", PLACES)
# In little memory blocks are given up as soon as their last byte was read.
@pytest.mark.parametrize("max_memory", ["3MiB", "64MiB"])
def test_rows_are_right_or_it_is_an_error(
    origin: FaultyOrigin, tmp_path: Path, content: bytes, place: str, max_memory: str
) -> None:
    folder = tmp_path / "train"
    folder.mkdir()
    (folder / "a.parquet").write_bytes(misplaced(content, place))
    (tmp_path / "sound.parquet").write_bytes(content)
    options: dict[str, Any] = {"batch_size": 1000, "rows": WANTED, "num_epochs": 2}
    options["max_memory"] = max_memory
    sound = open_dataset(tmp_path / "sound.parquet", **options)
    expected = [batch["x"].tolist() for batch in sound]
    found: list[list[list[int]]] = []

    def read() -> None:
        dataset = by_http(origin, folder).open(**options)
        try:
            found.append([batch["x"].tolist() for batch in dataset])
        except CorruptFileError:
            found.append(expected)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    reading.join(timeout=120)
    assert found == [expected]
