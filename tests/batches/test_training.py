"""Training steps on batches of the device: what a GPU is asked, and any other machine can be.

Without CUDA the same loops run on the CPU, over gloo.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from torchparquet import ParquetDataset

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
NUM_ROWS, BATCH = 4096, 256


@pytest.fixture
def dataset(tmp_path: Path) -> ParquetDataset:
    """A line through points, exactly: y = 2 a - b."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-8, 8, (2, NUM_ROWS)).astype(np.float32)
    table = pa.table({"a": a, "b": b, "y": 2 * a - b})
    pq.write_table(table, tmp_path / "points.parquet", row_group_size=1000)
    return ParquetDataset(
        tmp_path,
        batch_size=BATCH,
        columns={"x": ["a", "b"], "y": "y"},
        shuffle=True,
        device="cuda" if CUDA else None,
    )


@pytest.fixture
def process_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    meeting = f"file://{tmp_path_factory.mktemp('ranks')}/meeting"
    dist.init_process_group("nccl" if CUDA else "gloo", meeting, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def train(model: nn.Module, step: Any, dataset: ParquetDataset) -> float:
    """Return the loss after twelve epochs."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
    loss = torch.tensor(torch.inf)
    for _ in range(12):
        for batch in dataset:
            assert batch["x"].device.type == DEVICE
            optimizer.zero_grad()
            loss = step(model, batch)
            loss.backward()
            optimizer.step()
    return loss.item()


def loss_of(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    loss: Tensor = (model(batch["x"]).squeeze(1) - batch["y"]).square().mean()
    return loss


def test_ddp_finds_the_line(dataset: ParquetDataset, process_group: None) -> None:
    torch.manual_seed(0)
    line = nn.Linear(2, 1).to(DEVICE)
    model = DistributedDataParallel(line)
    assert train(model, loss_of, dataset) < 1e-6
    torch.testing.assert_close(line.weight.detach().cpu(), torch.tensor([[2.0, -1.0]]))


def test_a_compiled_step_is_compiled_once(dataset: ParquetDataset) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = nn.Linear(2, 1).to(DEVICE)
    step = torch.compile(loss_of, backend="inductor" if CUDA else "aot_eager", fullgraph=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        assert train(model, step, dataset) < 1e-6
