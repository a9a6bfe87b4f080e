"""Checks that the ranks of a job read disjoint shares that are complete together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from torchparquet._impl.checks import shown
from torchparquet._impl.ranks.sharding import is_distributed
from torchparquet._impl.reading.reader_arguments import ROW_ID, ROW_VALID
from torchparquet._impl.sampling.streams import SampledOpener
from torchparquet.dataset import ParquetDataset

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from torchparquet._impl.files.manifest import Manifest
    from torchparquet._impl.plan.epoch_plan import EpochPlan

Runs = NDArray[np.int64]

# Ranks must agree in these facts. A message about one begins so.
_FACTS = ("ranks see different files: fingerprint", "ranks are at different epochs:")
_NO_RUNS: Runs = np.empty((0, 2), np.int64)
_MAX_PENDING_ROWS = 1 << 20


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


def verify_no_shard_overlap(
    loader: ParquetDataset | DataLoader[Any], *, read: bool = False
) -> ShardAudit:
    """Check over all ranks that no row is read twice or left out.

    This is a collective call: every rank of the data set's process group must make it, with the
    same arguments. Rows that `even=` and `drop_last` repeat or leave out are counted.
    They are no error.

    Args:
        loader: A `ParquetDataset`, or a DataLoader over one.
        read: Check the rows that an epoch of the loader delivers, which needs `row_ids=True`.
            Otherwise check the plan of the current epoch, and read nothing.

    Raises:
        RuntimeError: A row is read twice or left out against the rule, ranks see different data,
            or there is no process group.
        ValueError: `read` is given without `row_ids=True`, or with batches by length.
    """
    dataset = loader if isinstance(loader, ParquetDataset) else getattr(loader, "dataset", loader)
    if not isinstance(dataset, ParquetDataset):
        raise TypeError(
            f"loader must be a ParquetDataset or a DataLoader over one, got {shown(dataset)}"
        )
    num_workers = 0 if loader is dataset else loader.num_workers  # type: ignore[union-attr]
    epoch = dataset.epoch
    plan = dataset.plan(epoch, num_workers)
    packed = dataset.manifest.packed
    if read and packed is not None and packed.unit == "batch":
        raise ValueError(
            "read=True does not go with batch_size=ByLength(...) and unique=; compare the plan"
        )
    failure = None
    runs = _NO_RUNS
    try:
        runs = _delivered_runs(loader) if read else _planned_runs(dataset, plan)
    except Exception as error:  # The other ranks wait for the answer of this one.
        failure = error
    report = None if failure is None else f"{type(failure).__name__}: {failure}"
    manifest = dataset.manifest
    gathered = _gather(dataset, (report, manifest.fingerprint, epoch, runs))
    if failure is not None:
        raise failure
    for rank, (report, *facts, _) in enumerate(gathered):
        if report is not None:
            raise RuntimeError(f"rank {rank} failed: {report}")
        for text, first, own in zip(_FACTS, gathered[0][1:], facts, strict=False):
            if first != own:
                raise RuntimeError(f"{text} {first} on rank 0, {own} on rank {rank}")
    # A plan numbers the rows without those that are not selected.
    expected = _row_ids(dataset, epoch) if read else np.array([[0, manifest.num_rows]])
    audit = audit_rows(plan, expected, [runs for *_, runs in gathered])
    if audit["faults"]:
        raise RuntimeError("; ".join(audit["faults"]))
    return ShardAudit(
        epoch,
        num_rows=audit["num_rows"],
        rows_delivered=audit["num_distinct"],
        rows_repeated=audit["num_repeats"],
        rows_left_out=audit["planned_left_out"],
        world_size=plan.options.world_size,
        num_workers=plan.options.num_workers,
    )


class SeenRows:
    """A multiset of row ids as sorted runs `[begin, end)`; whole row groups take kilobytes."""

    def __init__(self) -> None:
        """Begin without rows."""
        self._runs = _NO_RUNS
        self._pending: list[NDArray[np.int64]] = []
        self._num_pending = 0

    def add(self, ids: NDArray[np.int64]) -> None:
        """Add row ids, int64 `[B]`, in any order; an id may occur several times."""
        self._pending.append(ids.copy())
        self._num_pending += len(ids)
        if self._num_pending > _MAX_PENDING_ROWS:
            self._compact()

    def add_batch(self, batch: dict[str, Any]) -> None:
        """Add the rows of a batch, but for those that it marks as repeats."""
        ids = batch[ROW_ID].numpy()
        self.add(ids[batch[ROW_VALID].numpy()] if ROW_VALID in batch else ids)

    def runs(self) -> Runs:
        """Return runs `[begin, end)`, int64 `[n, 2]`; an id added k times lies in k runs."""
        self._compact()
        return self._runs

    def _compact(self) -> None:
        if not self._num_pending:
            return
        ids = np.sort(np.concatenate(self._pending))
        begin = ids[np.flatnonzero(np.diff(ids, prepend=ids[0] - 2) != 1)]
        end = ids[np.flatnonzero(np.diff(ids, append=ids[-1] + 2) != 1)] + 1
        runs = np.concatenate([self._runs, np.stack([begin, end], axis=1)])
        runs = runs[np.lexsort((runs[:, 1], runs[:, 0]))]
        # Adjacent runs become one.
        breaks = np.flatnonzero(runs[1:, 0] != runs[:-1, 1])
        begin = runs[np.concatenate([[0], breaks + 1]), 0]
        end = runs[np.concatenate([breaks, [len(runs) - 1]]), 1]
        self._runs = np.stack([begin, end], axis=1)
        self._pending, self._num_pending = [], 0


def audit_rows(plan: EpochPlan, expected: Runs, runs_of_ranks: Sequence[Runs]) -> dict[str, Any]:
    """Compare what ranks deliver with the plan and all rows; return counts and faults, as JSON.

    Of rows that are sampled several times, `expected` has as many runs.
    """
    num_rows = int(np.diff(expected).sum())
    delivered = np.concatenate([_NO_RUNS, *runs_of_ranks])
    # The numbers of deliveries change at edges alone.
    edges = np.unique(np.concatenate([expected.ravel(), delivered.ravel()]))
    rows = np.diff(edges)
    times, wanted = _depth(delivered, edges), _depth(expected, edges)
    is_known, is_repeated = wanted > 0, (times > wanted) & (wanted > 0)
    distinct = int((rows * np.minimum(times, wanted)).sum())
    repeats = int((rows * (times - wanted))[is_repeated].sum())
    unknown = int((rows * times)[~is_known].sum())
    missing = edges[:-1][times < wanted].tolist()
    planned_repeats, planned_left_out = _planned(plan, num_rows)
    faults = []
    if num_rows - distinct != planned_left_out:
        first = f"; the first is row {missing[0]}" if missing else ""
        counts = f"{num_rows - distinct:,} of {num_rows:,} rows are missing"
        faults.append(f"{counts}, {planned_left_out:,} planned{first}")
    if repeats != planned_repeats:
        text = f"{repeats:,} rows are read more than once, {planned_repeats:,} planned"
        for row in edges[:-1][is_repeated][:1]:
            by = [((runs[:, 0] <= row) & (row < runs[:, 1])).any() for runs in runs_of_ranks]
            ranks = " and ".join(map(str, np.flatnonzero(by)))
            text += f"; the first is row {row}, by rank {ranks}"
        faults.append(text)
    if unknown:
        faults.append(f"{unknown:,} row ids that no file has")
    return {
        "epoch": plan.options.epoch,
        "num_rows": num_rows,
        "num_distinct": distinct,
        "num_repeats": repeats,
        "planned_repeats": planned_repeats,
        "planned_left_out": planned_left_out,
        "num_unknown": unknown,
        "first_missing": missing[0] if missing else None,
        "faults": faults,
    }


def _depth(runs: Runs, edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many runs cover the rows from each edge to the next one."""
    sides = (np.bincount(np.searchsorted(edges, of), minlength=len(edges)) for of in runs.T)
    depth: NDArray[np.int64] = np.cumsum(np.subtract(*sides))[:-1]
    return depth


