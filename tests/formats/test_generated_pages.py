"""Pages that no writer at hand makes: BIT_PACKED levels, rows over several pages, lying levels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.fixtures.generated_pages import (
    BIT_PACKED,
    RLE,
    Entry,
    Levels,
    decoded,
    list_entries,
    list_rows,
    page,
    write_pages,
)
from tests.oracles.arrow_leaves import LeafRows, assert_batches_are
from torchparquet import CorruptFileError, ParquetDataset

FLAT = pa.field("x", pa.int32())
LIST = pa.field("x", pa.list_(pa.int32()))
FLAT_LEVELS, LIST_LEVELS = Levels(0, 1), Levels(1, 3)


def cut(entries: Any, size: Any) -> Any:
    return [entries[i : i + size] for i in range(0, len(entries), size)]


def list_file(path: Path, rows: Any, page_entries: Any, encoding: Any = RLE) -> Any:
    """Pages of so many entries each, wherever rows end."""
    entries = list_entries(rows)
    made = [page(part, LIST_LEVELS, encoding) for part in cut(entries, page_entries)]
    return write_pages(path, LIST, len(rows), made, len(entries))


def random_lists(num_rows: int, longest: Any, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    rows = []
    for length in rng.integers(-2, longest + 1, num_rows).tolist():
        values = rng.integers(-(2**31), 2**31, max(length, 0)).tolist()
        values = [None if rng.random() < 0.2 else value for value in values]
        rows.append(None if length == -2 else values)
    return rows


def leaf_of(rows: Any, num_lists: int = 1) -> Any:
    return LeafRows("x", num_lists, np.int32(0), rows)


def read(path: Any, columns: Any = None, **options: Any) -> ParquetDataset:
    options = {"batch_size": 10, "nulls": "mask", "rank": 0, "world_size": 1, **options}
    return ParquetDataset(path, columns=columns, **options)


@pytest.mark.parametrize("page_entries", [1, 7, 8, 9, 64, 5000])
@pytest.mark.parametrize("batch_size", [1, 37, None])
def test_bit_packed_definition_levels_of_a_flat_column(
    tmp_path: Path, page_entries: int, batch_size: int | None
) -> None:
    count = 200 if page_entries == 1 else 901
    defined = np.random.default_rng(1).integers(0, 2, count).tolist()
    entries = [Entry(0, level, number if level else None) for number, level in enumerate(defined)]
    made = [page(part, FLAT_LEVELS, BIT_PACKED) for part in cut(entries, page_entries)]
    path = write_pages(tmp_path / "a.parquet", FLAT, count, made, count)
    rows = [entry.value for entry in decoded(path, FLAT_LEVELS)]
    assert rows == [entry.value for entry in entries]
    assert_batches_are(read(path, batch_size=batch_size), {"x": leaf_of(rows, num_lists=0)})


@pytest.mark.parametrize("page_entries", [1, 5, 8, 13, 5000])
@pytest.mark.parametrize("batch_size", [1, 37, None])
def test_bit_packed_levels_of_a_list(
    tmp_path: Path, page_entries: int, batch_size: int | None
) -> None:
    """Repetition levels of one bit and definition levels of two."""
    rows = random_lists(50 if page_entries == 1 else 400, 9)
    path = list_file(tmp_path / "a.parquet", rows, page_entries, BIT_PACKED)
    slowly = list_rows(decoded(path, LIST_LEVELS))
    assert slowly == rows
    assert_batches_are(read(path, batch_size=batch_size), {"x": leaf_of(slowly)})


def test_pages_of_either_encoding_in_one_column_chunk(tmp_path: Path) -> None:
    rows = random_lists(200, 9)
    entries = list_entries(rows)
    made = [
        page(part, LIST_LEVELS, BIT_PACKED if number % 2 else RLE)
        for number, part in enumerate(cut(entries, 33))
    ]
    path = write_pages(tmp_path / "a.parquet", LIST, len(rows), made, len(entries))
    assert_batches_are(read(path), {"x": leaf_of(rows)})


@pytest.mark.parametrize("encoding", [RLE, BIT_PACKED])
@pytest.mark.parametrize("page_entries", [1, 2, 7, 100, 1000])
def test_rows_over_several_pages(tmp_path: Path, page_entries: int, encoding: Any) -> None:
    """Short rows and long ones; batches, ranks and slices begin in the middle of pages."""
    rows = [*random_lists(40, 5, seed=2), list(range(600)), [], *random_lists(10, 30, seed=3)]
    path = list_file(tmp_path / "a.parquet", rows, page_entries, encoding)
    for batch_size in (1, 7, None):
        for max_memory in ("4KiB", "1GiB") if batch_size else ("1GiB",):
            dataset = read(path, batch_size=batch_size, max_memory=max_memory, num_threads=2)
            assert_batches_are(dataset, {"x": leaf_of(rows)})
    for rank in range(3):
        batches = list(read(path, row_ids=True, rank=rank, world_size=3))
        seen = [i for batch in batches for i in batch["row.id"].tolist()]
        assert_batches_are(batches, {"x": leaf_of([rows[i] for i in seen])})


@pytest.mark.parametrize("missing_bytes", [1, 4, 8])
@pytest.mark.parametrize("encoding", [RLE, BIT_PACKED])
def test_fewer_values_than_levels_say(tmp_path: Path, encoding: Any, missing_bytes: int) -> None:
    entries = [Entry(0, 3, 7), Entry(1, 3, 8), Entry(0, 3, 9)]
    made = page(entries, LIST_LEVELS, encoding, missing_bytes=missing_bytes)
    path = write_pages(tmp_path / "a.parquet", LIST, 2, [made], 3)
    with pytest.raises(CorruptFileError, match="fewer values") as caught:
        list(read(path))
    assert path in str(caught.value)


def test_pages_without_an_entry(tmp_path: Path) -> None:
    """Before, between and after the others."""
    rows = random_lists(30, 5)
    entries = list_entries(rows)
    empty = page([], LIST_LEVELS)
    made = [empty, page(entries[:9], LIST_LEVELS), empty, empty, page(entries[9:], LIST_LEVELS)]
    path = write_pages(tmp_path / "a.parquet", LIST, 30, [*made, empty], len(entries))
    assert_batches_are(read(path), {"x": leaf_of(rows)})
