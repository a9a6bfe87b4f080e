"""What a plan gives each rank, and how well it mixes rows: the figures of `torchparquet plan`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchparquet.dataset import ParquetDataset
from torchparquet.distribution import bytes_of, shards_of
from torchparquet.plan import EpochPlan
from torchparquet.reader import window_order
from torchparquet.share import Share

_MAX_SAMPLED_ROWS = 4_000_000


@dataclass(frozen=True)
class Mixing:
    """How far shuffling takes the rows of one share, over its first windows.

    Attributes:
        row_groups_per_batch: Row groups that the rows of a batch are of, on average.
        rows_travelled: The median distance of a row from its place in the order of chunks, in
            rows.
        rows_looked_at: Rows that these figures are of.
    """

    row_groups_per_batch: float
    rows_travelled: int
    rows_looked_at: int


def mixing_of(share: Share) -> Mixing:
    """Measure the mixing of a share, on whole windows of a few million rows from its start."""
    groups, places, looked_at = _delivered(share)
    if share.batch_size is None:
        bounds = np.cumsum(share.batch_sizes)
        bounds = bounds[bounds <= looked_at]
    else:
        bounds = np.append(np.arange(share.batch_size, looked_at, share.batch_size), looked_at)
    batches = np.split(groups, bounds)[: len(bounds)]
    met = [len(np.unique(batch)) for batch in batches if len(batch)]
    travelled = np.abs(places - np.arange(len(places)))
    return Mixing(
        float(np.mean(met)) if met else 0.0,
        int(np.median(travelled)) if len(travelled) else 0,
        looked_at,
    )


def _delivered(share: Share) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return, of the first rows delivered, row group and place before permuting."""
    counts = (
        np.ones(len(share.num_rows), np.int64)
        if share.windows is None
        else share.windows.num_chunks
    )
    groups, places = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    chunk = looked_at = first = 0
    for window, count in enumerate(counts.tolist()):
        rows = share.num_rows[chunk : chunk + count]
        stored = np.repeat(share.row_group[chunk : chunk + count], rows)
        order = np.arange(len(stored))
        if share.windows is not None and len(stored):
            permuted = window_order(int(share.windows.key[window]), len(stored))
            begin, end = int(share.windows.begin[window]), int(share.windows.end[window])
            order = permuted[begin:end].astype(np.int64)
        groups.append(stored[order])
        places.append(first + order)
        chunk, looked_at, first = chunk + count, looked_at + len(order), first + len(order)
        if looked_at >= _MAX_SAMPLED_ROWS:
            break
    return np.concatenate(groups), np.concatenate(places), looked_at


def plan_report(dataset: ParquetDataset, plan: EpochPlan) -> dict[str, Any]:
    """Return what each rank of `plan` gets, and how well its first rank's rows are mixed.

    All of it is JSON: under "ranks" one entry per rank with row groups, rows, bytes and steps.
    """
    options, manifest = plan.options, dataset.manifest
    ranks = []
    for rank in range(options.world_size):
        shares = [
            plan.share(index)
            for worker in range(options.num_workers)
            for index in options.shares_of(rank, worker)
        ]
        ranks.append(
            {
                "rank": rank,
                "row_groups": len({shard for share in shares for shard in shards_of(share)}),
                "rows": sum(share.total_rows for share in shares),
                "bytes": sum(bytes_of(manifest, share) for share in shares),
                "steps": plan.num_steps(rank),
            }
        )
    return {
        "files": len(manifest.files),
        "row_groups": manifest.num_row_groups,
        "rows": manifest.num_rows,
        "epoch": options.epoch,
        "world_size": options.world_size,
        "num_workers": options.num_workers,
        "shuffle_window": options.shuffle_window,
        "window_rows": options.window_rows,
        "ranks": ranks,
        "mixing": asdict(mixing_of(plan.share(0))),
    }


def as_text(report: dict[str, Any]) -> str:
    """Return the report as lines for people."""
    window = report["shuffle_window"]
    windows = f"windows of {window} row groups" if window else "no shuffle windows"
    if window and report["window_rows"]:
        windows += f", at most {report['window_rows']:,} rows"
    lines = [
        f"{report['files']:,} files, {report['row_groups']:,} row groups, {report['rows']:,} rows",
        f"epoch {report['epoch']}, {report['world_size']} ranks, "
        f"{_workers(report['num_workers'])}, {windows}",
        "",
        f"{'rank':>6} {'row groups':>12} {'rows':>14} {'MiB':>10} {'steps':>10}",
    ]
    lines += [
        f"{rank['rank']:>6} {rank['row_groups']:>12,} {rank['rows']:>14,} "
        f"{rank['bytes'] / 2**20:>10,.1f} {rank['steps']:>10,}"
        for rank in report["ranks"]
    ]
    mixing = report["mixing"]
    lines += [
        "",
        f"mixing: a batch has rows of {mixing['row_groups_per_batch']:.1f} row groups; half of all "
        f"rows travel {mixing['rows_travelled']:,} rows or more (first "
        f"{mixing['rows_looked_at']:,} rows of rank 0)",
    ]
    return "\n".join(lines)


def _workers(num_workers: int) -> str:
    return f"{num_workers} workers each" if num_workers > 1 else "one reader each"
