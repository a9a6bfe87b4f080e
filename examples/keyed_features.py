"""Trains a model on the sparse features of a recommender, as one KeyedJagged a batch.

    python examples/keyed_features.py visits
    torchrun --standalone --nproc-per-node 2 examples/keyed_features.py visits

A row is a visit: the shops and brands that the user has seen, the country, the items with the
seconds spent on each, and whether the user bought something. Features of one group share a table of
embeddings, of which each has a part, so that one call of EmbeddingBag sums all of their lists.
TorchRec is not needed; `batch["seen"].to_kjt()` is its KeyedJaggedTensor. The visits are written
first if there are none.
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
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from job import ending_process_group
from torchparquet import Column, KeyedJagged, ParquetDataset

NUM_ROWS = 20_000
# The values of each feature: lists, but for the country.
SEEN = {"shops": 200, "brands": 400, "country": 20}
ITEMS = {"items": 2_000}
MOST_SEEN = 12


def write_visits(directory: Path) -> None:
    """Write 20,000 rows: lists, some null, a scalar that may be null, and `bought`."""
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {}
    score = np.zeros(NUM_ROWS)
    for name, size in (SEEN | ITEMS).items():
        counts = rng.integers(0, 2 if name == "country" else MOST_SEEN + 1, NUM_ROWS)
        rows = np.repeat(np.arange(NUM_ROWS), counts)
        values, seconds = rng.integers(0, size, len(rows)), rng.random(len(rows), np.float32)
        worth = rng.standard_normal(size)[values] * (seconds if name == "items" else 1)
        score += np.bincount(rows, worth, NUM_ROWS)
        is_null, ends = counts == 0, np.cumsum(counts)
        if name == "country":
            columns[name] = pa.array(np.append(values, 0)[ends - 1], mask=is_null)
            continue
        offsets, nulls = pa.array(np.append(0, ends).astype(np.int32)), pa.array(is_null)
        columns[name] = pa.ListArray.from_arrays(offsets, values, mask=nulls)
        if name == "items":
            columns["seconds"] = pa.ListArray.from_arrays(offsets, seconds, mask=nulls)
    columns["bought"] = score > 0
    table = pa.table(columns)
    directory.mkdir(parents=True)
    for number, begin in enumerate(range(0, NUM_ROWS, 7_000)):
        path = directory / f"visits-{number}.parquet"
        pq.write_table(table.slice(begin, 7_000), path, row_group_size=2_000)


def open_visits(directory: str, batch_size: int = 512, **options: Any) -> ParquetDataset:
    """Return batches of `seen` and `items`, both KeyedJagged of int64, and `bought`, bool `[B]`."""
    return ParquetDataset(
        directory,
        batch_size=batch_size,
        columns={
            "seen": list(SEEN),
            "items": Column(list(ITEMS), weights=["seconds"]),
            "bought": "bought",
        },
        shuffle=True,
        **options,
    )


class Sums(nn.Module):
    """The sums of the embeddings of each list of a group of features, from one table."""

    starts: Tensor

    def __init__(self, sizes: dict[str, int]) -> None:
        """Make a table of so many embeddings for each feature."""
        super().__init__()
        of_key = torch.tensor(list(sizes.values()))
        self.register_buffer("starts", of_key.cumsum(0) - of_key)  # of the parts of the table
        self.table = nn.EmbeddingBag(int(of_key.sum()), 16, mode="sum", include_last_offset=True)

    def forward(self, lists: KeyedJagged) -> Tensor:
        """Return the sums of a row side by side, `[B, F * 16]`."""
        per_key = torch.tensor(lists.length_per_key, device=self.starts.device)
        numbers = lists.values + self.starts.repeat_interleave(per_key)
        sums = self.table(numbers, lists.offsets, lists.weights)  # [F * B, 16]
        return sums.view(len(lists.keys), len(lists), -1).transpose(0, 1).flatten(1)


class VisitModel(nn.Module):
    """Sums of both groups of features, and two layers over them."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.seen, self.items = Sums(SEEN), Sums(ITEMS)
        width = 16 * (len(SEEN) + len(ITEMS))
        self.layers = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, seen: KeyedJagged, items: KeyedJagged) -> Tensor:
        """Return a logit for each row, `[B]`."""
        return self.layers(torch.cat([self.seen(seen), self.items(items)], 1)).squeeze(1)


def train(directory: str, num_epochs: int) -> None:
    """Train the epochs, and say what each rank read."""
    torch.manual_seed(0)
    model: nn.Module = VisitModel()
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    dataset = open_visits(directory)
    rank = int(os.environ.get("RANK", "0"))
    for epoch in range(num_epochs):
        dataset.set_epoch(epoch)
        num_rows, num_values, losses = 0, 0, []
        for batch in dataset:
            logits = model(batch["seen"], batch["items"])
            loss = functional.binary_cross_entropy_with_logits(logits, batch["bought"].float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            num_rows += len(logits)
            num_values += len(batch["seen"].values) + len(batch["items"].values)
            losses.append(loss.item())
        print(
            f"epoch {epoch}, rank {rank}: {num_rows} rows, {num_values} active, "
            f"loss {np.mean(losses):.4f}",
            flush=True,
        )


def main() -> None:
    """Train on the visits of a directory."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory")
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()
    if os.environ.get("LOCAL_RANK", "0") == "0" and not Path(arguments.directory).exists():
        write_visits(Path(arguments.directory))
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        dist.barrier()  # until the visits are written
    with ending_process_group():
        train(arguments.directory, arguments.epochs)


if __name__ == "__main__":
    main()
