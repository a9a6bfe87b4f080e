"""Pages without a selected row are passed over where an offset index tells where they are."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures import thrift_bytes
from tests.fixtures.generated_pages import Levels, list_entries, page, write_pages
from tests.oracles.arrow_leaves import assert_batches_are, table_leaves
from tests.rows.conftest import some_table
from tests.rows.reading import check_values, ids_of, open_rows
from torchparquet import Column, CorruptFileError, ParquetDataset

NUM_ROWS = 4000
PAGE_ROWS = 100
ANY_LIST = Column("list", length="any")
LISTS = {"list": ANY_LIST, "fixed": Column("fixed", length="any")}
ANY: dict[str, Any] = {"number": "number", "text": "text", **LISTS}
# Runs that begin and end at pages, within pages, and within one page.
WANTED = ((0, 3), (250, 310), (700, 800), (1990, 2005), (3100, 3101), (3850, 3990))
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {"compression": "none", "use_dictionary": False},
    "dictionary": {"compression": "snappy"},
    "second version": {"compression": "zstd", "data_page_version": "2.0"},
}


def wanted_mask() -> Any:
    mask = np.zeros(NUM_ROWS, bool)
    for begin, end in WANTED:
        mask[begin:end] = True
    return mask


def write(path: Path, table: pa.Table, **options: Any) -> None:
    pq.write_table(
        table,
        path,
        row_group_size=NUM_ROWS // 2,
        # A page ends with the batch that fills it.
        write_batch_size=PAGE_ROWS,
        data_page_size=1,
        write_page_index=True,
        **options,
    )


@pytest.fixture
def table() -> pa.Table:
    return some_table(np.random.default_rng(2), NUM_ROWS)


def unread_pages(content: bytes, table: pa.Table, mask: Any) -> list[tuple[int, int]]:
    """Return the bytes of pages without a wanted row, by the offset indexes."""
    unread = []
    for number, group in enumerate(thrift_bytes.footer(content)[thrift_bytes.FILE_ROW_GROUPS]):
        first_row = number * NUM_ROWS // 2
        for column in group[thrift_bytes.GROUP_COLUMNS]:
            pages = thrift_bytes.offset_index(content, column)
            rows = [place[3].value for place in pages] + [NUM_ROWS // 2]
            for place, (begin, end) in zip(pages, itertools.pairwise(rows), strict=True):
                if not mask[first_row + begin : first_row + end].any():
                    offset = place[1].value
                    unread.append((offset, offset + place[2].value))
    return unread


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("num_threads", [1, 3])
def test_pages_without_a_selected_row_are_not_looked_at(
    tmp_path: Path, table: pa.Table, layout: str, num_threads: int
) -> None:
    path, mask = tmp_path / "a.parquet", wanted_mask()
    write(path, table, **LAYOUTS[layout])
    content = bytearray(path.read_bytes())
    unread = unread_pages(bytes(content), table, mask)
    assert sum(end - begin for begin, end in unread) > len(content) // 5
    for begin, end in unread:
        content[begin:end] = b"\xff" * (end - begin)
    path.write_bytes(content)
    batches = list(open_rows(path, rows=mask, num_threads=num_threads))
    np.testing.assert_array_equal(ids_of(batches), np.flatnonzero(mask))
    check_values(batches, table)
    with pytest.raises(CorruptFileError):
        list(open_rows(path))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_index_that_tells_of_other_rows(tmp_path: Path, table: pa.Table, layout: str) -> None:
    """Whole row groups are read without it; where pages are passed over, it is an error."""
    path = tmp_path / "a.parquet"
    for name in ("number", "text", "list", "fixed"):
        write(path, table.select([name]), **LAYOUTS[layout])
        content = bytearray(path.read_bytes())
        column = thrift_bytes.footer(bytes(content))[thrift_bytes.FILE_ROW_GROUPS][0][
            thrift_bytes.GROUP_COLUMNS
        ][0]
        row = thrift_bytes.offset_index(bytes(content), column)[7][3]
        border = row.value
        thrift_bytes.overwrite(content, row, row.value - 1)
        path.write_bytes(content)
        runs = ((-10, 110), (5, 900), (5, 6), (-2, -1))
        for batch_size in (97, None):
            options: dict[str, Any] = {
                "batch_size": batch_size,
                "num_threads": 1 if name in LISTS else 3,
            }
            assert_batches_are(
                ParquetDataset(path, nulls="mask", columns={name: ANY[name]}, **options),
                {name: table_leaves(table.select([name]))[0]},
            )
        for begin, end in runs:
            mask = np.zeros(NUM_ROWS, bool)
            mask[border + begin : border + end] = True
            with pytest.raises(CorruptFileError, match=f"offset index.*column '{name}"):
                list(open_rows(path, columns={name: name}, nulls="mask", rows=mask))


@pytest.mark.parametrize("damage", ["offset", "size", "first row", "cut"])
def test_an_index_that_is_none_is_left_aside(tmp_path: Path, table: pa.Table, damage: str) -> None:
    path = tmp_path / "a.parquet"
    write(path, table, compression="none")
    content = bytearray(path.read_bytes())
    for group in thrift_bytes.footer(bytes(content))[thrift_bytes.FILE_ROW_GROUPS]:
        for column in group[thrift_bytes.GROUP_COLUMNS]:
            pages = thrift_bytes.offset_index(bytes(content), column)
            if damage == "cut":
                begin = pages[3][1].begin
                content[begin : begin + 2] = b"\xff\xff"
                continue
            number = pages[4][{"offset": 1, "size": 2, "first row": 3}[damage]]
            changed = pages[2][3].value if damage == "first row" else number.value + 1
            thrift_bytes.overwrite(content, number, changed)
    path.write_bytes(content)
    mask = wanted_mask()
    batches = list(open_rows(path, rows=mask))
    np.testing.assert_array_equal(ids_of(batches), np.flatnonzero(mask))
    check_values(batches, table)


def rows_begun(parts: Any) -> list[int]:
    """Rows before each page, as parquet-rs before 41 counts them: those that have begun."""
    begun = [sum(entry.repetition == 0 for entry in part) for part in parts]
    return list(itertools.accumulate(begun[:-1], initial=0))


def rows_of_first_entries(parts: Any) -> list[int]:
    """The row of each page's first entry, as hyparquet-writer names it."""
    begun = rows_begun(parts)
    return [row - (part[0].repetition > 0) for row, part in zip(begun, parts, strict=True)]


