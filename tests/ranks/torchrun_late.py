"""Run by torchrun: a rank that starts when the others have ended what they do before an epoch."""

from __future__ import annotations

import sys
from datetime import timedelta

import torch.distributed as dist

from tests.fixtures.gathering import gathered
from torchparquet import ParquetDataset, RankMismatchError

dist.init_process_group("gloo")
own, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
patience = store.timeout  # type: ignore[attr-defined]


def end_of_wait(dataset: ParquetDataset) -> str:
    try:
        for _ in dataset:
            pass
    except RankMismatchError as error:
        return str(error)
    return "all was read"


for late in range(dist.get_world_size()):
    if own == late:
        dist.barrier()
    dataset = ParquetDataset(
        sys.argv[1], batch_size=10, filters=f"id % 7 > {late}", unique="id", row_ids=True
    )
    if own != late:
        dist.barrier()
    alone = ParquetDataset(
        sys.argv[1], batch_size=1, filters=f"id % 7 > {late}", row_ids=True, rank=0, world_size=1
    )

    # The others give up, for a rank that comes an hour later, which learns of it without a wait.
    if own == late:
        dist.barrier()
        said = end_of_wait(dataset)
    else:
        store.set_timeout(timedelta(seconds=1))
        said = end_of_wait(dataset)
        store.set_timeout(patience)
        dist.barrier()
    assert f"waited for rank {late}" in said, said
    assert "give init_process_group a longer timeout than 1 seconds" in said, said

    # When all are there they read what they would have read.
    dataset.set_epoch(0)
    rows = [row for batch in dataset for row in batch["row.id"].tolist()]
    read = sorted({row for of_rank in gathered(rows) for row in of_rank})
    assert read == [int(batch["row.id"]) for batch in alone]
dist.destroy_process_group()
