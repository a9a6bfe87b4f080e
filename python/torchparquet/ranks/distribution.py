"""A report of how the row groups of an epoch are dealt."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NotRequired, TypedDict

import numpy as np

from torchparquet.plan.share import Share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from torchparquet.files.manifest import Manifest
    from torchparquet.files.row_selection import PackedRows
    from torchparquet.plan.epoch_plan import EpochPlan
    from torchparquet.plan.topology import Topology


class ShardDistribution(TypedDict):
    """The result of `ParquetDataset.get_shard_distribution_info`; a shard is a row group.

    The lists `*_per_rank` have one entry per rank, `*_per_worker` one per DataLoader worker of
    this rank. `assigned_shards` are the row groups, by global number, from which this rank's worker
    (`worker_id` of `num_workers`) reads rows, in reading order. `rows`, `bytes` and `steps` are
    those of this worker. Where rows are packed sequences there are `tokens` too, without padding;
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
    shares = [plan.share(index) for index in range(plan.num_shares)]
    own = [shares[index] for index in plan.options.shares_of(topology.rank, topology.worker_id)]
    ranks = range(topology.world_size)
    workers = _shares_by_worker(shares, plan, topology.rank, topology.num_workers)
    by_rank = [
        list(chain(*_shares_by_worker(shares, plan, rank, topology.num_workers))) for rank in ranks
    ]
    found: ShardDistribution = {
        "epoch": plan.options.epoch,
        "total_shards": manifest.num_row_groups,
        "shards_per_rank": [_num_shards(rank) for rank in by_rank],
        "shards_per_worker": [_num_shards(worker) for worker in workers],
        "rows_per_rank": [_num_rows(rank) for rank in by_rank],
        "steps_per_rank": [plan.num_steps(rank) for rank in ranks],
        "rank": topology.rank,
        "world_size": topology.world_size,
        "worker_id": topology.worker_id,
        "num_workers": topology.num_workers,
        "assigned_shards": [shard for share in own for shard in shards_of(share)],
        "rows": _num_rows(own),
        "bytes": sum(bytes_of(manifest, share) for share in own),
        "steps": max(share.num_steps for share in own),
    }
    packed = manifest.packed
    if packed is not None:
        found["tokens_per_rank"] = [tokens_of(manifest, packed, rank) for rank in by_rank]
        found["tokens"] = tokens_of(manifest, packed, own)
    return found


def _shares_by_worker(
    shares: list[Share], plan: EpochPlan, rank: int, num_workers: int
) -> list[list[Share]]:
    return [
        [shares[index] for index in plan.options.shares_of(rank, worker)]
        for worker in range(num_workers)
    ]


def _num_rows(shares: list[Share]) -> int:
    return sum(share.total_rows for share in shares)


def _num_shards(shares: list[Share]) -> int:
    return sum(len(shards_of(share)) for share in shares)


def shards_of(share: Share) -> list[int]:
    """Return the row groups from which a share reads rows, each once, in reading order."""
    read: list[int] = share.row_group[(share.num_rows > 0) & share.valid].tolist()
    return list(dict.fromkeys(read))


def bytes_of(manifest: Manifest, share: Share) -> int:
    """Return the compressed bytes of the share's rows, prorated within a row group."""
    return _prorated(manifest, share, manifest.row_group_num_bytes)


def tokens_of(manifest: Manifest, packed: PackedRows, shares: Sequence[Share]) -> int:
    """Return the tokens of the shares' sequences, prorated within a row group."""
    return sum(_prorated(manifest, share, packed.num_tokens) for share in shares)


def _prorated(manifest: Manifest, share: Share, of_row_group: NDArray[np.int64]) -> int:
    rows = np.maximum(manifest.row_group_num_rows[share.row_group], 1)
    return int((share.num_rows / rows * of_row_group[share.row_group]).sum())
