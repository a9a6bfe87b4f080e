"""torch.distributed.checkpoint takes data sets as they are, and the states of mixes as text."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.distributed.checkpoint as dcp

from tests.fixtures.datasets import ids_by_batch
from torchparquet import ParquetDataset, mix

NUM_ROWS = 1000


@pytest.fixture
def data(tmp_path: Path) -> str:
    table = pa.table({"id": np.arange(NUM_ROWS)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=70)
    return str(tmp_path / "a.parquet")


def open_one(data: str, rank: int = 0, world_size: int = 1) -> ParquetDataset:
    options: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 5}
    return ParquetDataset(data, rank=rank, world_size=world_size, **options)


def through_a_checkpoint(dataset: ParquetDataset, fresh: Any, path: Path) -> None:
    weights = torch.nn.Linear(3, 2)
    dcp.save({"model": weights, "data": dataset}, checkpoint_id=path, no_dist=True)  # type: ignore[attr-defined]
    dcp.load({"model": weights, "data": fresh}, checkpoint_id=path, no_dist=True)  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("epoch", [0, 3])
def test_the_rest_follows(data: Any, tmp_path: Path, epoch: int) -> None:
    dataset = open_one(data)
    dataset.set_epoch(epoch)
    whole = ids_by_batch(dataset)
    dataset.set_epoch(epoch)
    batches = iter(dataset)
    taken = ids_by_batch(itertools.islice(batches, 11))
    fresh = open_one(data)
    through_a_checkpoint(dataset, fresh, tmp_path / "checkpoint")
    assert fresh.epoch == epoch
    assert taken + ids_by_batch(fresh) == whole


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_mix_as_text(data: Any, tmp_path: Path) -> None:
    """The checkpoint takes states apart by key, and that of a mix has more keys once it began."""
    whole = ids_by_batch(mix([open_one(data), open_one(data)], weights=[2, 1]))
    mixed = mix([open_one(data), open_one(data)], weights=[2, 1])
    batches = iter(mixed)
    taken = ids_by_batch(itertools.islice(batches, 11))
    path = tmp_path / "checkpoint"
    dcp.save({"data": json.dumps(mixed.state_dict())}, checkpoint_id=path, no_dist=True)  # type: ignore[attr-defined]
    saved = {"data": ""}
    dcp.load(saved, checkpoint_id=path, no_dist=True)  # type: ignore[attr-defined]
    fresh = mix([open_one(data), open_one(data)], weights=[2, 1])
    fresh.load_state_dict(json.loads(saved["data"]))
    assert taken + ids_by_batch(fresh) == whole
