"""Run by torchrun on 8 ranks: meshes of data, tensor and context parallelism."""

from __future__ import annotations

import hashlib
import sys
from datetime import timedelta
from itertools import product
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tests.fixtures.datasets import opener
from tests.fixtures.gathering import gathered
from torchparquet import ParquetDataset, RankMismatchError, Ranks, verify_no_shard_overlap

DATA = sys.argv[1]


def digest_of(batch: Any) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(batch.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


open_dataset = opener(DATA, batch_size=32, shuffle=True, seed=3, row_ids=True)


def check(dataset: ParquetDataset, share_of: list[int]) -> None:
    """Rank r delivers share `share_of[r]`: equal for peers, disjoint and complete for others."""
    batches = list(dataset)
    own = share_of[dist.get_rank()]
    assert dataset.topology().rank == own
    assert dataset.topology().world_size == len(set(share_of))
    found = gathered(([digest_of(batch) for batch in batches], len(batches)))
    ids = gathered([row for batch in batches for row in batch["row.id"].tolist()])
    by_share = {share: ids[share_of.index(share)] for share in set(share_of)}
    for (rank, share), other in product(enumerate(share_of), range(8)):
        assert (found[rank] == found[other]) == (share == share_of[other])
    rows = [row for part in by_share.values() for row in part]
    num_rows = dataset.manifest.num_rows
    assert set(rows) == set(range(num_rows))
    # Ranks that are one row short repeat one.
    assert len(rows) - num_rows == -num_rows % len(by_share)
    # The share is the plan's, so ranks are in the order that is said.
    share = dataset.plan(0).share(own)  # type: ignore[assignment]
    assert len(by_share[own]) == share.total_rows  # type: ignore[attr-defined]
    plain = ParquetDataset(
        DATA,
        batch_size=32,
        shuffle=True,
        seed=3,
        row_ids=True,
        rank=own,
        world_size=len(by_share),
    )
    assert [digest_of(batch) for batch in plain] == found[dist.get_rank()][0]
    audit = verify_no_shard_overlap(dataset)
    assert (audit.world_size, audit.rows_delivered) == (len(by_share), num_rows)
    dataset.set_epoch(0)
    verify_no_shard_overlap(dataset, read=True)


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "tp", "cp"))
    check(open_dataset(ranks=mesh), [0, 0, 0, 0, 1, 1, 1, 1])
    check(open_dataset(ranks=Ranks(mesh, dims="cp")), [0, 1, 0, 1, 0, 1, 0, 1])
    check(open_dataset(ranks=mesh["dp"]), [0, 0, 0, 0, 1, 1, 1, 1])

    group = mesh.get_group("dp")
    check(open_dataset(ranks=group), [0, 0, 0, 0, 1, 1, 1, 1])

    hsdp = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp_replicate", "dp_shard", "tp"))
    check(open_dataset(ranks=hsdp), [0, 0, 1, 1, 2, 2, 3, 3])
    # Not the mesh's order but that of the names decides.
    names = ["dp_shard", "dp_replicate"]
    check(open_dataset(ranks=Ranks(hsdp, dims=names)), [0, 0, 2, 2, 1, 1, 3, 3])
    other = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp_shard", "tp", "dp_replicate"))
    check(open_dataset(ranks=other), [0, 2, 0, 2, 1, 3, 1, 3])
    check(open_dataset(ranks=Ranks(other, dims=("dp_shard",))), [0] * 4 + [1] * 4)

    # Only a model-parallel peer differs.
    dataset = open_dataset(ranks=mesh, drop_last=rank == 3)
    iterator = iter(dataset)
    try:
        next(iterator), next(iterator)
    except RankMismatchError as error:
        text = str(error)
    else:
        text = "none"
    expected = "drop_last is False on ranks 0-2, 4-7, True on rank 3"
    assert all(expected in told for told in gathered(text)), text
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
