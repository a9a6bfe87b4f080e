"""The origin of a batch, in words for an error message."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from torchparquet._impl.plan.plan_options import Int64Array
from torchparquet._impl.sequences.delivered_rows import first_rows

if TYPE_CHECKING:
    from torchparquet._impl.files.manifest import Manifest
    from torchparquet._impl.plan.share import Share
    from torchparquet._impl.plan.topology import Topology
    from torchparquet._impl.session.planner import EpochPlanner, Place

_MAX_SHOWN = 8


def _plural(unit: str) -> str:
    return f"{unit}es" if unit.endswith("ch") else f"{unit}s"


@dataclass(frozen=True)
class Rows:
    """Rows of one row group."""

    file: str
    row_group: int
    first: int
    last: int
    num_rows: int
    unit: str = "row"

    def __str__(self) -> str:
        """Return it in words."""
        if self.num_rows == 1:
            rows = f"{self.unit} {self.first}"
        elif self.num_rows == self.last - self.first + 1:
            rows = f"{_plural(self.unit)} {self.first} to {self.last}"
        else:
            rows = f"{self.num_rows} {_plural(self.unit)} of {self.first} to {self.last}"
        return f"{rows} of row group {self.row_group} of {self.file!r}"


@dataclass(frozen=True)
class BatchOrigin:
    """The origin of a batch, or of one row of it.

    Attributes:
        step: Number of the batch in the epoch, of this rank or worker, counted from 0.
        rows: The origin of its rows, in the order in which the row groups come first.
    """

    epoch: int
    step: int
    topology: Topology
    rows: tuple[Rows, ...]
    row: int | None = None

    def __str__(self) -> str:
        """Return it in words, on one line."""
        own = self.topology
        row = "" if self.row is None else f"row {self.row} of "
        where = f"{row}batch {self.step} of epoch {self.epoch}, rank {own.rank} of {own.world_size}"
        if own.num_workers > 1:
            where += f", worker {own.worker_id} of {own.num_workers}"
        shown = [str(rows) for rows in self.rows[:_MAX_SHOWN]]
        if len(self.rows) > _MAX_SHOWN:
            shown.append(f"{len(self.rows) - _MAX_SHOWN} more row groups")
        return f"{where}: {', '.join(shown)}"


def batch_origin(
    manifest: Manifest,
    planner: EpochPlanner,
    place: Place,
    topology: Topology,
    row: int | None = None,
) -> BatchOrigin:
    """Return where the batch that comes next at `place` is from."""
    return _origin(
        manifest,
        planner.shares(place, topology),
        BatchOrigin(place.epoch, place.steps_before + place.steps, topology, (), row),
    )


def _origin(manifest: Manifest, shares: list[Share], origin: BatchOrigin) -> BatchOrigin:
    """Return the origin with the rows of the first batch of shares that stand side by side."""
    found = [first_rows(share, share.rows_of_first(1)) for share in shares]
    groups, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
    is_batch = manifest.packed is not None and manifest.packed.unit == "batch"
    if origin.row is not None and not is_batch:
        row = origin.row % len(rows)
        origin, groups, rows = replace(origin, row=row), groups[[row]], rows[[row]]
    return replace(origin, rows=_spans(manifest, groups, rows))


def _spans(manifest: Manifest, groups: Int64Array, rows: Int64Array) -> tuple[Rows, ...]:
    spans = []
    for group in dict.fromkeys(groups.tolist()):
        of_group = manifest.stored_rows(group, rows[groups == group])
        spans.append(
            Rows(
                manifest.files[manifest.row_group_file[group]],
                int(manifest.row_group_in_file[group]),
                int(of_group.min()),
                int(of_group.max()),
                len(of_group),
                "row" if manifest.packed is None else manifest.packed.unit,
            )
        )
    return tuple(spans)


def row_group_origin(manifest: Manifest, share: Share, origin: BatchOrigin) -> BatchOrigin:
    """Return the origin with the rows of its step of a share that is one row group."""
    return _origin(manifest, [share.steps(origin.step)], origin)
