"""Row groups of which no page can have a wanted row are not read where page indexes tell."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.rows.reading import rows_where, spoil
from torchparquet import CorruptFileError
from torchparquet._impl.native import find_indexes

NUM_ROWS, GROUP_ROWS, PAGE_ROWS = 400, 100, 10
EPOCH = dt.datetime(1970, 1, 1)
# From a number to a value; the order of values is that of the numbers.
KINDS: dict[pa.DataType, Callable[[int], Any]] = {
    pa.int32(): lambda number: number - 2**31,
    pa.int64(): lambda number: number - 2000,
    pa.int8(): lambda number: number // 20 - 100,
    pa.uint32(): lambda number: number + 2**31 - 2000,
    pa.uint64(): lambda number: number + 2**63 - 2000,
    pa.float32(): lambda number: number - 2000.5,
    pa.float64(): lambda number: number / 7 - 100,
    pa.date32(): lambda number: EPOCH.date() + dt.timedelta(days=number - 2000),
    pa.timestamp("ms"): lambda number: EPOCH + dt.timedelta(hours=number - 2000),
    pa.timestamp("us"): lambda number: EPOCH + dt.timedelta(hours=number - 2000),
    pa.timestamp("ns"): lambda number: EPOCH + dt.timedelta(hours=number - 2000),
    pa.string(): lambda number: f"ä{number:05}",
    pa.large_string(): lambda number: "long " * 30 + f"{number:05}",
    pa.binary(): lambda number: b"\xff" + number.to_bytes(2, "big"),
}


def number_of(row: int) -> int:
    """Return numbers that grow, with a gap of half a page's span between two pages."""
    page, place = divmod(row, PAGE_ROWS)
    return page * 100 + place * 5


def write(path: Path, table: pa.Table, **options: Any) -> Path:
    given: dict[str, Any] = {
        "row_group_size": GROUP_ROWS,
        "write_batch_size": PAGE_ROWS,
        "data_page_size": 1,
        "write_page_index": True,
        "use_dictionary": False,
    } | options
    pq.write_table(table, path, **given)
    return path


def numbered(columns: dict[str, Any]) -> pa.Table:
    return pa.table(columns | {"row": pa.array(range(NUM_ROWS), pa.int32())})


