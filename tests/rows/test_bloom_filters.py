"""Row groups without a wanted value are not read where a Bloom filter tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.rows.reading import rows_where, spoil
from torchparquet import CorruptFileError

NUM_ROWS, GROUP_ROWS = 4000, 1000

pytestmark = pytest.mark.skipif(
    not hasattr(pq.ColumnChunkMetaData, "bloom_filter_offset"),
    reason="this release of pyarrow does not tell of Bloom filters",
)


def values(number: int) -> int:
    # Even, and spread so that statistics rule out nothing.
    return number * 7919 % 8192 * 2


@pytest.fixture(scope="module")
def table() -> pa.Table:
    numbers = [values(row) for row in range(NUM_ROWS)]
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "small": pa.array(numbers, pa.int32()),
            "unsigned": pa.array([number + 2**31 for number in numbers], pa.uint32()),
            "text": pa.array([f"t{number}" for number in numbers]),
            "word": pa.array([f"t{number}" for number in numbers]).dictionary_encode(),
            "maybe": pa.array([None if number % 3 else number for number in numbers]),
        }
    )


@pytest.fixture
def path(tmp_path: Path, table: pa.Table) -> Path:
    """A file of which nothing but the wanted row groups can be read."""
    path = tmp_path / "a.parquet"
    pq.write_table(
        table,
        path,
        row_group_size=GROUP_ROWS,
        bloom_filter_options={
            name: {"ndv": GROUP_ROWS, "fpp": 1e-6} for name in table.column_names
        },
    )
    return path


ROW = 2345
WANTED = values(ROW)
CONDITIONS: list[Any] = [
    f"n = {WANTED}",
    f"{WANTED} = n",
    f"n in ({WANTED}, 3, -5, null)",
    f"n = {WANTED} and small > 0",
    f"(n = {WANTED} or n = 5) and (text = 't3' or text = 't{WANTED}')",
    f"small = {WANTED}",
    f"text = 't{WANTED}'",
    [("n", "=", WANTED)],
    [("text", "in", [f"t{WANTED}", "t1"])],
    [[("n", "==", 1)], [("small", "==", WANTED), ("n", ">", -1)]],
    [("unsigned", "=", WANTED + 2**31)],
    [("word", "=", f"t{WANTED}")],
]


@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
def test_only_row_groups_that_may_match_are_read(path: Path, condition: Any) -> None:
    spoil(path, {ROW // GROUP_ROWS})
    assert rows_where(path, condition, "n") == [ROW]


@pytest.mark.parametrize(
    "condition",
    [f"n <> {WANTED}", f"n = {WANTED} or small > 5", f"not (n = {WANTED})", "n = small"],
)
def test_other_conditions_read_all(path: Path, condition: str) -> None:
    spoil(path, {ROW // GROUP_ROWS})
    with pytest.raises(CorruptFileError):
        rows_where(path, condition, "n")


def test_values_that_can_be_read_once(path: Path) -> None:
    for wanted in ([WANTED], (WANTED,), {WANTED}, iter([WANTED]), map(int, [WANTED])):
        condition = [[("n", "in", wanted)], [("n", "in", [values(3)])]]
        assert rows_where(path, condition, "n") == [3, ROW]


def test_a_filter_that_is_none_rules_out_nothing(path: Path) -> None:
    content = bytearray(path.read_bytes())
    metadata = pq.read_metadata(path)
    for number in range(metadata.num_row_groups):
        offset = metadata.row_group(number).column(0).bloom_filter_offset
        content[offset : offset + 4] = b"\xff" * 4
    path.write_bytes(content)
    assert rows_where(path, f"n = {WANTED}", "n") == [ROW]