def _row_ids(dataset: ParquetDataset, epoch: int) -> Runs:
    """Return the row ids of an epoch, each as often as it has the row."""
    streams = dataset._session.streams
    if not isinstance(streams, SampledOpener):
        return row_ids_of(streams.manifest)
    seen = SeenRows()
    for rows in streams.row_ids(epoch):
        seen.add(rows)
    return seen.runs()


def row_ids_of(manifest: Manifest) -> Runs:
    """Return the row ids of a data set; sequences are numbered without gaps."""
    selection = manifest.selection
    if selection is None or manifest.packed is not None:
        return np.array([[0, manifest.num_rows]])
    seen = SeenRows()
    for group, first in enumerate(manifest.row_group_first_row.tolist()):
        seen.add(first + selection.stored_rows(group, np.arange(selection.num_rows[group])))
    return seen.runs()


def _planned(plan: EpochPlan, num_rows: int) -> tuple[int, int]:
    """Return how many rows the plan repeats without a mark, and how many it leaves out."""
    rows = int(plan.share_rows.sum())
    if plan.options.even == "pad":
        shares = (plan.share(index).chunks for index in range(plan.num_shares))
        rows = sum(int(share.num_rows[share.valid].sum()) for share in shares)
    is_repeating = plan.options.even == "split" and not plan.options.drop_last
    repeats = max(0, rows - num_rows) if is_repeating else 0
    return repeats, num_rows - (rows - repeats)


def _planned_runs(dataset: ParquetDataset, plan: EpochPlan) -> Runs:
    """Return the places of the rows that the plan gives this rank's workers."""
    topology, rows = dataset.topology(), dataset.manifest.row_group_num_rows
    first_row = np.cumsum(rows) - rows
    runs = [_NO_RUNS]
    for index in range(topology.rank, plan.num_shares, topology.world_size):
        share = plan.share(index).chunks
        # Batches mark repeats only with even="pad".
        counted = share.valid if plan.options.even == "pad" else np.ones_like(share.valid)
        kept = counted & (share.num_rows > 0)
        begin = (first_row[share.row_group] + share.row_begin)[kept]
        runs.append(np.stack([begin, begin + share.num_rows[kept]], axis=1))
    return np.concatenate(runs)


def _delivered_runs(loader: ParquetDataset | DataLoader[Any]) -> Runs:
    """Return the rows that one epoch of the loader delivers."""
    seen = SeenRows()
    for batch in loader:
        if ROW_ID not in batch:
            raise ValueError("read=True needs a ParquetDataset with row_ids=True")
        seen.add_batch(batch)
    return seen.runs()


def _gather(dataset: ParquetDataset, own: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return what each rank found, in the order of ranks."""
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
