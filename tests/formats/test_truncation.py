"""Three small files cut at every byte, before they are planned and between planning and reading."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from torchparquet import CorruptFileError, ParquetDataset

FILES = {
    "numbers": (
        pa.table({"i": range(50), "x": [None, 0.5] * 25}),
        {"compression": "snappy"},
    ),
    "texts": (
        pa.table({"s": ["one", "two"] * 20}),
        {"compression": "none", "use_dictionary": False, "write_page_checksum": True},
    ),
    "lists": (
        pa.table({"l": [[1, 2], [], [3]] * 10}),
        {"compression": "zstd", "data_page_version": "2.0"},
    ),
}


@pytest.fixture(params=FILES)
def path(request: Any, tmp_path: Path) -> Any:
    table, options = FILES[request.param]
    path = tmp_path / "whole.parquet"
    pq.write_table(table, path, store_schema=False, write_statistics=False, **options)  # type: ignore[arg-type]
    return path


def read(path: Any) -> ParquetDataset:
    return ParquetDataset(str(path), batch_size=16, nulls=None, rank=0, world_size=1, num_threads=1)


def test_cut_before_planning(path: Any, tmp_path: Path) -> None:
    content = path.read_bytes()
    cut_path = tmp_path / "cut.parquet"
    for cut in range(len(content)):
        cut_path.write_bytes(content[:cut])
        with pytest.raises(CorruptFileError) as caught:
            read(cut_path)
        assert str(cut_path) in str(caught.value), cut
    assert len(list(read(path))) > 1


def test_cut_between_planning_and_reading(path: Any) -> None:
    """The time of the last change is kept, so that only the size tells."""
    content, status = path.read_bytes(), path.stat()
    planned = read(path)
    whole = len(list(planned))
    for cut in range(len(content)):
        os.truncate(path, cut)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        with pytest.raises(CorruptFileError, match="changed") as caught:
            list(planned)
        assert str(path) in str(caught.value), cut
        with path.open("r+b") as file:
            file.write(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert len(list(planned)) == whole
