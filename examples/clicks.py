"""A click log and a model for it, which the examples share.

python examples/clicks.py DIRECTORY      writes the click log
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor, nn
from torch.nn import functional

from torchparquet import ParquetDataset

NUM_ROWS = 20_000
NUM_WORDS = 1_000
DENSE = [f"f{number}" for number in range(4)]
SPARSE = [f"c{number}" for number in range(3)]


def write_clicks(directory: Path) -> None:
    """Write files and row groups of different sizes: 20,000 rows in all."""
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((NUM_ROWS, len(DENSE)), dtype=np.float32)
    sparse = rng.integers(0, NUM_WORDS, (NUM_ROWS, len(SPARSE)))
    clicked = (dense.sum(1) + (sparse[:, 0] % 2) > rng.standard_normal(NUM_ROWS)).astype(np.int8)
    columns = {"clicked": clicked}
    columns |= {name: dense[:, place] for place, name in enumerate(DENSE)}
    columns |= {name: sparse[:, place] for place, name in enumerate(SPARSE)}
    table = pa.table(columns)
    directory.mkdir(parents=True, exist_ok=True)
    borders = [0, 3_100, 8_000, 12_345, NUM_ROWS]
    for number, begin in enumerate(borders[:-1]):
        part = table.slice(begin, borders[number + 1] - begin)
        pq.write_table(part, directory / f"{number}.parquet", row_group_size=700 + 130 * number)


def open_clicks(directory: str, **options: Any) -> ParquetDataset:
    """Return the click log as batches of `label` [B], `dense` [B, 4], `sparse` [B, 3]."""
    return ParquetDataset(
        directory,
        columns={"label": "clicked", "dense": DENSE, "sparse": SPARSE},
        shuffle=True,
        row_ids=True,
        **options,
    )


class ClickModel(nn.Module):
    """Embeddings of the sparse columns beside the dense ones, and two layers over both."""

    def __init__(self) -> None:
        """Draw the weights, from torch's default generator."""
        super().__init__()
        self.embedding = nn.Embedding(NUM_WORDS, 8)
        self.hidden = nn.Linear(8 * len(SPARSE) + len(DENSE), 32)
        self.out = nn.Linear(32, 1)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        """Return a logit for each row, `[B]`."""
        features = torch.cat([self.embedding(sparse).flatten(1), dense], 1)
        # As a sum, because FSDP2 wants what its modules return to be no view.
        return self.out(self.hidden(features).relu()).sum(1)


def loss_of(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Return the mean loss over the rows of a batch."""
    logits = model(batch["dense"], batch["sparse"])
    return functional.binary_cross_entropy_with_logits(logits, batch["label"].float())


def main() -> None:
    """Write the click log."""
    parser = argparse.ArgumentParser(description="write a click log for the examples")
    parser.add_argument("directory", type=Path)
    write_clicks(parser.parse_args().directory)


if __name__ == "__main__":
    main()
