"""How many rows of which row groups all shares of an epoch deliver, without their order.

For reports on jobs of very many ranks: making each share in turn takes a fraction of a millisecond
per share, and minutes in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.plan.plan_options import Int64Array
from torchparquet._impl.plan.share import Share

Float64Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RowCounts:
    """The entries of a sparse matrix of shares by row groups, in no order.

    Attributes:
        num_rows: float64 `[n]`; not whole where a share delivers a part of a permuted window.
    """

    share: Int64Array
    row_group: Int64Array
    num_rows: Float64Array
    valid: NDArray[np.bool_]

    @classmethod
    def joined(cls, parts: Sequence[RowCounts]) -> RowCounts:
        """Return the entries of all parts; at least one."""
        return cls(
            np.concatenate([part.share for part in parts]),
            np.concatenate([part.row_group for part in parts]),
            np.concatenate([part.num_rows for part in parts]),
            np.concatenate([part.valid for part in parts]),
        )

    @classmethod
    def of_share(cls, share: Share) -> RowCounts:
        """Return the entries of one share."""
        rows = share.num_rows.astype(np.float64)
        windows = share.windows
        if windows is not None and len(windows.num_chunks):
            first = np.cumsum(windows.num_chunks) - windows.num_chunks
            stored = np.add.reduceat(share.num_rows, first)
            part = windows.num_rows / np.maximum(stored, 1)
            rows *= np.repeat(part, windows.num_chunks)
        return cls(np.full_like(share.row_group, share.index), share.row_group, rows, share.valid)

    def repeats(self, times: Int64Array | int = 1) -> RowCounts:
        """Return entries of as many rows, `times` over, that are all repeats."""
        rows = self.num_rows * times
        return replace(self, num_rows=rows, valid=np.zeros_like(self.valid))

    def pick(self, which: NDArray[np.bool_]) -> RowCounts:
        """Return the marked entries."""
        return RowCounts(
            self.share[which], self.row_group[which], self.num_rows[which], self.valid[which]
        )

    def row_groups_by(self, holder: Int64Array, num_holders: int) -> Int64Array:
        """Return how many row groups each holder reads rows of, repeats excluded."""
        read = self.pick(self.valid & (self.num_rows > 0))
        num_row_groups = int(read.row_group.max(initial=0)) + 1
        pairs = np.unique(holder[read.share] * num_row_groups + read.row_group)
        return np.bincount(pairs // num_row_groups, minlength=num_holders)

    def sums(self, of_row: Float64Array, num_shares: int) -> Int64Array:
        """Return the sum of a quantity over the rows of each share, int64 `[S]`."""
        weights = self.num_rows * of_row[self.row_group]
        sums: Int64Array = np.rint(np.bincount(self.share, weights, num_shares)).astype(np.int64)
        return sums
