"""The figures of `torchparquet plan`: the share of each rank, and how well rows are mixed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.plan.division import RowCounts
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.share import Share
from torchparquet._impl.ranks.distribution import per_rank, prorated
from torchparquet._impl.sequences.delivered_rows import delivered_rows
from torchparquet.dataset import ParquetDataset

_MAX_SAMPLED_ROWS = 4_000_000


@dataclass(frozen=True)
class Mixing:
    """How far shuffling takes the rows of one share, over its first windows.

    Attributes:
        rows_travelled: The median distance, in rows, of a row from its place in the order of
            chunks.
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
    """Return row group and place before permuting of the first rows, and their number."""
    groups, places, looked_at = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    for window in delivered_rows(share):
        groups.append(window.row_group)
        places.append(window.row_in_share)
        looked_at += len(window.row)
        if looked_at >= _MAX_SAMPLED_ROWS:
            break
    return np.concatenate(groups), np.concatenate(places), looked_at


def plan_report(
    dataset: ParquetDataset, plan: EpochPlan, map_shape: tuple[int, int] = (32, 64)
) -> dict[str, Any]:
    """Return the share of each rank, and how well the rows of rank 0 are mixed.

    The report consists of JSON values.
    """
    options, manifest = plan.options, dataset.manifest
    counts, packed = plan.row_counts(), manifest.packed
    is_by_length = packed is not None and packed.unit == "batch"
    report = {
        "files": len(manifest.files),
        "row_groups": manifest.num_row_groups,
        "rows": manifest.num_rows,
        "bytes": int(manifest.row_group_num_bytes.sum()),
        "epoch": options.epoch,
        "seed": options.seed,
        "even": options.even,
        "batch_size": None if is_by_length else options.batch_size,
        "world_size": options.world_size,
        "num_workers": options.num_workers,
        "shuffle_window": options.shuffle_window,
        "window_rows": options.window_rows,
        "ranks": _ranks(manifest, plan, counts),
        "mixing": asdict(mixing_of(plan.share(0))),
        "heat_map": heat_map(counts, plan.num_shares, manifest.row_group_num_rows, map_shape),
    }
    if packed is not None:
        report["packed"] = {
            "documents": int(packed.num_documents.sum()),
            "tokens": int(packed.num_tokens.sum()),
            "unit": packed.unit,
            "places": int(packed.num_places.sum()),
        }
    return report


def unit_of(report: dict[str, Any]) -> str:
    """Return what a report counts as rows: "row", "sequence" or "batch"."""
    unit: str = report["packed"]["unit"] if "packed" in report else "row"
    return unit


def _ranks(manifest: Manifest, plan: EpochPlan, counts: RowCounts) -> list[dict[str, Any]]:
    """Return the amounts of each rank and of its workers."""
    world_size, num_workers = plan.options.world_size, plan.options.num_workers
    shares = np.arange(plan.num_shares)
    # With canonical_world_size a rank has several shares, and one worker.
    worker = shares % (world_size * num_workers)
    of_shares = {
        "rows": plan.share_rows,
        "bytes": prorated(manifest.row_group_num_bytes, manifest, plan, counts),
    }
    if manifest.packed is not None:
        of_shares["tokens"] = prorated(manifest.packed.num_tokens, manifest, plan, counts)
    by_worker: dict[str, Any] = {
        "row_groups": counts.row_groups_by(worker, world_size * num_workers).tolist(),
        **{name: per_rank(of, world_size * num_workers) for name, of in of_shares.items()},
        "steps": plan.share_steps.reshape(-1, world_size * num_workers).max(axis=0).tolist(),
    }
    by_rank: dict[str, Any] = {
        "row_groups": counts.row_groups_by(shares % world_size, world_size).tolist(),
        **{name: per_rank(of, world_size) for name, of in of_shares.items()},
        "steps": plan.steps_per_rank().tolist(),
    }
    return [
        {
            "rank": rank,
            **{name: of[rank] for name, of in by_rank.items()},
            "workers": [
                {
                    "worker": number,
                    **{name: of[number * world_size + rank] for name, of in by_worker.items()},
                }
                for number in range(num_workers)
            ],
        }
        for rank in range(world_size)
    ]


def heat_map(
    counts: RowCounts,
    num_shares: int,
    row_group_rows: NDArray[np.int64],
    shape: tuple[int, int],
) -> list[list[float]]:
    """Return the part of the data that each share reads."""
    num_lines, num_columns = min(shape[0], num_shares), min(shape[1], len(row_group_rows))
    column_of = np.arange(len(row_group_rows)) * num_columns // len(row_group_rows)
    line = counts.share * num_lines // num_shares
    cell = line * num_columns + column_of[counts.row_group]
    rows = np.bincount(cell, counts.num_rows * counts.valid, num_lines * num_columns)
    of_column = np.bincount(column_of, row_group_rows, num_columns)
    delivered = rows.reshape(num_lines, num_columns) / np.maximum(of_column, 1)
    filled: list[list[float]] = np.round(delivered, 4).tolist()
    return filled
