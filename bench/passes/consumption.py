"""Reading every byte of every batch, for all contenders alike, and proof that they saw the same."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_SOURCE = Path(__file__).resolve().with_name("read_every_byte.c")
_WORD_MASK = (1 << 64) - 1
_num_bytes = attrgetter("nbytes")


@dataclass
class PassTotals:
    """The totals of one pass over a file.

    Attributes:
        num_rows: over all batches.
        num_bytes: of all tensors.
        column_sums: sum of each column's bytes as 64-bit words, modulo 2**64. It does not depend
            on where batches end, provided that they end at multiples of 8 rows.
    """

    num_rows: int = 0
    num_bytes: int = 0
    column_sums: dict[str, int] = field(default_factory=dict)


def multiply(num_rounds: int) -> None:
    """Keeps one core busy with arithmetic alone, about 3 ns a round, without the GIL."""
    function = _compiled().multiply
    function.argtypes, function.restype = [ctypes.c_uint64], ctypes.c_uint64
    function(num_rounds)


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


@functools.cache
def _compiled() -> ctypes.CDLL:
    """Compiles read_every_byte.c for this machine and loads it."""
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory, "read_every_byte.so")
        compiler = os.environ.get("CC", "cc").split()
        flags = ["-O3", "-march=native", "-shared", "-fPIC"]
        subprocess.run([*compiler, *flags, "-o", str(library), str(_SOURCE)], check=True)
        # CDLL releases the GIL during calls, so other threads go on meanwhile.
        return ctypes.CDLL(str(library))


@functools.cache
def _add_words() -> Callable[..., None]:
    function = _compiled().add_words
    words = ctypes.POINTER(ctypes.c_uint64)
    function.argtypes = [ctypes.c_uint64, words, words, words]
    function.restype = None
    return function


class _ColumnSums:
    """Running sums of the columns called ``names``, with the arrays that C code fills them by."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        array = ctypes.c_uint64 * len(names)
        self._addresses, self._sizes, self._sums = array(), array(), array()
        self._add_words = _add_words()

    def add(self, tensors: list[torch.Tensor]) -> int:
        """Reads all of ``tensors``, one per column; returns how many bytes they have."""
        if not all(map(torch.Tensor.is_contiguous, tensors)):
            tensors = [tensor.contiguous() for tensor in tensors]
        sizes = list(map(_num_bytes, tensors))
        self._addresses[:] = list(map(torch.Tensor.data_ptr, tensors))
        self._sizes[:] = sizes
        self._add_words(len(sizes), self._addresses, self._sizes, self._sums)
        return sum(sizes)

    def add_to(self, totals: dict[str, int]) -> None:
        """Adds the sums to those in ``totals``, modulo 2**64."""
        for name, value in zip(self.names, self._sums, strict=True):
            totals[name] = (totals.get(name, 0) + value) & _WORD_MASK


def consume(batches: Any) -> PassTotals:
    """Reads every byte of ``batches`` at about the speed of memory.

    The first call compiles the code that does so, even if there are no batches.
    """
    totals = PassTotals()
    sums = _ColumnSums([])
    for batch in batches:
        names = list(batch)
        if names != sums.names:
            sums.add_to(totals.column_sums)
            sums = _ColumnSums(names)
        tensors = list(batch.values())
        totals.num_bytes += sums.add(tensors)
        totals.num_rows += len(tensors[0])
    sums.add_to(totals.column_sums)
    return totals


def count(batches: Iterable[dict[str, torch.Tensor]]) -> PassTotals:
    """Counts the rows of ``batches`` and reads none of their data."""
    totals = PassTotals()
    for batch in batches:
        totals.num_rows += len(next(iter(batch.values())))
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