@pytest.mark.parametrize("names", [rows_begun, rows_of_first_entries])
@pytest.mark.parametrize("page_entries", [4, 16, 64])
def test_rows_over_several_pages(tmp_path: Path, names: Any, page_entries: int) -> None:
    """Whatever part of them is read, no row lacks an element."""
    rng = np.random.default_rng(page_entries)
    rows = [rng.integers(-9, 9, n).tolist() for n in rng.integers(1, 5, 150).tolist()]
    entries = list_entries(rows)
    parts = [entries[i : i + page_entries] for i in range(0, len(entries), page_entries)]
    first_rows = names(parts)
    assert len(set(first_rows)) == len(parts) > 2
    assert any(part[0].repetition > 0 for part in parts)
    made = [page(part, Levels(1, 3)) for part in parts]
    field = pa.field("list", pa.list_(pa.int32()))
    path = write_pages(tmp_path / "a.parquet", field, len(rows), made, len(entries), first_rows)
    assert pq.read_table(path)["list"].to_pylist() == rows

    def check(**options: Any) -> None:
        given: dict[str, Any] = {"batch_size": 10, "nulls": -1, "row_ids": True, "rank": 0}
        for batch in ParquetDataset(path, **given | {"world_size": 1} | options):
            ids = batch["row.id"].tolist()
            assert batch["list"].to_list() == [rows[i] for i in ids], options

    for batch_size in (1, 7, None):
        check(batch_size=batch_size)
        check(batch_size=batch_size or 10, max_memory="4KiB", num_threads=2)
    for row in range(len(rows)):
        check(rows=[row])
    for _ in range(20):
        check(rows=rng.random(len(rows)) < rng.choice([0.02, 0.1, 0.5, 0.9]))
    for rank, steps in itertools.product(range(4), (1, None)):
        check(rank=rank, world_size=4, limit_steps=steps)
        check(rank=rank, world_size=4, shuffle=True, shuffle_window="20 rows")


def test_a_page_that_begins_within_a_row_is_read_as_its_levels_say(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pairs = pa.array([[2 * row, 2 * row + 1] for row in range(64)], pa.list_(pa.int32()))
    pq.write_table(
        pa.table({"list": pairs}),
        path,
        use_dictionary=False,
        compression="none",
        write_batch_size=32,
        data_page_size=1,
        write_page_index=True,
    )
    content = bytearray(path.read_bytes())
    # The page has as many rows as before.
    levels = content.index(0b10101010, thrift_bytes.pages(path)[1].begin)
    content[levels] = 0b10101001
    path.write_bytes(content)
    expected = pq.read_table(path)["list"].to_pylist()
    assert [len(row) for row in expected[14:18]] == [2, 3, 1, 2]
    for batch_size, rows in itertools.product((16, 64), (None, [15], [16], [17, 63])):
        dataset = ParquetDataset(path, batch_size=batch_size, columns={"list": ANY_LIST}, rows=rows)
        found = [row for batch in dataset for row in batch["list"].to_list()]
        assert found == (expected if rows is None else [expected[row] for row in rows])


def test_more_lists_than_the_row_group_has(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"list": [[row, row] for row in range(100)]})
    pq.write_table(table, path, compression="none", use_dictionary=False)
    content = path.read_bytes()
    footer = thrift_bytes.footer(content)
    group = footer[thrift_bytes.FILE_ROW_GROUPS][0]
    counts = footer[thrift_bytes.FILE_NUM_ROWS], group[thrift_bytes.GROUP_NUM_ROWS]
    path.write_bytes(thrift_bytes.all_replaced(content, dict.fromkeys(counts, 90)))
    for rows in ([89], [3, 89], list(range(1, 90, 2))):
        dataset = ParquetDataset(path, batch_size=8, columns={"list": ANY_LIST}, rows=rows)
        with pytest.raises(CorruptFileError, match="more rows than its row group"):
            list(dataset)
