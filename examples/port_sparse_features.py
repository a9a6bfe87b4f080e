"""Ports a loader of sparse features: lists of active indices, as offsets and values, to sums.

    python examples/port_sparse_features.py games
    torchrun --standalone --nproc-per-node 2 examples/port_sparse_features.py games

A row has the features that are active, from two points of view, and a score to be learned. The
games are written first if there are none.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from job import ending_process_group
from torchparquet import Column, Jagged, ParquetDataset

NUM_ROWS = 20_000
NUM_FEATURES = 768
MOST_ACTIVE = 32


def write_games(directory: Path) -> None:
    """Write 20,000 rows: `ours` and `theirs`, lists of active indices, and a `score`."""
    rng = np.random.default_rng(0)
    counts = rng.integers(2, MOST_ACTIVE + 1, NUM_ROWS)
    offsets = np.append(0, np.cumsum(counts)).astype(np.int32)
    worth = rng.standard_normal(NUM_FEATURES)
    table, score = {}, np.zeros(NUM_ROWS)
    for name, sign in (("ours", 1.0), ("theirs", -1.0)):
        active = rng.integers(0, NUM_FEATURES, offsets[-1], dtype=np.uint16)
        table[name] = pa.ListArray.from_arrays(offsets, active)
        score += sign * np.add.reduceat(worth[active], offsets[:-1])
    table["score"] = pa.array(np.tanh(score / 8).astype(np.float32))
    directory.mkdir(parents=True)
    games = pa.table(table)
    for number, begin in enumerate(range(0, NUM_ROWS, 6_000)):
        path = directory / f"games-{number}.parquet"
        pq.write_table(games.slice(begin, 6_000), path, row_group_size=2_500)


def open_games(directory: str, batch_size: int = 1024, **options: Any) -> ParquetDataset:
    """Return batches of `ours` and `theirs`, both Jagged of int64, and `score`, float32 `[B]`."""
    return ParquetDataset(
        directory,
        batch_size=batch_size,
        columns={
            # EmbeddingBag wants indices of its offsets' dtype; they are cast while they are read.
            "ours": Column("ours", dtype="int64"),
            "theirs": Column("theirs", dtype="int64"),
            "score": "score",
        },
        shuffle=True,
        **options,
    )


class Evaluation(nn.Module):
    """One table of weights for both points of view, and two layers over the sums."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.features = nn.EmbeddingBag(NUM_FEATURES, 32, mode="sum", include_last_offset=True)
        self.layers = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 1), nn.Tanh())

    def forward(self, ours: Jagged, theirs: Jagged) -> Tensor:
        """Return a score for each row, `[B]`."""
        sums = [self.features(side.values, side.offsets) for side in (ours, theirs)]
        return self.layers(torch.cat(sums, dim=1).clamp(0, 1)).squeeze(1)


def train(directory: str, num_epochs: int) -> None:
    """Train the epochs, and say what each rank read."""
    torch.manual_seed(0)
    model: nn.Module = Evaluation()
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    dataset = open_games(directory)
    rank = int(os.environ.get("RANK", "0"))
    for epoch in range(num_epochs):
        dataset.set_epoch(epoch)
        num_rows, num_active, losses = 0, 0, []
        for batch in dataset:
            predicted = model(batch["ours"], batch["theirs"])
            loss = nn.functional.mse_loss(predicted, batch["score"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            num_rows += len(predicted)
            num_active += len(batch["ours"].values) + len(batch["theirs"].values)
            losses.append(loss.item())
        print(
            f"epoch {epoch}, rank {rank}: {num_rows} rows, {num_active} active, "
            f"loss {np.mean(losses):.4f}",
            flush=True,
        )


def main() -> None:
    """Train on the games of a directory."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory")
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()
    if os.environ.get("LOCAL_RANK", "0") == "0" and not Path(arguments.directory).exists():
        write_games(Path(arguments.directory))
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        dist.barrier()  # until the games are written
    with ending_process_group():
        train(arguments.directory, arguments.epochs)


if __name__ == "__main__":
    main()
