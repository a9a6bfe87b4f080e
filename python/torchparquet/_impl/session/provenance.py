"""The origin of a batch, in words for an error message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from torchparquet._impl.plan.plan_options import Int64Array

if TYPE_CHECKING:
    from torchparquet._impl.files.manifest import Manifest
    from torchparquet._impl.plan.plan_options import Topology

_MAX_SHOWN = 8


def batch_origin(
    manifest: Manifest,
    found: list[tuple[Int64Array, Int64Array]],
    at: tuple[int, int],
    topology: Topology,
    row: int | None = None,
) -> str:
    """Return the origin of a batch, or of a row of it, on one line.

    `found` are the row groups and rows of what stands side by side in the batch.
    `at` is the epoch and the number of the batch, of this rank or worker, counted from 0.
    """
    groups, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
    is_batch = manifest.packed is not None and manifest.packed.unit == "batch"
    if row is not None and not is_batch:
        row %= len(rows)
        groups, rows = groups[[row]], rows[[row]]
    epoch, step = at
    where = "" if row is None else f"row {row} of "
    where += f"batch {step} of epoch {epoch}, rank {topology.rank} of {topology.world_size}"
    if topology.num_workers > 1:
        where += f", worker {topology.worker_id} of {topology.num_workers}"
    shown = list(_spans(manifest, groups, rows))
    if len(shown) > _MAX_SHOWN:
        shown[_MAX_SHOWN:] = [f"{len(shown) - _MAX_SHOWN} more row groups"]
    return f"{where}: {', '.join(shown)}"


def _spans(manifest: Manifest, groups: Int64Array, rows: Int64Array) -> Iterator[str]:
    """Yield the rows of each row group in words, in the order in which they come first."""
    unit = "row" if manifest.packed is None else manifest.packed.unit
    units = f"{unit}es" if unit.endswith("ch") else f"{unit}s"
    for group in dict.fromkeys(groups.tolist()):
        of_group = manifest.stored_rows(group, rows[groups == group])
        first, last = int(of_group.min()), int(of_group.max())
        if len(of_group) == 1:
            found = f"{unit} {first}"
        elif len(of_group) == last - first + 1:
            found = f"{units} {first} to {last}"
        else:
            found = f"{len(of_group)} {units} of {first} to {last}"
        in_file = int(manifest.row_group_in_file[group])
        file = manifest.files[manifest.row_group_file[group]]
        yield f"{found} of row group {in_file} of {file!r}"
