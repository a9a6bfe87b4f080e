"""Data sets in stores, and the same on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.parquet_files import KINDS, random_array
from tests.servers.fixtures import open_store, origin, servers_are_required

__all__ = ["open_store", "origin"]

NUM_FILES, ROW_GROUP_ROWS = 5, 190


def table(number: int, num_rows: int, kinds: Iterable[str] = tuple(KINDS)) -> pa.Table:
    """Return rows of these kinds, and of others; `id` is different in all files."""
    rng = np.random.default_rng(number)
    words = [None if n % 7 == 0 else "é" * (n % 5) for n in range(num_rows)]
    lengths = rng.integers(0, 6, num_rows)
    columns = {"id": pa.array(np.arange(num_rows) + 10_000 * number)}
    columns |= {kind: random_array(kind, num_rows, rng) for kind in kinds}
    columns["word"] = pa.array(words)
    columns["items"] = pa.array([list(range(n)) for n in lengths], pa.list_(pa.int32()))
    columns["vector"] = pa.array([[float(n), 1.0] for n in lengths], pa.list_(pa.float32(), 2))
    return pa.table(columns)


def write_small_pages(rows: pa.Table, path: Path, **options: Any) -> None:
    """Write a file of many pages, whose places its index tells."""
    layout: dict[str, Any] = {"compression": "none", "use_dictionary": False}
    layout |= {"write_batch_size": 1000, "data_page_size": 1, "write_page_index": True}
    pq.write_table(rows, path, **layout, **options)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `train`, flat, and `keyed`, in folders that are keys."""
    root = tmp_path_factory.mktemp("remote")
    for folder in ("train", "keyed"):
        for number in range(NUM_FILES):
            key = f"country={'de' if number % 2 else 'fr'}" if folder == "keyed" else ""
            path = root / folder / key / f"part-{number}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = table(number, 300 + 170 * number)
            pq.write_table(rows, path, row_group_size=ROW_GROUP_ROWS)
    return root


@pytest.fixture(autouse=True)
def reads_urls() -> None:
    """Skip all where the packages that stores take are not installed."""
    if not servers_are_required():
        pytest.importorskip("aiohttp")
