"""Files whose rows tests select."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@dataclass
class Stored:
    """A directory of files, and all their rows in order."""

    path: Path
    table: pa.Table


def some_table(rng: np.random.Generator, num_rows: int) -> pa.Table:
    """Return columns of every form that readers have, most of them with nulls."""

    def holes(part: float) -> Any:
        return rng.random(num_rows) < part

    texts = [f"text {number}" for number in rng.integers(0, 400, num_rows)]
    lists = [
        None if number % 11 == 0 else list(range(number % 5))
        for number in rng.integers(0, 100, num_rows)
    ]
    return pa.table(
        {
            "number": pa.array(rng.integers(-(2**40), 2**40, num_rows)),
            "small": pa.array(rng.integers(0, 50, num_rows).astype(np.int32), mask=holes(0.1)),
            "float": pa.array(rng.normal(size=num_rows), mask=holes(0.4)),
            "flag": pa.array(holes(0.5), mask=holes(0.02)),
            "text": pa.array(texts, mask=holes(0.2)),
            "plain": [f"{number:x}" for number in rng.integers(0, 2**60, num_rows)],
            "list": lists,
            "fixed": pa.array(rng.integers(0, 9, (num_rows, 3)).tolist(), pa.list_(pa.int16(), 3)),
            "cell": pa.array(
                [bytes([number % 256]) * 7 for number in range(num_rows)], pa.binary(7)
            ),
        }
    )


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """Three files: small pages with offset indexes, one page, no compression."""
    path = tmp_path_factory.mktemp("stored")
    rng = np.random.default_rng(5)
    tables = [some_table(rng, num_rows) for num_rows in (5000, 3000, 2001)]
    options = (
        {
            "row_group_size": 1500,
            "data_page_size": 700,
            "compression": "snappy",
            "write_page_index": True,
        },
        {"row_group_size": 3000, "data_page_size": 2**20, "compression": "zstd"},
        {
            "row_group_size": 700,
            "data_page_size": 1000,
            "compression": "none",
            "data_page_version": "2.0",
            "use_dictionary": False,
        },
    )
    for number, (table, how) in enumerate(zip(tables, options, strict=True)):
        pq.write_table(table, path / f"{number}.parquet", **how)
    return Stored(path, pa.concat_tables(tables))
