"""Footers that are read beside another with the same schema: what they say when read alone.

The first footer with a schema is parsed by Arrow, the following ones are scanned.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.thrift_bytes import footer_begin
from torchparquet import ParquetDataset
from torchparquet._impl.native import Footers, read_footers
from torchparquet.errors import CorruptFileError

FOLDER = os.environ.get("PARQUET_TEST_DATA", "")
FILES = sorted(Path(FOLDER).glob("*.parquet")) if FOLDER else []
OF_FILES = [name for name in dir(Footers) if name.startswith("file_")]


def read(*paths: Path) -> Footers:
    names = [str(path) for path in paths]
    return read_footers(names, 1, [], with_chunk_sizes=True, with_contents=True)


def error_of(*paths: Path) -> str | None:
    try:
        read(*paths)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def leaves(schema: Any) -> list[tuple[object, ...]]:
    names = [name for name in dir(schema[0]) if not name.startswith("_")] if schema else []
    return [tuple(getattr(leaf, name) for name in names) for leaf in schema]


def assert_same_beside(first: Path, path: Path) -> None:
    """`path` says beside `first` what it says alone."""
    alone, one, both = read(path), read(first), read(first, path)
    for name in OF_FILES:
        if name != "file_schema":
            assert getattr(both, name)[1:].tolist() == getattr(alone, name).tolist(), name
    begin = int(one.file_num_row_groups[0])
    for name in ("row_group_num_rows", "row_group_num_bytes"):
        assert getattr(both, name)[begin:].tolist() == getattr(alone, name).tolist(), name
    first_chunk = len(one.chunk_num_bytes)
    assert both.chunk_num_bytes[first_chunk:].tolist() == alone.chunk_num_bytes.tolist()
    assert both.content(1) == alone.content(0)
    (schema,) = alone.schemas
    assert leaves(both.schemas[both.file_schema[1]]) == leaves(schema)
    if both.file_schema.tolist() == [0, 0]:
        added = np.add(one.schema_leaf_bytes[0], alone.schema_leaf_bytes[0])
        np.testing.assert_allclose(both.schema_leaf_bytes[0], added)


@pytest.mark.skipif(not FILES, reason="PARQUET_TEST_DATA names no directory of files")
@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_a_file_beside_its_copy(path: Any, tmp_path: Path) -> None:
    copy = tmp_path / "copy.parquet"
    shutil.copy(path, copy)
    reason = error_of(copy)
    if reason is not None:
        assert error_of(path, copy) == error_of(path) == reason.replace(str(copy), str(path))
        return
    assert_same_beside(path, copy)


SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string()), ("list", pa.list_(pa.int64()))])


def table(num_rows: int) -> pa.Table:
    columns = [
        np.arange(num_rows),
        [str(number) * (number % 7) for number in range(num_rows)],
        [list(range(number % 5)) for number in range(num_rows)],
    ]
    return pa.table(columns, SCHEMA)


def test_files_of_other_sizes(tmp_path: Path) -> None:
    first, second, empty = (tmp_path / f"{name}.parquet" for name in ("first", "second", "empty"))
    pq.write_table(table(1000), first, row_group_size=300)
    pq.write_table(table(50), second, row_group_size=7, store_schema=False, compression="zstd")
    pq.write_table(table(0), empty)
    files = (first, second, empty)
    for one in files:
        for other in files:
            assert_same_beside(one, other)
    footers = read(*files)
    assert footers.file_num_rows.tolist() == [1000, 50, 0]
    assert footers.file_schema.tolist() == [0, 0, 0]
    chunks = [pq.read_metadata(file).row_group(0).column(0) for file in (first, second)]
    assert footers.row_group_num_rows[[0, 4]].tolist() == [chunk.num_values for chunk in chunks]


def test_a_footer_longer_than_most(tmp_path: Path) -> None:
    first, second = tmp_path / "first.parquet", tmp_path / "second.parquet"
    pq.write_table(table(10), first)
    pq.write_table(table(1000), second, row_group_size=2)
    assert second.stat().st_size - footer_begin(second.read_bytes()) > 64 << 10
    assert_same_beside(first, second)


def test_lists_of_other_declared_lengths(tmp_path: Path) -> None:
    files = []
    for length in (2, 3, None):
        files.append(tmp_path / f"{length}.parquet")
        kind = pa.list_(pa.float32(), length or -1)
        column = pa.array([[0.5] * (length or 4)] * 5, kind)
        pq.write_table(pa.table({"x": column}), files[-1])
    assert len({pq.ParquetFile(file).schema for file in files}) == 1
    footers = read(*files)
    lengths = [footers.schemas[number][0].list_length for number in footers.file_schema]
    assert lengths == [2, 3, None]
    for other in files[1:]:
        assert_same_beside(files[0], other)


@pytest.mark.long
def test_a_spoilt_byte_of_a_footer(tmp_path: Path) -> None:
    """It is told beside another file as it is alone, or else when the values are read."""
    first, spoilt = tmp_path / "first.parquet", tmp_path / "spoilt.parquet"
    pq.write_table(table(30), first, row_group_size=20)
    content = first.read_bytes()
    num_refused_later = 0
    for place in range(footer_begin(content), len(content)):
        for flip in (1, 0x10, 0x80):
            damaged = bytearray(content)
            damaged[place] ^= flip
            spoilt.write_bytes(damaged)
            if error_of(spoilt) is None:
                assert_same_beside(first, spoilt)
            elif error_of(first, spoilt) is not None:
                assert error_of(first, spoilt) == error_of(spoilt), (place, flip)
            else:
                num_refused_later += 1
                with pytest.raises(CorruptFileError, match=r"spoilt\.parquet"):
                    list(ParquetDataset([str(first), str(spoilt)], batch_size=10))
    assert num_refused_later < 20