@pytest.mark.mostly_long(every=4)
@pytest.mark.parametrize("use_dictionary", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_value_between_two_pages(tmp_path: Path, kind: pa.DataType, use_dictionary: bool) -> None:
    of = KINDS[kind]
    numbers = [number_of(row) for row in range(NUM_ROWS)]
    table = numbered({"x": pa.array([of(number) for number in numbers], kind)})
    path = write(tmp_path / "a.parquet", table, use_dictionary=use_dictionary)
    x = pc.field("x")
    for row in (0, 9, 10, 155, 199, 399):
        value = pa.scalar(of(numbers[row]), kind)
        expected = [at for at in range(NUM_ROWS) if table["x"][at] == value]
        assert rows_where(path, x == value, "row") == expected
    spoil(path, keep=set())
    between = pa.scalar(of(number_of(159) + 28), kind)
    with pytest.raises(ValueError, match="no row of 400 is left"):
        rows_where(path, x == between, "row")
    with pytest.raises(CorruptFileError):
        rows_where(path, x != between, "row")


def test_two_columns_that_agree_in_no_page(tmp_path: Path) -> None:
    """Pages of the one begin and end within pages of the other."""
    numbers = np.arange(NUM_ROWS)
    texts = [f"{NUM_ROWS - number:03}" + "-" * 40 for number in numbers.tolist()]
    columns = {"x": pa.array(numbers), "text": texts, "few": [f"{n // 100}" for n in range(400)]}
    path = write(tmp_path / "a.parquet", numbered(columns), data_page_size=200, write_batch_size=3)
    assert rows_where(path, "x >= 250 and text >= '150'", "row") == [250]
    assert rows_where(path, "few = '2' and x < 203", "row") == [200, 201, 202]
    spoil(path, keep={2})
    assert rows_where(path, "x >= 250 and text >= '150'", "row") == [250]
    spoil(path, keep=set())
    for sql in ("x >= 290 and text >= '190'", "few = '2' and x < 190", "x < 20 and few is null"):
        with pytest.raises(ValueError, match="no row of 400 is left"):
            rows_where(path, sql, "row")


def test_pages_of_nulls(tmp_path: Path) -> None:
    values = [None if 100 <= row < 150 else row for row in range(NUM_ROWS)]
    others = [row if 100 <= row < 150 else None for row in range(NUM_ROWS)]
    path = write(tmp_path / "a.parquet", numbered({"x": values, "y": others}))
    assert rows_where(path, "x is null", "row") == list(range(100, 150))
    assert rows_where(path, "x is null and y = 120", "row") == [120]
    spoil(path, keep={1})
    assert rows_where(path, "x is null and y = 120", "row") == [120]
    assert rows_where(path, "y >= 0 and y < 103", "row") == [100, 101, 102]
    with pytest.raises(ValueError, match="no row of 400 is left"):
        rows_where(path, "x > 120 and x < 140 and y is not null and row > 300", "row")


@pytest.mark.parametrize("damage", ["zeros", "ones", "other", "end"])
def test_an_index_that_is_none_rules_out_nothing(tmp_path: Path, damage: str) -> None:
    path = write(tmp_path / "a.parquet", numbered({"x": list(map(number_of, range(NUM_ROWS)))}))
    metadata, content = pq.read_metadata(path), bytearray(path.read_bytes())
    end = len(content) - 8 - metadata.serialized_size
    last = metadata.row_group(metadata.num_row_groups - 1).column(metadata.num_columns - 1)
    begin = last.data_page_offset + last.total_compressed_size
    if damage == "other":
        content[begin:end] = content[begin + 1 : end] + b"\0"
    elif damage == "end":
        content[begin + 30 : end] = bytes(end - begin - 30)
    else:
        content[begin:end] = (b"\0" if damage == "zeros" else b"\xff") * (end - begin)
    path.write_bytes(content)
    for row in range(0, NUM_ROWS, 37):
        assert rows_where(path, f"x = {number_of(row)}", "row") == [row]


@pytest.mark.parametrize("offset", [10**9, 2**62, -5])
@pytest.mark.parametrize("in_memory", [False, True])
def test_an_index_that_is_not_there(tmp_path: Path, offset: int, in_memory: bool) -> None:
    table = numbered({"x": list(map(number_of, range(NUM_ROWS)))})
    path = write(tmp_path / "a.parquet", table)
    content = path.read_bytes()
    metadata = pq.read_metadata(path)
    footer = content[-8 - metadata.serialized_size : -8]
    places = find_indexes(footer)
    for place in places[:, 0].tolist():
        assert footer.count(zigzag(place)) >= 1
        footer = footer.replace(zigzag(place), zigzag(offset))
    assert (find_indexes(footer)[:, 0] == offset).any()
    changed = content[: -8 - metadata.serialized_size] + footer
    changed += len(footer).to_bytes(4, "little") + b"PAR1"
    path.write_bytes(changed)
    source = changed if in_memory else path
    assert rows_where(source, f"x = {number_of(155)}", "row") == [155]


def zigzag(number: int) -> bytes:
    """Return a field of 64 bits after the field before it, in Thrift's compact protocol."""
    left = (number << 1) ^ (number >> 63)
    content = bytearray([0x16])
    while left > 0x7F:
        content.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*content, left])


def test_sources_in_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", numbered({"x": list(map(number_of, range(NUM_ROWS)))}))
    assert rows_where(path.read_bytes(), f"x = {number_of(33)}", "row") == [33]
    spoil(path, keep={0})
    assert rows_where(path.read_bytes(), f"x = {number_of(33)}", "row") == [33]
    with pytest.raises(ValueError, match="no row of 400 is left"):
        rows_where(path.read_bytes(), f"x = {number_of(159) + 28}", "row")
