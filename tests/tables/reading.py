"""Reads data sets whole, to compare with what a table's own library reads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from torchparquet import ParquetDataset

Rows = list[dict[str, Any]]


def rows_of(source: Any, columns: Any = None, **options: Any) -> Rows:
    """Return all rows of one epoch; nulls are None."""
    dataset = ParquetDataset(
        source, batch_size=7, columns=columns, nulls="mask", rank=0, world_size=1, **options
    )
    found: Rows = []
    for batch in dataset:
        names = [name for name in batch if not name.endswith(".valid")]
        for row in range(len(batch[names[0]])):
            found.append({name: _value(batch, name, row) for name in names})
    assert len(found) == dataset.manifest.num_rows
    return found


def _value(batch: dict[str, Any], name: str, row: int) -> Any:
    valid = batch.get(f"{name}.valid")
    return batch[name][row].item() if valid is None or valid[row] else None


def sorted_rows(rows: Rows) -> Rows:
    """Return rows in an order that does not depend on files."""
    return sorted(rows, key=lambda row: [(value is None, value) for value in row.values()])


def table_rows(table: pa.Table, columns: list[str]) -> Rows:
    """Return the rows of a table of Arrow, as `rows_of` has them."""
    found: Rows = table.select(columns).to_pylist()
    for row in found:
        for name, value in row.items():
            if isinstance(value, float) and math.isnan(value):
                row[name] = np.nan
    return found
