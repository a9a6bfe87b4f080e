"""Reads data sets whole, to compare with what a table's own library reads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from torchparquet import Jagged, ParquetDataset

Rows = list[dict[str, Any]]


def rows_of(source: Any, columns: Any = None, **options: Any) -> Rows:
    """Return all rows of one epoch; nulls are None."""
    dataset = ParquetDataset(
        source, batch_size=7, columns=columns, nulls="mask", rank=0, world_size=1, **options
    )
    found: Rows = []
    for batch in dataset:
        names = [name for name in batch if not name.endswith(".valid")]
        rows = zip(*(_values(batch, name) for name in names), strict=True)
        found += [dict(zip(names, row, strict=True)) for row in rows]
    assert len(found) == dataset.manifest.num_rows
    return found


def _values(batch: dict[str, Any], name: str) -> list[Any]:
    value = batch[name]
    if isinstance(value, Jagged):
        is_numbers = isinstance(value.values, Tensor) and value.values.dtype == torch.int64
        found = value.to_list() if is_numbers else value.to_str()
    else:
        found = value.tolist()
    valid = batch.get(f"{name}.valid")
    valid = [True] * len(found) if valid is None else valid.tolist()
    return [one if is_valid else None for one, is_valid in zip(found, valid, strict=True)]


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
