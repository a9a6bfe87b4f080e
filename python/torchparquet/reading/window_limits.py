"""How many rows may be permuted together: a function of the options and footers alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from torchparquet.native import FIELD_ALIGNMENT, LEAST_STAGED_COLUMNS, WINDOW_ROW_BYTES, are_staged
from torchparquet.plan.plan_options import Int64Array

if TYPE_CHECKING:
    from torchparquet.batches.fields import Field

DEFAULT_WINDOW = 8


def window_memory(
    fields: Sequence[Field],
    rows_of_batch: int,
    max_memory_bytes: int,
    *,
    row_ids: bool,
    row_valid: bool,
) -> WindowMemory:
    """Return what rows of windows take, of strings and lists what is likely, and have room in.

    A row stands in a batch; beside that are its place, and the columns that are being put in order.

    Args:
        fields: The tensors of a batch.
        rows_of_batch: Each tensor of a batch is aligned, which tells in small ones.
        max_memory_bytes: Bound of the memory of batches in flight.
        row_ids: Whether there is a tensor of row numbers.
        row_valid: Whether there is one that marks repeats.
    """
    sizes = [8] * row_ids + [1] * row_valid
    likely = 0.0
    staged = [float(size) for size in sizes]
    for field in fields:
        mask = field.nulls == "mask"
        if field.num_offsets:
            sizes += [8] + [1] * mask
            likely += field.row_bytes
            staged.append(8 + field.row_bytes + mask)
            continue
        num_columns, length = field.width or 1, field.length or 1
        cell = length * (field.items or 1) * getattr(torch, field.dtype).itemsize
        sizes += [num_columns * cell] + [num_columns * length] * mask
        if are_staged(cell):
            staged += [cell + mask * length] * num_columns
    most_staged = sum(sorted(staged)[-LEAST_STAGED_COLUMNS:])
    in_batch = likely + _aligned(rows_of_batch + 1, sizes) / rows_of_batch
    return WindowMemory(in_batch + most_staged + WINDOW_ROW_BYTES, tuple(sizes), max_memory_bytes)


def _aligned(num_rows: int, sizes: Sequence[int]) -> int:
    return sum(-(-num_rows * size // FIELD_ALIGNMENT) * FIELD_ALIGNMENT for size in sizes)


@dataclass(frozen=True)
class WindowMemory:
    """What windows have room in.

    Attributes:
        bytes_per_row: What a row of a window takes.
        tensor_bytes: What a row takes in each tensor of a batch, without what strings and lists
            have beside it.
        max_memory_bytes: Bound of the memory of batches in flight.
    """

    bytes_per_row: float
    tensor_bytes: tuple[int, ...]
    max_memory_bytes: int

    def fits(self, num_rows: int, rows_of_batch: int, part: float) -> bool:
        """Whether a window, and the batches that it only touches at its ends, fit that part."""
        return (num_rows + 2 * rows_of_batch) * self.bytes_per_row <= part * self.max_memory_bytes

    def check_two_batches(self, num_rows: int) -> None:
        """Make sure that two batches fit, which a window of few rows may touch.

        Raises:
            ValueError: They do not.
        """
        needed = 2 * _aligned(num_rows, self.tensor_bytes)
        if needed > self.max_memory_bytes:
            raise ValueError(
                f"max_memory must hold at least two batches, {needed} bytes for batches of "
                f"{num_rows} rows: {self.max_memory_bytes} bytes"
            )


def window_in_effect(
    requested: int | None,
    row_group_rows: Int64Array,
    *,
    share_batch_size: int | None,
    memory: WindowMemory,
    num_sharers: int,
) -> tuple[int, int]:
    """Return `(shuffle_window, window_rows)` as `PlanOptions` has them.

    Without a request a window is of 8 chunks, or of as many as half of the memory holds, so that
    the next one is decoded while one is consumed; of part of a row group where even that is too
    much.

    Args:
        requested: The user's `shuffle_window`; None for the default.
        row_group_rows: int64 `[G]`, rows of each row group.
        share_batch_size: Rows that a share gives to a batch; None for one batch per chunk.
        memory: What there is room in.
        num_sharers: How many windows share it: those of DataLoader workers, or of shares that
            are read side by side.

    Raises:
        ValueError: The window asked for does not fit the memory.
    """
    largest_first = np.sort(row_group_rows)[::-1]
    rows_of_batch = share_batch_size or int(largest_first[0])
    part = 1.0 / num_sharers
    if requested is not None:
        num_rows = int(largest_first[:requested].sum())
        if requested and not memory.fits(num_rows, rows_of_batch, part):
            _raise_too_large(requested, largest_first, rows_of_batch, memory, part)
        return requested, 0
    if memory.fits(int(largest_first[:DEFAULT_WINDOW].sum()), rows_of_batch, part / 2):
        return DEFAULT_WINDOW, 0
    room = memory.max_memory_bytes * part / 2 / max(memory.bytes_per_row, 1.0)
    return DEFAULT_WINDOW, max(int(room) - 2 * rows_of_batch, rows_of_batch, 1)


def _raise_too_large(
    requested: int,
    largest_first: Int64Array,
    rows_of_batch: int,
    memory: WindowMemory,
    part: float,
) -> None:
    ends = np.cumsum(largest_first[:requested]).tolist()
    fitting = sum(1 for end in ends if memory.fits(end, rows_of_batch, part))
    instead = f"shuffle_window={fitting} fits" if fitting else "no whole row group fits"
    needed = (ends[-1] + 2 * rows_of_batch) * memory.bytes_per_row / part
    raise ValueError(
        f"shuffle_window must fit max_memory: {requested} row groups need about "
        f"{needed / 2**20:.3g} MiB, max_memory is {memory.max_memory_bytes / 2**20:.3g} MiB; "
        f"{instead}, and None takes what fits"
    )
