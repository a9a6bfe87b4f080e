"""One share of an epoch: the rows that one reader delivers, in order."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.plan.plan_options import Int64Array
from torchparquet._impl.plan.ranges import Ranges


@dataclass(frozen=True, eq=False)
class Windows:
    """Consecutive chunks of a share whose rows are permuted together, one entry per window.

    Window `w` consists of the next `num_chunks[w]` chunks. The reader permutes their rows and
    delivers those at `[begin[w], end[w])`.
    """

    num_chunks: Int64Array
    key: NDArray[np.uint64]
    begin: Int64Array
    end: Int64Array

    @property
    def num_rows(self) -> Int64Array:
        """The rows that each window delivers, int64 `[m]`."""
        return self.end - self.begin


@dataclass(frozen=True, eq=False)
class Share:
    """The rows that one worker of one rank reads in one epoch, in order.

    Chunk `k` stands at position `k * num_shares + index` of the sequence that the cursor walks.

    Attributes:
        batch_size: Rows of a batch that come from the share; None if `batch_sizes` has them.
        num_rows: int64 `[n]`; 0 for a row group without rows, which keeps its position.
        valid: bool `[n]`; False for repeats of rows, which `even="pad"` and `"split"` make.
        windows: The chunks that are permuted together; None for rows in file order.
        batch_sizes: int64 `[b]`, rows of each batch if `batch_size` is None; else empty.
    """

    index: int
    num_shares: int
    batch_size: int | None
    row_group: Int64Array
    row_begin: Int64Array
    num_rows: Int64Array
    valid: NDArray[np.bool_]
    windows: Windows | None
    batch_sizes: Int64Array

    @property
    def total_rows(self) -> int:
        """The rows that the share delivers, repeats included."""
        return int((self.num_rows if self.windows is None else self.windows.num_rows).sum())

    @property
    def num_steps(self) -> int:
        """The batches that the share delivers."""
        if self.batch_size is None:
            return len(self.batch_sizes)
        return -(-self.total_rows // self.batch_size)

    def rows_of_first(self, num_steps: int) -> int:
        """Return the rows of the first `num_steps` batches, or of all if there are fewer."""
        if self.batch_size is None:
            return int(self.batch_sizes[:num_steps].sum())
        return min(num_steps * self.batch_size, self.total_rows)

    def first(self, num_steps: int) -> Share:
        """Return the share without what follows its first `num_steps` batches."""
        end = self.rows_of_first(num_steps)
        if end == self.total_rows:
            return self
        start = replace(self, batch_sizes=self.batch_sizes[:num_steps])
        if self.windows is None:
            return start._of_chunks(self._ranges().rows(0, end))
        windows = self.windows
        ends = np.cumsum(windows.num_rows)
        stop = int(np.searchsorted(ends, end)) + 1 if end else 0
        left = Windows(
            windows.num_chunks[:stop],
            windows.key[:stop],
            windows.begin[:stop],
            windows.end[:stop].copy(),
        )
        if stop:
            left.end[-1] -= int(ends[stop - 1]) - end
        chunks = self._ranges().pick(slice(0, int(left.num_chunks.sum())))
        return replace(start._of_chunks(chunks), windows=left)

    def after(self, num_steps: int) -> Share:
        """Return the rest of the share after the first `num_steps` batches."""
        if num_steps == 0:
            return self
        begin = self.rows_of_first(num_steps)
        rest = replace(self, batch_sizes=self.batch_sizes[num_steps:])
        if self.windows is None:
            return rest._of_chunks(self._ranges().rows(begin, self.total_rows))
        windows = self.windows
        ends = np.cumsum(windows.num_rows)
        first = int(np.searchsorted(ends, begin, side="right"))
        left = Windows(
            windows.num_chunks[first:],
            windows.key[first:],
            windows.begin[first:].copy(),
            windows.end[first:],
        )
        if first < len(ends):
            left.begin[0] += begin - (int(ends[first]) - int(windows.num_rows[first]))
        first_chunk = int(windows.num_chunks[:first].sum())
        chunks = self._ranges().pick(slice(first_chunk, None))
        return replace(rest._of_chunks(chunks), windows=left)

    def _ranges(self) -> Ranges:
        return Ranges(self.row_group, self.row_begin, self.num_rows, self.valid)

    def _of_chunks(self, chunks: Ranges) -> Share:
        return replace(
            self,
            row_group=chunks.row_group,
            row_begin=chunks.row_begin,
            num_rows=chunks.num_rows,
            valid=chunks.valid,
        )
