"""Large row groups of few columns, whose parts several threads read at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from torchparquet import Column, Jagged, ParquetDataset

# More than a megabyte of each column in each row group: parts below that are not shared.
ROW_GROUPS = (400_000, 150_000)
NUM_ROWS = sum(ROW_GROUPS)


def _columns() -> dict[str, pa.Array]:
    rng = np.random.default_rng(5)
    numbers = rng.integers(0, 2**40, NUM_ROWS)
    words = pa.array([f"word {number}" for number in range(5_000)])
    return {
        "number": pa.array(numbers),
        "few": pa.array(numbers % 3_000),
        "gaps": pa.array(rng.random(NUM_ROWS), mask=rng.random(NUM_ROWS) < 0.3),
        "word": words.take(pa.array(numbers % 5_000)),
        "pair": pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(numbers, 2)), 2),
    }


COLUMNS = _columns()


def _write(path: Path, name: str, compression: str) -> None:
    table = pa.table({"x": COLUMNS[name]})
    with pq.ParquetWriter(
        path, table.schema, compression=compression, use_dictionary=name in ("few", "word")
    ) as writer:
        begin = 0
        for num_rows in ROW_GROUPS:
            writer.write_table(table.slice(begin, num_rows), row_group_size=num_rows)
            begin += num_rows


def _as_lists(values: Any) -> list[Any]:
    """The values of a batch's column as Python objects."""
    if isinstance(values, Jagged):
        return values.to_str()
    return values.tolist()  # type: ignore[no-any-return]


def _read(path: Path, num_threads: int, **options: Any) -> tuple[list[Any], list[int]]:
    dataset = ParquetDataset(
        path, batch_size=10_000, row_ids=True, num_threads=num_threads, seed=3, **options
    )
    values: list[Any] = []
    rows: list[int] = []
    for batch in dataset:
        values += _as_lists(batch["x"])
        rows += batch["row.id"].tolist()
    return values, rows


@pytest.mark.parametrize("compression", ["none", "snappy"])
@pytest.mark.parametrize("name", COLUMNS)
def test_all_threads_together_read_what_one_reads(
    tmp_path: Path, name: str, compression: str
) -> None:
    path = tmp_path / "large.parquet"
    _write(path, name, compression)
    expected = pq.read_table(path).column("x").to_pylist()
    columns: dict[str, Any] = {"x": Column("x", length=2)} if name == "pair" else {"x": "x"}
    for num_threads in (1, 4):
        values, rows = _read(path, num_threads, columns=columns)
        assert rows == list(range(NUM_ROWS))
        _assert_same(values, expected)
    orders = []
    for num_threads in (1, 4):
        values, rows = _read(path, num_threads, columns=columns, shuffle=True, shuffle_window=2)
        assert sorted(rows) == list(range(NUM_ROWS))
        _assert_same(values, [expected[row] for row in rows])
        orders.append(rows)
    assert orders[0] == orders[1]


def _assert_same(values: list[Any], expected: list[Any]) -> None:
    if isinstance(values[0], float):
        found = torch.tensor(values, dtype=torch.float64)
        wanted = torch.tensor(
            [float("nan") if one is None else one for one in expected], dtype=torch.float64
        )
        assert torch.equal(found.nan_to_num(-1), wanted.nan_to_num(-1))
    else:
        assert values == expected
