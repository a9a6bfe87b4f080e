"""Reads an epoch as all ranks and workers of a world would, and counts each row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.reading.read_options import ReadOptions
from torchparquet._impl.reading.stream_parts import ROW_ID, ROW_VALID
from torchparquet._impl.reading.streams import StreamOpener
from torchparquet.audit import planned_repeats_of, planned_rows_of
from torchparquet.dataset import ParquetDataset
from torchparquet.tools.verify.row_audit import SeenRows, audit_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torchparquet._impl.files.manifest import Manifest


def audit_world(
    dataset: ParquetDataset,
    plan: EpochPlan,
    options: ReadOptions,
    advance: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Read the row ids of every rank and worker, one after another, and audit them.

    The native reader deals and permutes rows as in training, but decodes no values.
    """
    of = plan.options
    has_repeats = of.even == "pad"
    source = StreamOpener(dataset.manifest, (), options, True, has_repeats)
    seen = SeenRows()
    positions = _Positions(dataset.manifest)
    faults = []
    steps_of_ranks = []
    for rank in range(of.world_size):
        steps = 0
        for worker in range(of.num_workers):
            shares = [plan.share(index) for index in of.shares_of(rank, worker)]
            planned = max(share.num_steps for share in shares)
            own = _deliver(source, shares, positions, seen, advance) if planned else 0
            if own != planned:
                reader = f"rank {rank}, worker {worker}"
                faults.append(f"{reader}: {own:,} batches were delivered, {planned:,} planned")
            steps += own
        steps_of_ranks.append(steps)
    if not of.steps_may_differ and of.num_workers == 1 and len(set(steps_of_ranks)) > 1:
        counts = f"{min(steps_of_ranks):,} to {max(steps_of_ranks):,}"
        faults.append(f"ranks take {counts} steps")
    num_rows = dataset.manifest.num_rows
    repeats = planned_repeats_of(plan, num_rows)
    left_out = num_rows - (planned_rows_of(plan) - repeats)
    audit = audit_rows(of.epoch, [seen.runs()], num_rows, repeats, left_out)
    packed = dataset.manifest.packed
    found = asdict(audit)
    del found["repeated"]
    return {
        "world_size": of.world_size,
        "num_workers": of.num_workers,
        "even": of.even,
        "seed": of.seed,
        **found,
        "unit": "row" if packed is None else packed.unit,
        "num_tokens": None if packed is None else int(packed.num_tokens.sum()),
        "least_steps": min(steps_of_ranks),
        "most_steps": max(steps_of_ranks),
        "faults": faults + audit.faults(),
    }


class _Positions:
    """The rows of a data set, numbered without those that are not selected."""

    def __init__(self, manifest: Manifest) -> None:
        selection = manifest.selection
        self._ids = None
        # Sequences are numbered without gaps.
        if selection is not None and manifest.packed is None:
            groups = zip(
                manifest.row_group_first_row.tolist(), selection.num_rows.tolist(), strict=True
            )
            self._ids = np.concatenate(
                [
                    first + selection.stored_rows(number, np.arange(num_rows))
                    for number, (first, num_rows) in enumerate(groups)
                ]
            )

    def of(self, row_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the position of each row; of one that is not selected, a number above all."""
        if self._ids is None:
            return row_ids
        found = np.searchsorted(self._ids, row_ids)
        is_known = self._ids[np.minimum(found, len(self._ids) - 1)] == row_ids
        return np.where(is_known, found, len(self._ids) + row_ids)


def _deliver(
    source: StreamOpener,
    shares: list[Any],
    positions: _Positions,
    seen: SeenRows,
    advance: Callable[[int], None],
) -> int:
    """Record all rows of shares whose rows are side by side; return the number of batches."""
    steps = 0
    stream = source.open(shares, 1)
    try:
        for batch in stream:
            ids = positions.of(batch[ROW_ID].numpy())
            seen.add(ids[batch[ROW_VALID].numpy()] if ROW_VALID in batch else ids)
            steps += 1
            advance(len(ids))
    finally:
        stream.close()
    return steps
