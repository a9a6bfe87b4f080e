"""Large row groups of few columns, whose parts several threads read at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

from torchparquet import Column, Jagged, ParquetDataset

# Several times 4 MiB of each column: parts below that are not shared.
ROW_GROUPS = (1_510_000, 605_000)
NUM_ROWS = sum(ROW_GROUPS)


def _columns() -> dict[str, pa.Array]:
    rng = np.random.default_rng(5)
    numbers = rng.integers(0, 2**40, NUM_ROWS)
    words = pa.array([f"word {number}" for number in range(5_000)])
    return {
        "number": pa.array(numbers // 1_000),
        "few": pa.array(numbers % 3_000),
        "gaps": pa.array(rng.random(NUM_ROWS), mask=rng.random(NUM_ROWS) < 0.3),
        "word": words.take(pa.array(numbers % 5_000)),
        "pair": pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(numbers, 2)), 2),
    }


COLUMNS = _columns()
# Rows of lists are found by reading all pages before them, so that lists are not shared.
SHARED = {"number": True, "few": True, "gaps": True, "word": True, "pair": False}


def _write(path: Path, name: str, compression: str) -> None:
    table = pa.table({"x": COLUMNS[name]})
    with pq.ParquetWriter(
        path,
        table.schema,
        compression=compression,
        use_dictionary=name in ("few", "word"),
        data_page_size=64 << 10,  # whatever the release's default
    ) as writer:
        begin = 0
        for num_rows in ROW_GROUPS:
            writer.write_table(table.slice(begin, num_rows), row_group_size=num_rows)
            begin += num_rows


def _content(values: list[Any]) -> tuple[bytes, ...]:
    """The values of a column in all batches, as bytes; of strings their lengths too."""
    if isinstance(values[0], Jagged):
        texts = torch.cat([one.values for one in values])
        return texts.numpy().tobytes(), torch.cat([one.lengths for one in values]).numpy().tobytes()
    return (torch.cat(values).numpy().tobytes(),)


def _expected(name: str, rows: np.ndarray[Any, Any]) -> tuple[bytes, ...]:
    column = COLUMNS[name].take(pa.array(rows))
    if name == "word":
        lengths = pc.binary_length(column).to_numpy().astype(np.int64)
        return "".join(column.to_pylist()).encode(), lengths.tobytes()
    if name == "pair":
        return (column.flatten().to_numpy().tobytes(),)
    if name == "gaps":
        column = column.fill_null(float("nan"))
    return (column.to_numpy().tobytes(),)


def _read(path: Path, name: str, **options: Any) -> tuple[tuple[bytes, ...], Any, ParquetDataset]:
    dataset = ParquetDataset(
        path,
        batch_size=10_000,
        row_ids=True,
        seed=3,
        columns={"x": Column("x", length=2) if name == "pair" else "x"},
        **options,
    )
    values, rows = [], []
    for batch in dataset:
        values.append(batch["x"])
        rows.append(batch["row.id"])
    return _content(values), torch.cat(rows).numpy(), dataset


@pytest.mark.mostly_long(every=3)
@pytest.mark.parametrize(
    ("name", "compression"),
    [*((name, "snappy") for name in COLUMNS), ("number", "none"), ("word", "none")],
)
def test_threads_together_read_what_one_reads(tmp_path: Path, name: str, compression: str) -> None:
    path = tmp_path / "large.parquet"
    _write(path, name, compression)
    found, rows, _ = _read(path, name, num_threads=4)
    assert np.array_equal(rows, np.arange(NUM_ROWS))
    assert found == _expected(name, rows)
    orders, costs = [], []
    for num_threads in (1, 4):
        found, rows, dataset = _read(
            path, name, num_threads=num_threads, shuffle=True, shuffle_window=2
        )
        assert np.array_equal(np.sort(rows), np.arange(NUM_ROWS))
        assert found == _expected(name, rows)
        orders.append(rows)
        costs.append(dataset.metrics().columns["x"].bytes_decompressed)
    assert np.array_equal(*orders)
    if compression == "snappy":
        # A part decompresses the page that it begins in, and none of those before.
        assert (costs[1] > costs[0]) == SHARED[name]
        assert costs[1] < 1.25 * costs[0]


def test_the_first_failure_is_the_same_for_any_number_of_threads(tmp_path: Path) -> None:
    """Two columns have a null where none may be, in one batch: the first column is named."""
    null_at = {"a": NUM_ROWS - 10, "b": 5}
    table = pa.table(
        {
            name: pa.array(np.arange(NUM_ROWS), mask=np.arange(NUM_ROWS) == row)
            for name, row in null_at.items()
        }
    )
    path = tmp_path / "nulls.parquet"
    pq.write_table(table, path, row_group_size=NUM_ROWS)
    for num_threads in (1, 4):
        dataset = ParquetDataset(path, batch_size=None, num_threads=num_threads)
        with pytest.raises(ValueError, match="column 'a'"):
            next(iter(dataset))
