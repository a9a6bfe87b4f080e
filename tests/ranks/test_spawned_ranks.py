"""A launcher spawns ranks with its data set; their workers read the shares of these ranks."""

from __future__ import annotations

import os
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch.distributed as dist
from torch.utils.data import DataLoader

from torchparquet import ParquetDataset, Ranks


def read_as_rank(dataset: ParquetDataset, rank: int, method: str, found: Any) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    loader = DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context=method)
    found.put([row for batch in loader for row in batch["row.id"].tolist()])


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_workers_of_a_spawned_rank_read_its_share(tmp_path: Path, method: str) -> None:
    pq.write_table(pa.table({"x": np.arange(100)}), tmp_path / "0.parquet", row_group_size=10)
    dataset = ParquetDataset(tmp_path, batch_size=10, row_ids=True, ranks=Ranks(check=False))
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        context = get_context("forkserver")
        found = context.Queue()
        child = context.Process(target=read_as_rank, args=(dataset, 1, method, found))
        child.start()
        rows = found.get(timeout=120)
        child.join()
    finally:
        dist.destroy_process_group()
    whole = ParquetDataset(tmp_path, batch_size=10, row_ids=True, rank=1, world_size=2)
    assert rows == [row for batch in whole for row in batch["row.id"].tolist()]
    assert len(rows) == 50


def read_alone(dataset: ParquetDataset, found: Any) -> None:
    found.put([batch["row.id"].tolist() for batch in dataset])


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_a_process_begins_with_the_epoch_that_its_parent_looks_at(
    tmp_path: Path, method: str
) -> None:
    """Only a worker's epoch comes after that of an iterator which its loader's process holds."""
    pq.write_table(pa.table({"x": np.arange(100)}), tmp_path / "0.parquet", row_group_size=10)
    options: Any = {"batch_size": 10, "row_ids": True, "shuffle": True, "rank": 0, "world_size": 1}
    dataset = ParquetDataset(tmp_path, **options)
    held = iter(dataset)
    next(held)
    context = get_context(method)
    found = context.Queue()
    child = context.Process(target=read_alone, args=(dataset, found))  # type: ignore[attr-defined]
    child.start()
    batches = found.get(timeout=120)
    child.join()
    assert batches == [batch["row.id"].tolist() for batch in ParquetDataset(tmp_path, **options)]
    # The child counts its epochs by itself.
    held.close()
    assert dataset.epoch == 0
