"""Run by torchrun on 4 ranks: data-parallel dimensions and groups that are part of the world."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader

from tests.fixtures.datasets import opener
from tests.fixtures.gathering import gathered, outcome
from torchparquet import ParquetDataset, verify_no_shard_overlap

DATA = sys.argv[1]


def check_groups(
    dataset: ParquetDataset, peers: list[list[int]], loader: DataLoader[Any] | None = None
) -> None:
    """Ranks of `peers[i]` all deliver share i; the shares are disjoint and complete."""
    streams = gathered(
        [batch["row.id"].tolist() for batch in (dataset if loader is None else loader)]
    )
    for group in peers:
        assert all(streams[rank] == streams[group[0]] for rank in group)
    rows = [row for group in peers for ids in streams[group[0]] for row in ids]
    num_rows = dataset.manifest.num_rows
    assert set(rows) == set(range(num_rows))
    assert len(rows) - num_rows < len(peers)
    audit = verify_no_shard_overlap(dataset)
    assert audit.world_size == len(peers)
    assert audit.rows_delivered == num_rows
    verify_no_shard_overlap(dataset, read=True)


open_dataset = opener(DATA, batch_size=32, shuffle=True, row_ids=True)


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    rows, columns = [[0, 1], [2, 3]], [[0, 2], [1, 3]]
    assert mesh.mesh.equal(torch.tensor(rows))

    dataset = open_dataset(ranks=mesh)
    assert dataset.topology().rank == mesh.get_local_rank("dp")
    check_groups(dataset, rows)
    # A spawned worker knows nothing of its parent's process groups.
    for method in ("fork", "spawn"):
        dataset = open_dataset(ranks=mesh)
        options: dict[str, Any] = {"multiprocessing_context": method, "timeout": 60}
        loader = DataLoader(dataset, batch_size=None, num_workers=1, **options)
        check_groups(dataset, rows, loader)

    check_groups(open_dataset(ranks=mesh["tp"]), columns)
    names_other = init_device_mesh("cpu", (2, 2), mesh_dim_names=("tp", "dp"))
    check_groups(open_dataset(ranks=names_other), columns)

    groups = [dist.new_group(ranks) for ranks in columns]
    dataset = open_dataset(ranks=groups[rank % 2])
    assert dataset.topology().rank == rank // 2
    check_groups(dataset, rows)
    outside = open_dataset(ranks=groups[1 - rank % 2])
    assert "the group of ranks=" in outcome(lambda: next(iter(outside)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
