"""`torchparquet plan`: the share of each rank, and how well rows are mixed."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.share import Share
from torchparquet._impl.ranks.distribution import per_rank, prorated
from torchparquet._impl.sequences.delivered_rows import first_windows
from torchparquet.dataset import ParquetDataset

_MAX_SAMPLED_ROWS = 4_000_000


def mixing_of(share: Share) -> dict[str, Any]:
    """Measure the mixing of a share, on whole windows of a few million rows from its start.

    Returns:
        `row_groups_per_batch`; `rows_travelled`, the median distance of a row from its place in
        the order of chunks; `rows_looked_at`.
    """
    rows = first_windows(share, _MAX_SAMPLED_ROWS)
    looked_at = len(rows.row)
    if share.batch_size is None:
        bounds = np.cumsum(share.batch_sizes)
        bounds = bounds[bounds <= looked_at]
    else:
        bounds = np.append(np.arange(share.batch_size, looked_at, share.batch_size), looked_at)
    batches = np.split(rows.row_group, bounds)[: len(bounds)]
    met = [len(np.unique(batch)) for batch in batches if len(batch)]
    travelled = np.abs(rows.row_in_share - np.arange(looked_at))
    return {
        "row_groups_per_batch": float(np.mean(met)) if met else 0.0,
        "rows_travelled": int(np.median(travelled)) if looked_at else 0,
        "rows_looked_at": looked_at,
    }


def plan_report(dataset: ParquetDataset, plan: EpochPlan) -> dict[str, Any]:
    """Return the share of each rank, and the mixing of rank 0, as JSON values."""
    options, manifest = plan.options, dataset.manifest
    packed = manifest.packed
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
        "ranks": _ranks(dataset, plan),
        "mixing": mixing_of(plan.share(0)),
    }
    if packed is not None:
        report["packed"] = {
            "documents": int(packed.num_documents.sum()),
            "tokens": int(packed.num_tokens.sum()),
            "unit": packed.unit,
            "places": int(packed.num_places.sum()),
        }
    return report


def _ranks(dataset: ParquetDataset, plan: EpochPlan) -> list[dict[str, Any]]:
    """Return the amounts of each rank and of its workers."""
    manifest, counts = dataset.manifest, plan.row_counts()
    world_size, num_workers = plan.options.world_size, plan.options.num_workers
    of_shares = {
        "rows": plan.share_rows,
        "bytes": prorated(manifest.row_group_num_bytes, manifest, plan, counts),
    }
    if manifest.packed is not None:
        of_shares["tokens"] = prorated(manifest.packed.num_tokens, manifest, plan, counts)

    def amounts(readers: int, steps: Any) -> list[dict[str, int]]:
        # With canonical_world_size a rank has several shares, and one worker.
        reader = np.arange(plan.num_shares) % readers
        by_name = {
            "row_groups": counts.row_groups_by(reader, readers).tolist(),
            **{name: per_rank(of, readers) for name, of in of_shares.items()},
            "steps": steps.tolist(),
        }
        return [{name: of[at] for name, of in by_name.items()} for at in range(readers)]

    num_readers = world_size * num_workers
    steps_of_workers = plan.share_steps.reshape(-1, num_readers).max(axis=0)
    workers = amounts(num_readers, steps_of_workers)
    return [
        {
            "rank": rank,
            **of_rank,
            "workers": [
                {"worker": number, **of} for number, of in enumerate(workers[rank::world_size])
            ],
        }
        for rank, of_rank in enumerate(amounts(world_size, plan.steps_per_rank()))
    ]
