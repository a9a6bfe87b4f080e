"""Pages of many megabytes: every value, little memory, and no page that is read over and over."""

from __future__ import annotations

import inspect
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.thrift_bytes import pages
from tests.oracles.arrow_leaves import assert_table_reads_as
from torchparquet import Pack, ParquetDataset

MIB = 2**20
# Lengths at which values end before, at and after the end of a piece of 256 KiB.
PIECE = 2**18
LENGTHS = (0, 1, 3, 100, PIECE - 5, PIECE - 4, PIECE - 3, PIECE, PIECE + 1, 3 * PIECE + 7)


def binary(seed: int, num_rows: int, lengths: tuple[int, ...] = LENGTHS) -> pa.Array:
    draw = random.Random(seed)
    drawn = [draw.choice((*lengths, None)) for _ in range(num_rows)]
    return pa.array([n if n is None else draw.randbytes(n) for n in drawn], pa.binary())


def lists(values: pa.Array, most: int) -> pa.Array:
    lengths = np.random.default_rng(most).integers(0, most, 2 * len(values) // most)
    offsets = np.minimum(np.cumsum([0, *lengths]), len(values))
    is_null = np.append(lengths % 10 == 9, False)  # a null list has no values
    offsets[1:][is_null[:-1]] = offsets[:-1][is_null[:-1]]
    return pa.ListArray.from_arrays(
        pa.array(np.maximum.accumulate(offsets), pa.int32(), mask=is_null), values
    )


def numbers(count: int) -> pa.Array:
    drawn = np.random.default_rng(count)
    return pa.array(drawn.random(count, "float32"), mask=drawn.random(count) < 0.1)


COLUMNS = {
    "binary": binary(1, 60),
    "short binary": binary(2, 300_000, tuple(range(40))),
    "lists of binary": lists(binary(3, 60), 4),
    "lists": lists(numbers(1_300_000), 400),
    "numbers": numbers(1_300_000),
    "cells": binary(4, 20_000, (512,)).cast(pa.binary(512)),
}


def write(path: Path, column: pa.Array, **options: Any) -> None:
    options = {"compression": "none", "use_dictionary": False} | options
    sizes = {"data_page_size": 2**30, "write_batch_size": 2**27, "row_group_size": 2**22}
    options = sizes | options
    if "max_rows_per_page" in inspect.signature(pq.ParquetWriter).parameters:
        options["max_rows_per_page"] = 2**30  # releases without it have no such bound
    pq.write_table(pa.table({"c": column}), path, **options)
    assert max(page.end - page.begin for page in pages(path)) > 4 * MIB


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("kind", COLUMNS)
def test_all_values_are_read(tmp_path: Path, kind: str, version: str) -> None:
    path = tmp_path / "a.parquet"
    write(path, COLUMNS[kind], data_page_version=version)
    table = pq.read_table(path)
    for options in ({}, {"max_memory": "16MiB", "num_threads": 2}):
        assert_table_reads_as(table, path, batch_size=1 + len(table) // 13, **options)
    rows = np.flatnonzero(np.random.default_rng(7).random(len(table)) < 0.3)
    assert_table_reads_as(table.take(rows), path, batch_size=1 + len(rows) // 7, rows=rows)


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("image_bytes", [MIB // 2, MIB // 13])
def test_a_page_is_read_at_most_once_by_each_thread(
    tmp_path: Path, image_bytes: int, compression: str, num_threads: int
) -> None:
    path = tmp_path / "a.parquet"
    images = binary(5, 110, (image_bytes,))
    write(path, images, compression=compression)
    memory = 50 * image_bytes
    dataset = ParquetDataset(
        path, batch_size=1, max_memory=memory, num_threads=num_threads, nulls="empty"
    )
    read = [row for batch in dataset for row in batch["c"].to_bytes()]
    assert read == [row or b"" for row in images.to_pylist()]
    # A reader of values in the file reads on to the end of a piece, for another reader perhaps.
    most = 1 if compression == "none" and image_bytes > PIECE else num_threads
    assert dataset.metrics().bytes_read < (most + 0.1) * path.stat().st_size


@pytest.mark.parametrize(
    ("compression", "num_threads"),
    [
        ("none", 2),
        ("zstd", 1),
        *(pytest.param(*case, marks=pytest.mark.long) for case in (("none", 1), ("zstd", 2))),
    ],
)
def test_pages_that_are_needed_whole_are_read_once_too(
    tmp_path: Path, compression: str, num_threads: int
) -> None:
    """Bits, and documents that are packed from the first of the row group on."""
    path = tmp_path / "a.parquet"
    draw = np.random.default_rng(8)
    bits = draw.integers(0, 256, 10_000_000, "uint8")
    column = pa.Array.from_buffers(pa.bool_(), 8 * len(bits), [None, pa.py_buffer(bits)])
    write(path, column, compression=compression, row_group_size=2**27)
    dataset = ParquetDataset(
        path, batch_size=1_000_000, max_memory="16MiB", num_threads=num_threads
    )
    read = np.concatenate([batch["c"].numpy() for batch in dataset])
    assert np.array_equal(np.packbits(read, bitorder="little"), bits)
    assert dataset.metrics().bytes_read < (num_threads + 0.1) * path.stat().st_size

    documents = draw.integers(0, 2**40, 40 * 60_000)
    offsets = pa.array(range(0, len(documents) + 1, 60_000), pa.int32())
    write(path, pa.ListArray.from_arrays(offsets, documents), compression=compression)
    pack = Pack("c", length=60_000)
    dataset = ParquetDataset(
        path, batch_size=1, pack=pack, max_memory="24MiB", num_threads=num_threads
    )
    read = np.concatenate([batch["c"].numpy().ravel() for batch in dataset])
    assert np.array_equal(read, documents)
    assert dataset.metrics().bytes_read < (num_threads + 0.1) * path.stat().st_size


def test_single_rows_of_a_long_page_take_few_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    strings = [b"%08d" % i * 3 for i in range(300_000)]
    write(path, pa.array(strings))
    dataset = ParquetDataset(
        path, batch_size=4096, num_threads=1, rows=np.arange(0, len(strings), 2)
    )
    calls = num_reads()
    read = [row for batch in dataset for row in batch["c"].to_bytes()]
    assert num_reads() - calls < 400
    assert read == strings[::2]


def num_reads() -> int:
    """Of this process, by calls of the system."""
    status = Path("/proc/self/io").read_text()
    return int(status.split("syscr: ")[1].split()[0])


def test_long_values_of_rows_that_are_left_out_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, binary(6, 40, (MIB,)), write_statistics=False)
    expected = pq.read_table(path)["c"].to_pylist()
    rows = [3, 4, 31]
    dataset = ParquetDataset(path, batch_size=3, rows=rows, nulls="empty")
    (batch,) = dataset
    assert batch["c"].to_bytes() == [expected[row] or b"" for row in rows]
    assert dataset.metrics().bytes_read < 4 * MIB
