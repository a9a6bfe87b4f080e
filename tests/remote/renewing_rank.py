"""Two ranks that read by tokens which end; all rows come."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from tests.servers.ended_tokens import issue
from torchparquet import ParquetDataset

NUM_EPOCHS = 30


def main() -> None:
    """Read an epoch after the other, and add up the rows of all ranks."""
    folder, endpoint, expected = sys.argv[1:]
    store = dist.FileStore(f"{folder}/store", 2)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=int(os.environ["RANK"]), world_size=2)
    dataset = ParquetDataset(
        "s3://bucket/train",
        batch_size=64,
        nulls="mask",
        num_epochs=NUM_EPOCHS,
        storage_options=partial(issue, Path(folder) / "ledger", endpoint, None),
    )
    num_rows = torch.tensor(sum(len(batch["id"]) for batch in dataset))
    dist.all_reduce(num_rows)
    assert num_rows.item() == NUM_EPOCHS * int(expected)
    dist.destroy_process_group()
