"""Trains on features that statistics of the training data scale, and serves with the same file.

    torchparquet stats sales --split '["train", {"train": 0.8, "val": 0.2}]' -o statistics.json
    torchrun --standalone --nproc-per-node 2 examples/tabular_features.py sales statistics.json

A row is a sale: its price, which spreads over five orders of magnitude and is sometimes missing,
the age of the buyer, the city, an identifier, and whether it was returned. The sales and the
statistics are made first if there are none. At the end, rank 0 transforms a sale by hand, as a
server does, and compares it with what the data set reads.
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
from torchparquet import Column, ParquetDataset, Split
from torchparquet.features import Hash, apply
from torchparquet.statistics import Statistics

NUM_ROWS, NUM_CITIES, NUM_BUCKETS = 20_000, 30, 1_000
PARTS = {"train": 0.8, "val": 0.2}


def write_sales(directory: Path) -> None:
    """Write 20,000 rows."""
    rng = np.random.default_rng(0)
    price = rng.lognormal(4, 2, NUM_ROWS)
    age, city = rng.integers(18, 90, NUM_ROWS), rng.zipf(1.5, NUM_ROWS) % NUM_CITIES
    item = rng.integers(10**12, 10**12 + 300, NUM_ROWS)
    worth = rng.standard_normal(300)[item - 10**12] + rng.standard_normal(NUM_CITIES)[city]
    score = worth + 0.8 * np.log(price / 55) + 2 * (abs(age - 50) < 10) - 0.5
    table = pa.table(
        {
            "price": pa.array(price, mask=rng.random(NUM_ROWS) < 0.05),
            "age": age,
            "city": [f"city {number}" for number in city],
            "item": item,
            "returned": score > 0,
        }
    )
    directory.mkdir(parents=True)
    pq.write_table(table, directory / "sales.parquet", row_group_size=1_000)


def columns_of(statistics: Statistics) -> dict[str, Any]:
    """Return the tensors that the model takes, by the statistics of the training data."""
    price, age = statistics["price"], statistics["age"]
    return {
        # A missing price becomes the mean.
        "price": Column("price", transform=[price.clip(), price.scale()], nulls=0),
        "age": Column("age", transform=age.bucketize(8)),
        "city": Column("city", vocab=statistics["city"].vocabulary(20)),  # others are -1
        "item": Column("item", transform=Hash(NUM_BUCKETS)),
        "returned": Column("returned", dtype="float32"),
    }


class SaleModel(nn.Module):
    """Embeddings of age, city and item beside the price, and two layers over them."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.age, self.city = nn.Embedding(8, 8), nn.Embedding(21, 8)
        self.item = nn.Embedding(NUM_BUCKETS, 8)
        self.layers = nn.Sequential(nn.Linear(25, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Return a logit for each row, `[B]`."""
        parts = [batch["price"][:, None], self.age(batch["age"])]
        parts += [self.city(batch["city"] + 1), self.item(batch["item"])]
        return self.layers(torch.cat(parts, 1)).squeeze(1)


def train(directory: str, statistics: Statistics, num_epochs: int) -> None:
    """Train the epochs, and say what each rank read."""
    torch.manual_seed(0)
    model: nn.Module = SaleModel()
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    dataset = ParquetDataset(
        directory,
        batch_size=256,
        columns=columns_of(statistics),
        split=Split("train", PARTS),
        shuffle=True,
    )
    rank = int(os.environ.get("RANK", "0"))
    for epoch in range(num_epochs):
        dataset.set_epoch(epoch)
        num_rows, losses = 0, []
        for batch in dataset:
            loss = functional.binary_cross_entropy_with_logits(model(batch), batch["returned"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            num_rows += len(batch["returned"])
            losses.append(loss.item())
        print(
            f"epoch {epoch}, rank {rank}: {num_rows} rows, loss {np.mean(losses):.4f}", flush=True
        )


def serve(directory: str, statistics: Statistics) -> None:
    """Transform the first sale with a price by hand, and compare it with the data set's row."""
    columns = columns_of(statistics)
    sales = enumerate(pq.read_table(directory).to_pylist())
    number, sale = next(one for one in sales if one[1]["price"] is not None)
    row = ParquetDataset(
        directory, batch_size=1, columns=columns, rows=[number], rank=0, world_size=1
    )
    batch = next(iter(row))
    for name in ("price", "age", "item"):
        if not torch.equal(apply(columns[name].transform, [sale[name]]), batch[name]):
            raise SystemExit(f"{name} is not served as it is trained with")
    print(f"serves item {sale['item']} as {batch['item'].item()}")


def main() -> None:
    """Train on the sales of a directory, and transform one by hand."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory")
    parser.add_argument("statistics")
    parser.add_argument("--epochs", type=int, default=4)
    given = parser.parse_args()
    if os.environ.get("LOCAL_RANK", "0") == "0":
        if not Path(given.directory).exists():
            write_sales(Path(given.directory))
        if not Path(given.statistics).exists():
            part = ParquetDataset(given.directory, batch_size=256, split=Split("train", PARTS))
            Statistics.of(part).save(given.statistics)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        dist.barrier()  # until the statistics are written
    statistics = Statistics.load(given.statistics)
    with ending_process_group():
        train(given.directory, statistics, given.epochs)
        if os.environ.get("RANK", "0") == "0":
            serve(given.directory, statistics)


if __name__ == "__main__":
    main()
