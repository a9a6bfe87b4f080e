"""Reading every byte of every batch, for all contenders alike, and proof that they saw the same."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

_WORD_BYTES = 8
_WORD_MASK = (1 << 64) - 1


@dataclass
class PassTotals:
    """What one pass over a file delivered.

    Attributes:
        num_rows: over all batches.
        num_bytes: of all tensors.
        column_sums: sum of each column's bytes as 64-bit words, modulo 2**64. It does not depend
            on where batches end, provided that they end at multiples of 8 rows.
    """

    num_rows: int = 0
    num_bytes: int = 0
    column_sums: dict[str, int] = field(default_factory=dict)


@dataclass
class PassContent:
    """The exact content of one pass, in order; costlier to take than ``PassTotals``.

    Attributes:
        num_rows: over all batches.
        batch_rows: of each batch.
        columns: each column's dtype and the CRC-32 of all its bytes in order of delivery.
    """

    num_rows: int = 0
    batch_rows: list[int] = field(default_factory=list)
    columns: dict[str, tuple[torch.dtype, int]] = field(default_factory=dict)


def _bytes(tensor: torch.Tensor) -> NDArray[np.uint8]:
    return np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8)


def _word_sum(tensor: torch.Tensor) -> int:
    num_bytes = tensor.nbytes
    if num_bytes % _WORD_BYTES == 0 and tensor.ndim == 1 and tensor.is_contiguous():
        return int(np.add.reduce(tensor.numpy().view(np.uint64)))
    content = _bytes(tensor)
    whole = num_bytes // _WORD_BYTES * _WORD_BYTES
    tail = int.from_bytes(content[whole:].tobytes(), "little")
    return int(np.add.reduce(content[:whole].view(np.uint64))) + tail


def consume(batches: Iterable[dict[str, torch.Tensor]]) -> PassTotals:
    """Reads every byte of ``batches`` at about the speed of memory."""
    totals = PassTotals()
    sums = totals.column_sums
    for batch in batches:
        for name, tensor in batch.items():
            sums[name] = sums.get(name, 0) + _word_sum(tensor)
            totals.num_bytes += tensor.nbytes
        totals.num_rows += len(tensor)
    for name in sums:
        sums[name] &= _WORD_MASK
    return totals


def examine(batches: Iterable[dict[str, torch.Tensor]]) -> PassContent:
    """Takes the exact content of ``batches``.

    Raises:
        ValueError: The columns of a batch differ in length, or a column changes its dtype.
    """
    content = PassContent()
    for batch in batches:
        lengths = {len(tensor) for tensor in batch.values()}
        if len(lengths) != 1:
            raise ValueError(f"columns of one batch differ in length: {sorted(lengths)}")
        content.batch_rows.append(lengths.pop())
        for name, tensor in batch.items():
            dtype, crc = content.columns.get(name, (tensor.dtype, 0))
            if dtype != tensor.dtype:
                raise ValueError(f"column {name!r} changes from {dtype} to {tensor.dtype}")
            content.columns[name] = (dtype, zlib.crc32(_bytes(tensor).data, crc))
    content.num_rows = sum(content.batch_rows)
    return content
