"""Records delivered rows as runs of row ids, and checks that they are complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Runs = NDArray[np.int64]

_MAX_PENDING_ROWS = 1 << 20
_MAX_LISTED = 100_000


class SeenRows:
    """A multiset of row ids as sorted runs `[begin, end)`.

    Most row groups are delivered whole, so an epoch of a billion rows takes a few kilobytes.
    """

    def __init__(self) -> None:
        """Begin without rows."""
        self._runs: Runs = np.empty((0, 2), np.int64)
        self._pending: list[NDArray[np.int64]] = []
        self._num_pending = 0

    def add(self, ids: NDArray[np.int64]) -> None:
        """Add row ids, int64 `[B]`, in any order; an id may occur several times."""
        self._pending.append(ids.copy())
        self._num_pending += len(ids)
        if self._num_pending > _MAX_PENDING_ROWS:
            self._compact()

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
        self._runs = joined([self._runs, np.stack([begin, end], axis=1)])
        self._pending, self._num_pending = [], 0


def joined(parts: Sequence[Runs]) -> Runs:
    """Return the sorted runs of all parts; adjacent runs become one."""
    runs = np.concatenate(parts)
    runs = runs[np.lexsort((runs[:, 1], runs[:, 0]))]
    if len(runs) == 0:
        return runs
    breaks = np.flatnonzero(runs[1:, 0] != runs[:-1, 1])
    begin = runs[np.concatenate([[0], breaks + 1]), 0]
    end = runs[np.concatenate([breaks, [len(runs) - 1]]), 1]
    return np.stack([begin, end], axis=1)


@dataclass(frozen=True)
class RowAudit:
    """The audit of the rows that all ranks delivered in one epoch.

    Attributes:
        repeated: The row id of each repeat; the first ones if there are very many.
        first_missing: The first row that no rank delivered; None if there is none.
    """

    epoch: int
    num_rows: int
    num_distinct: int
    num_repeats: int
    planned_repeats: int
    num_unknown: int
    repeated: tuple[int, ...]
    first_missing: int | None
    planned_left_out: int = 0

    @property
    def holds(self) -> bool:
        """True if rows were delivered exactly as planned."""
        return not self.faults()

    def faults(self) -> list[str]:
        """Return a sentence for each fault."""
        faults = []
        if self.num_distinct != self.num_rows - self.planned_left_out:
            missing = f"{self.num_rows - self.num_distinct:,} of {self.num_rows:,} rows missing"
            if self.planned_left_out:
                missing += f", {self.planned_left_out:,} planned"
            faults.append(f"{missing}, the first is row {self.first_missing}")
        if self.num_repeats != self.planned_repeats:
            first = f", the first is row {self.repeated[0]}" if self.repeated else ""
            counts = f"{self.num_repeats:,} rows repeated, {self.planned_repeats:,} planned"
            faults.append(counts + first)
        if self.num_unknown:
            faults.append(f"{self.num_unknown:,} row ids that no file has")
        return faults


def audit_rows(
    epoch: int,
    runs_of_ranks: Sequence[Runs],
    num_rows: int,
    planned_repeats: int,
    planned_left_out: int = 0,
) -> RowAudit:
    """Compare the delivered rows with the rows of the files."""
    runs = joined(runs_of_ranks)
    known = np.clip(runs, 0, num_rows)
    num_unknown = int(np.diff(runs).sum() - np.diff(known).sum())
    known = known[known[:, 0] < known[:, 1]]
    begin, end = known[:, 0], known[:, 1]
    # The end of all runs before each one. Rows below it are repeated; a gap above it is missing.
    reach = np.concatenate([[0], np.maximum.accumulate(end)])
    repeats = [(b, min(e, r)) for b, e, r in zip(begin, end, reach, strict=False) if b < r]
    num_repeats = int(sum(e - b for b, e in repeats))
    gaps = np.flatnonzero(np.append(begin, num_rows) > reach)
    return RowAudit(
        epoch,
        num_rows,
        int((end - begin).sum()) - num_repeats,
        num_repeats,
        planned_repeats,
        num_unknown,
        tuple(int(row) for b, e in repeats for row in range(b, min(e, b + _MAX_LISTED)))[
            :_MAX_LISTED
        ],
        int(reach[gaps[0]]) if len(gaps) else None,
        planned_left_out,
    )
