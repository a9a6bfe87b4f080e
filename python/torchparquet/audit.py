"""Check that the ranks of a job read disjoint shares that are complete together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from torchparquet._impl.ranks.sharding import is_distributed
from torchparquet._impl.reading.stream_parts import ROW_ID, ROW_VALID
from torchparquet.dataset import ParquetDataset

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from torchparquet._impl.plan.epoch_plan import EpochPlan

Ranges = NDArray[np.int64]


@dataclass(frozen=True)
class ShardAudit:
    """The result of `verify_no_shard_overlap`, which raises if rows are not read as planned.

    Attributes:
        epoch: The epoch that was checked.
        num_rows: Rows of the data set.
        rows_delivered: Distinct rows that some rank delivers.
        rows_repeated: Rows delivered a second time, so that all ranks have equally many
            (`even="split"`).
        rows_left_out: Rows that no rank delivers, because of `drop_last` or `even="drop"`.
        world_size: Data-parallel ranks.
        num_workers: DataLoader workers per rank, at least 1.
    """

    epoch: int
    num_rows: int
    rows_delivered: int
    rows_repeated: int
    rows_left_out: int
    world_size: int
    num_workers: int


class _Reading(NamedTuple):
    """The ranges that one rank reads, as it sends them to the others."""

    fingerprint: str
    epoch: int
    ranges: Ranges
    failure: str | None


def verify_no_shard_overlap(
    loader: ParquetDataset | DataLoader[Any], *, read: bool = False
) -> ShardAudit:
    """Check over all ranks that no row is read twice or left out.

    This is a collective call: every rank of the data set's process group must make it, with the
    same arguments. Rows that `even=` and `drop_last` repeat or leave out by rule are counted.
    They are no error.

    Args:
        loader: A `ParquetDataset`, or a DataLoader over one.
        read: Check the rows that are really delivered: the call iterates the loader for one epoch
            and needs `row_ids=True`. Otherwise it checks the plan of the current epoch and reads
            nothing.

    Raises:
        RuntimeError: A row is read twice or left out against the rule, ranks see different data,
            or there is no process group.
        ValueError: `read` is given without `row_ids=True`, or with batches by length.
    """
    dataset = loader if isinstance(loader, ParquetDataset) else loader.dataset
    if not isinstance(dataset, ParquetDataset):
        raise TypeError(f"loader must be over a ParquetDataset, got {type(dataset).__name__}")
    num_workers = 0 if loader is dataset else loader.num_workers  # type: ignore[union-attr]
    epoch = dataset.epoch
    plan = dataset.plan(epoch, num_workers)
    packed = dataset.manifest.packed
    if read and packed is not None and packed.unit == "batch":
        raise ValueError("read=True does not go with batch_size=ByLength(...); compare the plan")
    failure = None
    ranges = np.empty((0, 2), np.int64)
    try:
        ranges = _delivered_ranges(loader) if read else _planned_ranges(dataset, plan)
    except Exception as error:  # The other ranks wait for the answer of this one.
        failure = error
    report = None if failure is None else f"{type(failure).__name__}: {failure}"
    gathered = _gather(dataset, _Reading(dataset.manifest.fingerprint, epoch, ranges, report))
    if failure is not None:
        raise failure
    _check_same_data(gathered)
    return _check(dataset, plan, epoch, [reading.ranges for reading in gathered])


def _planned_ranges(dataset: ParquetDataset, plan: EpochPlan) -> Ranges:
    """Return `[begin, end)` row ids, int64 `[n, 2]`, that the plan gives this rank's workers."""
    topology = dataset.topology()
    first_row = dataset.manifest.row_group_first_row
    parts = []
    for index in range(topology.rank, plan.num_shares, topology.world_size):
        share = plan.share(index)
        # Batches mark repeats only with even="pad".
        counted = share.valid if plan.options.even == "pad" else np.ones_like(share.valid)
        kept = counted & (share.num_rows > 0)
        begin = (first_row[share.row_group] + share.row_begin)[kept]
        parts.append(np.stack([begin, begin + share.num_rows[kept]], axis=1))
    return np.concatenate(parts)


