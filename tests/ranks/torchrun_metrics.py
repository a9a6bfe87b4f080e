"""Run by torchrun: metrics of all ranks add up, and name the rank and the file it waited for."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import pyarrow.parquet as pq
import torch.distributed as dist
from fsspec.implementations.local import LocalFileSystem
from torch.distributed.device_mesh import init_device_mesh

from tests.fixtures.gathering import gathered, outcomes
from torchparquet import ParquetDataset, Ranks

DATA = sys.argv[1]


class Slow(LocalFileSystem):
    """Answers requests of the last rank once all others have read their epoch."""

    protocol = "slow"
    is_slow = False

    def cat_file(self, path: str, **options: Any) -> Any:
        if self.is_slow:
            store = dist.distributed_c10d._get_default_store()
            store.set("the slow rank waits", "")
            store.wait([f"done {rank}" for rank in range(dist.get_world_size() - 1)])
        return super().cat_file(path, **options)


def check_slow_rank(rank: int, world_size: int) -> None:
    slow = world_size - 1
    filesystem = Slow(skip_instance_cache=True)
    dataset = ParquetDataset(
        DATA, batch_size=32, filesystem=filesystem, ranks=Ranks(check=False), even="none"
    )
    store = dist.distributed_c10d._get_default_store()
    filesystem.is_slow = rank == slow
    if rank != slow:
        store.wait(["the slow rank waits"])
    rows = sum(len(batch["id"]) for batch in dataset)
    if rank != slow:
        store.set(f"done {rank}", "")
    own = dataset.metrics()
    assert own.rows == rows
    found = dataset.metrics(all_ranks=True)
    assert found.rows == sum(gathered(rows))
    assert sum(found.waits.counts) == found.batches == sum(gathered(own.batches))
    assert found.waits.max_seconds == max(gathered(own.waits.max_seconds))
    means = [sum(gathered(own.wait_seconds)) / world_size, found.wait_seconds]
    assert abs(means[0] - means[1]) < 1e-6
    assert 0 <= found.wait_fraction <= 1
    assert found.slowest is not None
    assert len(set(gathered(found.slowest))) == 1
    assert found.slowest.rank == slow
    assert f"batch 0 of epoch 0, rank {slow} of {world_size}" in found.slowest.origin
    assert DATA in found.slowest.origin
    assert f"rank {slow} on " in found.report()


def check_model_parallel_peers(world_size: int) -> None:
    """Ranks of one share read the same rows, which count once."""
    mesh = init_device_mesh("cpu", (1, world_size), mesh_dim_names=("dp", "tp"))
    dataset = ParquetDataset(DATA, batch_size=32, ranks=mesh)
    rows = sum(len(batch["id"]) for batch in dataset)
    assert dataset.metrics(all_ranks=True).rows == rows == pq.read_table(DATA).num_rows


def check_absent_rank(rank: int, world_size: int) -> None:
    store = dist.distributed_c10d._get_default_store()
    before = store.timeout  # type: ignore[attr-defined]
    dataset = ParquetDataset(DATA, batch_size=32)
    dataset.metrics(all_ranks=True)
    store.set_timeout(timedelta(seconds=1))
    last = world_size - 1
    called = outcomes(lambda: rank == last or dataset.metrics(all_ranks=True))
    store.set_timeout(before)
    words = (
        f"RankMismatchError: every rank must call it for the metrics of all ranks, and rank {last}"
    )
    assert all(one.startswith(words) for one in called[:last]), called


def main() -> None:
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    check_slow_rank(rank, world_size)
    check_model_parallel_peers(world_size)
    check_absent_rank(rank, world_size)
    dist.destroy_process_group()


main()
