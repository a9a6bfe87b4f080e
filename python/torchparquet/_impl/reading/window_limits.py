"""Limits the rows that are permuted together, by the options and footers alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from torchparquet._impl.native import tensor_bytes, window_row_bytes
from torchparquet._impl.plan.plan_options import DEFAULT_WINDOW, Int64Array
from torchparquet._impl.reading.reader_arguments import field_spec

if TYPE_CHECKING:
    from torchparquet._impl.batches.fields import Field


@dataclass
class WindowMemory:
    """The memory that windows need per row, with strings of their likely size, and its bound."""

    tensors: Sequence[Field]
    rows_of_batch: int
    max_memory_bytes: int
    has_orders: bool = False  # given ones, for which all columns are staged

    def __post_init__(self) -> None:
        """Estimate the bytes of a row."""
        specs = [field_spec(field) for field in self.tensors]
        self.bytes_per_row: float = window_row_bytes(specs, self.rows_of_batch, self.has_orders)

    def fits(self, num_rows: int, rows_of_batch: int, part: float) -> bool:
        """Return True if a window, with the batches that it touches at its ends, fits that part."""
        return (num_rows + 2 * rows_of_batch) * self.bytes_per_row <= part * self.max_memory_bytes

    def check_two_batches(self, num_rows: int) -> None:
        """Raise unless two batches fit, since a window of few rows may touch two."""
        specs = [field_spec(field) for field in self.tensors]
        needed = 2 * int(tensor_bytes(specs, num_rows))
        if needed > self.max_memory_bytes:
            raise ValueError(
                f"max_memory must hold at least two batches, {needed} bytes for batches of "
                f"{num_rows} rows; got max_memory={self.max_memory_bytes}"
            )


def window_in_effect(
    requested: tuple[int, int] | None,
    row_group_rows: Int64Array,
    *,
    share_batch_size: int | None,
    memory: WindowMemory,
    num_sharers: int,
) -> tuple[int, int]:
    """Return `(shuffle_window, window_rows)` as `PlanOptions` has them."""
    largest_first = np.sort(row_group_rows)[::-1]
    part = 1.0 / num_sharers
    rows_of_batch = share_batch_size or int(largest_first[0])
    if requested is None:
        # Half of the memory is for the next window, which is decoded while one is consumed.
        if memory.fits(int(largest_first[:DEFAULT_WINDOW].sum()), rows_of_batch, part / 2):
            return DEFAULT_WINDOW, 0
        room = memory.max_memory_bytes * part / 2 / max(memory.bytes_per_row, 1.0)
        return DEFAULT_WINDOW, max(int(room) - 2 * rows_of_batch, rows_of_batch, 1)
    num_chunks, window_rows = requested
    if window_rows:
        rows_of_batch = share_batch_size or min(rows_of_batch, window_rows)
        num_rows = min(window_rows, int(row_group_rows.sum()))
        most = int(part * memory.max_memory_bytes / memory.bytes_per_row)
        # A batch that is a window needs the room of three.
        fitting = max(0, most // 3 if share_batch_size is None else most - 2 * rows_of_batch)
        wanted = f"{window_rows:,} rows"
        instead = f'shuffle_window="{fitting} rows" fits' if fitting else "no window fits"
    elif num_chunks:
        ends = np.cumsum(largest_first[:num_chunks]).tolist()
        num_rows = ends[-1]
        fitting = sum(1 for end in ends if memory.fits(end, rows_of_batch, part))
        wanted = f"{num_chunks} row groups"
        instead = f"shuffle_window={fitting} fits" if fitting else "no whole row group fits"
    else:
        return requested
    if not memory.fits(num_rows, rows_of_batch, part):
        needed_bytes = (num_rows + 2 * rows_of_batch) * memory.bytes_per_row / part
        raise ValueError(
            f"shuffle_window must fit max_memory: {wanted} need about "
            f"{needed_bytes / 2**20:.3g} MiB, max_memory is "
            f"{memory.max_memory_bytes / 2**20:.3g} MiB; {instead}, and None takes what fits"
        )
    return requested