def _delivered_ranges(loader: ParquetDataset | DataLoader[Any]) -> Ranges:
    """Return `[begin, end)` row ids, int64 `[n, 2]`, that one epoch of the loader delivers."""
    parts = [np.empty((0, 2), np.int64)]
    for batch in loader:
        if ROW_ID not in batch:
            raise ValueError("read=True needs a ParquetDataset with row_ids=True")
        ids = batch[ROW_ID].numpy()
        if ROW_VALID in batch:
            ids = ids[batch[ROW_VALID].numpy()]
        if len(ids) == 0:
            continue
        ids = np.sort(ids)
        breaks = np.flatnonzero(np.diff(ids) != 1) + 1
        begin = ids[np.concatenate([[0], breaks])]
        end = ids[np.concatenate([breaks - 1, [len(ids) - 1]])] + 1
        parts.append(np.stack([begin, end], axis=1))
    return np.concatenate(parts)


def _gather(dataset: ParquetDataset, own: _Reading) -> list[_Reading]:
    world_size = dataset.topology().world_size
    if world_size == 1:
        return [own]
    if not is_distributed():
        raise RuntimeError(
            f"comparing {world_size} ranks needs a process group: "
            "call torch.distributed.init_process_group first"
        )
    groups = dataset.data_parallel_groups()
    size = math.prod(dist.get_world_size(group) for group in groups)
    if size != world_size:
        raise RuntimeError(f"the process group has {size} ranks, the data set {world_size}")
    gathered: list[Any] = [own]
    # The fastest dimension first, so that the list is in the order of ranks.
    for group in reversed(groups):
        parts: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(parts, gathered, group=group)
        gathered = [reading for part in parts for reading in part]
    return gathered


def _check_same_data(gathered: list[_Reading]) -> None:
    first = gathered[0]
    for rank, reading in enumerate(gathered):
        if reading.failure is not None:
            raise RuntimeError(f"rank {rank} failed: {reading.failure}")
        if reading.fingerprint != first.fingerprint:
            raise RuntimeError(
                f"ranks see different files: fingerprint {first.fingerprint} on rank 0, "
                f"{reading.fingerprint} on rank {rank}"
            )
        if reading.epoch != first.epoch:
            raise RuntimeError(
                f"ranks are at different epochs: {first.epoch} on rank 0, "
                f"{reading.epoch} on rank {rank}"
            )


def _check(
    dataset: ParquetDataset, plan: EpochPlan, epoch: int, by_rank: list[Ranges]
) -> ShardAudit:
    num_rows = dataset.manifest.num_rows
    ranges = np.concatenate(by_rank)
    rank_of = np.repeat(np.arange(len(by_rank)), [len(part) for part in by_rank])
    order = np.lexsort((ranges[:, 1], ranges[:, 0]))
    ranges, rank_of = ranges[order], rank_of[order]
    begin, end = ranges[:, 0], ranges[:, 1]
    # The end of the rows that the ranges before each one cover.
    reach = np.concatenate([[0], np.maximum.accumulate(end)])[:-1] if len(end) else end
    delivered = int(np.maximum(end - np.maximum(begin, reach), 0).sum())
    repeated = int((end - begin).sum()) - delivered
    planned_repeats = planned_repeats_of(plan, num_rows)
    if repeated != planned_repeats:
        overlap = np.flatnonzero(begin < reach)[:3]
        where = [(int(begin[i]), int(rank_of[i])) for i in overlap]
        raise RuntimeError(
            f"ranks read {repeated} rows more than once, the plan has {planned_repeats}; "
            f"first (row id, rank): {where}"
        )
    planned_rows = planned_rows_of(plan) - planned_repeats
    if delivered != planned_rows:
        raise RuntimeError(f"ranks read {delivered} rows, the plan has {planned_rows}")
    return ShardAudit(
        epoch,
        num_rows,
        delivered,
        repeated,
        num_rows - delivered,
        plan.options.world_size,
        plan.options.num_workers,
    )


def planned_repeats_of(plan: EpochPlan, num_rows: int) -> int:
    """Return how many of `num_rows` rows are delivered a second time without a mark."""
    if plan.options.even == "split" and not plan.options.drop_last:
        return max(0, int(plan.share_rows.sum()) - num_rows)
    return 0


def planned_rows_of(plan: EpochPlan) -> int:
    """Return how many rows all shares deliver, without those marked as repeats."""
    if plan.options.even != "pad":
        return int(plan.share_rows.sum())
    shares = (plan.share(index) for index in range(plan.num_shares))
    return sum(int(share.num_rows[share.valid].sum()) for share in shares)
