"""The figures of `torchparquet plan`: the share of each rank, and how well rows are mixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchparquet.dataset import ParquetDataset
from torchparquet.files.manifest import Manifest
from torchparquet.plan.epoch_plan import EpochPlan
from torchparquet.plan.share import Share
from torchparquet.ranks.distribution import bytes_of, shards_of, tokens_of
from torchparquet.reading.delivered_rows import delivered_rows

_MAX_SAMPLED_ROWS = 4_000_000


@dataclass(frozen=True)
class Mixing:
    """How far shuffling takes the rows of one share, over its first windows.

    Attributes:
        row_groups_per_batch: Row groups that contribute to a batch, on average.
        rows_travelled: The median distance, in rows, of a row from its place in the order of
            chunks.
        rows_looked_at: Rows behind these figures.
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

    Args:
        dataset: The data set.
        plan: The plan of an epoch of the data set.
        map_shape: The largest numbers of lines and columns of the heat map.
    """
    options, manifest = plan.options, dataset.manifest
    shares = [plan.share(index) for index in range(plan.num_shares)]
    ranks = []
    for rank in range(options.world_size):
        of_workers = [
            [shares[index] for index in options.shares_of(rank, worker)]
            for worker in range(options.num_workers)
        ]
        ranks.append(
            {
                "rank": rank,
                **_amounts(manifest, [share for worker in of_workers for share in worker]),
                "steps": plan.num_steps(rank),
                "workers": [
                    {
                        "worker": worker,
                        **_amounts(manifest, own),
                        "steps": max(share.num_steps for share in own),
                    }
                    for worker, own in enumerate(of_workers)
                ],
            }
        )
    report = {
        "files": len(manifest.files),
        "row_groups": manifest.num_row_groups,
        "rows": manifest.num_rows,
        "bytes": int(manifest.row_group_num_bytes.sum()),
        "epoch": options.epoch,
        "seed": options.seed,
        "even": options.even,
        "batch_size": options.batch_size,
        "world_size": options.world_size,
        "num_workers": options.num_workers,
        "shuffle_window": options.shuffle_window,
        "window_rows": options.window_rows,
        "ranks": ranks,
        "mixing": asdict(mixing_of(shares[0])),
        "heat_map": heat_map(shares, manifest.row_group_num_rows, map_shape),
    }
    packed = manifest.packed
    if packed is not None:
        report["packed"] = {
            "documents": int(packed.num_documents.sum()),
            "tokens": int(packed.num_tokens.sum()),
            "unit": packed.unit,
            "places": int(packed.num_places.sum()),
        }
    return report


def _amounts(manifest: Manifest, shares: Sequence[Share]) -> dict[str, int]:
    amounts = {
        "row_groups": len({shard for share in shares for shard in shards_of(share)}),
        "rows": sum(share.total_rows for share in shares),
        "bytes": sum(bytes_of(manifest, share) for share in shares),
    }
    packed = manifest.packed
    if packed is not None:
        amounts["tokens"] = tokens_of(manifest, packed, shares)
    return amounts


def heat_map(
    shares: Sequence[Share], row_group_rows: NDArray[np.int64], shape: tuple[int, int]
) -> list[list[float]]:
    """Return the part of the data that each share reads.

    Args:
        shares: The shares in their order. If there are more than lines, one line stands for
            several.
        row_group_rows: int64 `[G]`, rows of each row group.
        shape: The largest numbers of lines and columns.

    Returns:
        For each line and column, the part (0 to 1) of the column's rows that the line's shares
        deliver. Columns follow the order of files.
    """
    num_lines, num_columns = min(shape[0], len(shares)), min(shape[1], len(row_group_rows))
    column_of = np.arange(len(row_group_rows)) * num_columns // len(row_group_rows)
    delivered = np.zeros((num_lines, num_columns))
    for share in shares:
        line = share.index * num_lines // len(shares)
        np.add.at(delivered[line], column_of[share.row_group], _delivered_rows(share))
    rows = np.bincount(column_of, row_group_rows, num_columns)
    filled: list[list[float]] = np.round(delivered / np.maximum(rows, 1), 4).tolist()
    return filled


def _delivered_rows(share: Share) -> NDArray[np.float64]:
    """Return the rows that each chunk delivers, repeats excluded, float64 `[n]`."""
    rows = (share.num_rows * share.valid).astype(np.float64)
    windows = share.windows
    if windows is None or not len(windows.num_chunks):
        return rows
    first = np.cumsum(windows.num_chunks) - windows.num_chunks
    stored = np.add.reduceat(share.num_rows, first)
    part = windows.num_rows / np.maximum(stored, 1)
    delivered: NDArray[np.float64] = rows * np.repeat(part, windows.num_chunks)
    return delivered
