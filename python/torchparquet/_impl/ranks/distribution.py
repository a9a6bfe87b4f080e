"""A report of how the row groups of an epoch are dealt."""

from __future__ import annotations

from typing import NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.plan.division import RowCounts
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import Topology
from torchparquet._impl.plan.share import Share


class ShardDistribution(TypedDict):
    """The result of `ParquetDataset.get_shard_distribution_info`; a shard is a row group.

    The lists `*_per_rank` have one entry per rank, `*_per_worker` one per DataLoader worker of
    this rank. `assigned_shards` are the row groups, by global number, from which this rank's worker
    (`worker_id` of `num_workers`) reads rows, in reading order. `rows`, `bytes` and `steps` are
    those of this worker. If rows are packed sequences there are `tokens` too, without padding;
    the sequences of one row group are taken to have equally many.
    """

    epoch: int
    total_shards: int
    shards_per_rank: list[int]
    shards_per_worker: list[int]
    rows_per_rank: list[int]
    steps_per_rank: list[int]
    rank: int
    world_size: int
    worker_id: int
    num_workers: int
    assigned_shards: list[int]
    rows: int
    bytes: int
    steps: int
    tokens_per_rank: NotRequired[list[int]]
    tokens: NotRequired[int]


def shard_distribution(
    manifest: Manifest, plan: EpochPlan, topology: Topology
) -> ShardDistribution:
    """Return how `plan` deals the row groups, and this process's part."""
    world_size, num_workers = topology.world_size, topology.num_workers
    indices = list(plan.options.shares_of(topology.rank, topology.worker_id))
    own = [plan.share(index) for index in indices]
    counts = plan.row_counts()
    shares = np.arange(plan.num_shares)
    shards = counts.row_groups_by(shares, plan.num_shares)
    workers = [plan.options.shares_of(topology.rank, worker) for worker in range(num_workers)]
    found: ShardDistribution = {
        "epoch": plan.options.epoch,
        "total_shards": manifest.num_row_groups,
        "shards_per_rank": per_rank(shards, world_size),
        "shards_per_worker": [int(shards[list(worker)].sum()) for worker in workers],
        "rows_per_rank": per_rank(plan.share_rows, world_size),
        "steps_per_rank": plan.steps_per_rank().tolist(),
        "rank": topology.rank,
        "world_size": world_size,
        "worker_id": topology.worker_id,
        "num_workers": num_workers,
        "assigned_shards": [shard for share in own for shard in shards_of(share)],
        "rows": int(plan.share_rows[indices].sum()),
        "bytes": int(prorated(manifest.row_group_num_bytes, manifest, plan, counts)[indices].sum()),
        "steps": max(share.num_steps for share in own),
    }
    packed = manifest.packed
    if packed is not None:
        tokens = prorated(packed.num_tokens, manifest, plan, counts)
        found["tokens_per_rank"] = per_rank(tokens, world_size)
        found["tokens"] = int(tokens[indices].sum())
    return found


def per_rank(of_shares: NDArray[np.int64], world_size: int) -> list[int]:
    """Return the sum over the shares of each rank, of a number for each share `[S]`."""
    sums: list[int] = of_shares.reshape(-1, world_size).sum(axis=0).tolist()
    return sums


def shards_of(share: Share) -> list[int]:
    """Return the row groups from which a share reads rows, each once, in reading order."""
    chunks = share.chunks
    read: list[int] = chunks.row_group[(chunks.num_rows > 0) & chunks.valid].tolist()
    return list(dict.fromkeys(read))


def prorated(
    of_row_group: NDArray[np.int64], manifest: Manifest, plan: EpochPlan, counts: RowCounts
) -> NDArray[np.int64]:
    """Return a quantity of row groups, such as their bytes, for the rows of each share, `[S]`."""
    of_row = of_row_group / np.maximum(manifest.row_group_num_rows, 1)
    return counts.sums(of_row, plan.num_shares)
