"""torch.distributed.checkpoint takes data sets as they are, and the states of mixes as text."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

from tests.fixtures.datasets import ids_by_batch
from tests.fixtures.parquet_files import numbered_files
from torchparquet import ParquetDataset, mix

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
NUM_ROWS = 1000


@pytest.fixture
def data(tmp_path: Path) -> str:
    return numbered_files(tmp_path, [70] * (NUM_ROWS // 70) + [NUM_ROWS % 70], number="id")


def open_one(data: str) -> ParquetDataset:
    return ParquetDataset(data, batch_size=16, shuffle=True, seed=5, rank=0, world_size=1)


@pytest.mark.parametrize("epoch", [0, 3])
def test_the_rest_follows(data: Any, tmp_path: Path, epoch: int) -> None:
    dataset = open_one(data)
    dataset.set_epoch(epoch)
    whole = ids_by_batch(dataset)
    dataset.set_epoch(epoch)
    batches = iter(dataset)
    taken = ids_by_batch(itertools.islice(batches, 11))
    fresh, weights = open_one(data), torch.nn.Linear(3, 2)
    path = tmp_path / "checkpoint"
    dcp.save({"model": weights, "data": dataset}, checkpoint_id=path, no_dist=True)  # type: ignore[attr-defined]
    dcp.load({"model": weights, "data": fresh}, checkpoint_id=path, no_dist=True)  # type: ignore[attr-defined]
    assert fresh.epoch == epoch
    assert taken + ids_by_batch(fresh) == whole


def test_a_mix_as_text(data: Any, tmp_path: Path) -> None:
    """The checkpoint takes states apart by key, and that of a mix has more keys once it began."""
    whole, mixed, fresh = (mix([open_one(data), open_one(data)], weights=[2, 1]) for _ in range(3))
    batches = iter(mixed)
    taken = ids_by_batch(itertools.islice(batches, 11))
    path = tmp_path / "checkpoint"
    dcp.save({"data": json.dumps(mixed.state_dict())}, checkpoint_id=path, no_dist=True)  # type: ignore[attr-defined]
    saved = {"data": ""}
    dcp.load(saved, checkpoint_id=path, no_dist=True)  # type: ignore[attr-defined]
    fresh.load_state_dict(json.loads(saved["data"]))
    assert taken + ids_by_batch(fresh) == ids_by_batch(whole)
