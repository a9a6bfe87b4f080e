"""From the memory of a batch to named tensors, and the memory itself where it is pinned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torchparquet.columns import Field
    from torchparquet.reader import FieldPlace

_VALID_SUFFIX = ".valid"


@dataclass(frozen=True)
class _Block:
    """Tensors of one dtype that lie side by side in the slab, evenly spaced.

    Attributes:
        dtype: Of all of them.
        begin: Of the first, in items from the slab's start.
        step: From one to the next, in items; room for a full batch.
        names: Of the tensors.
        width: None for `[B]` tensors, F for `[B, F]`, n for `[B, n]`.
    """

    dtype: torch.dtype
    begin: int
    step: int
    names: tuple[str, ...]
    width: int | None


class BatchViews:
    """Cuts a slab into the tensors of a batch.

    Tensors of one dtype lie side by side and are cut by one call, because at thousands of
    batches a second a call for each costs as much as decoding. It is the "unsafe" split, whose
    parts are tensors in their own right: autograd does not take them for views of one tensor, so
    changing one in place is not held against another.
    """

    def __init__(
        self, fields: Sequence[Field], places: Sequence[FieldPlace], capacity_rows: int
    ) -> None:
        """Prepare the cuts.

        Args:
            fields: In slab order, as `slab_order` gives it.
            places: Of each field within the slab, in bytes.
            capacity_rows: Rows for which the slab has room.
        """
        self._capacity_rows = capacity_rows
        self._blocks: list[_Block] = []
        placed = zip(fields, places, strict=True)
        for _, group in groupby(placed, key=lambda item: _block_key(item[0])):
            self._add_block(list(group))
        self._names = [name for block in self._blocks for name in block.names]
        # How to cut a batch of `_cut_rows` rows, which all batches but the last have.
        self._cut_rows = -1
        self._part_sizes: list[list[int]] = []
        self._lengths: list[int] = []

    def _add_block(self, placed: list[tuple[Field, FieldPlace]]) -> None:
        field, place = placed[0]
        dtype: torch.dtype = getattr(torch, field.dtype)
        width = field.width or field.items
        step = self._capacity_rows * (width or 1)
        if len(placed) > 1:
            step = (placed[1][1].values_offset - place.values_offset) // dtype.itemsize
        names = tuple(field.name for field, _ in placed)
        begin = place.values_offset // dtype.itemsize
        self._blocks.append(_Block(dtype, begin, step, names, width))
        if field.nulls == "mask":
            names = (field.name + _VALID_SUFFIX,)
            cells = self._capacity_rows * (field.width or 1)
            block = _Block(torch.bool, place.valid_offset, cells, names, field.width)
            self._blocks.append(block)

    def cut(self, slab: Tensor, num_rows: int) -> dict[str, Tensor]:
        """Return the tensors of a batch of `num_rows` rows; all share the slab's storage."""
        if num_rows != self._cut_rows:
            self._cut_rows = num_rows
            self._part_sizes = [_part_sizes(block, num_rows) for block in self._blocks]
            self._lengths = [sum(sizes) for sizes in self._part_sizes]
        tensors: list[Tensor] = []
        bases: dict[torch.dtype, Tensor] = {}
        for block, sizes, length in zip(self._blocks, self._part_sizes, self._lengths, strict=True):
            base = bases.get(block.dtype)
            if base is None:
                base = bases[block.dtype] = slab.view(block.dtype)
            run = base.narrow(0, block.begin, length)
            parts: Sequence[Tensor] = run.unsafe_split_with_sizes(sizes)
            if len(parts) > len(block.names):
                parts = parts[::2]
            if block.width is not None:
                parts = [part.view(num_rows, block.width) for part in parts]
            tensors.extend(parts)
        return dict(zip(self._names, tensors, strict=True))


def _part_sizes(block: _Block, num_rows: int) -> list[int]:
    """Return the lengths of a block's tensors, with the gaps between them where there are any."""
    length = num_rows * (block.width or 1)
    gap = block.step - length
    if gap == 0:
        return [length] * len(block.names)
    return [length, gap] * (len(block.names) - 1) + [length]


def _block_key(field: Field) -> tuple[str, int | None, str]:
    """Return equal keys for fields that one view can cover: those without width and mask."""
    width = field.width or field.items
    alone = width is not None or field.nulls == "mask"
    return (field.dtype, width, field.name if alone else "")


def slab_order(fields: Sequence[Field]) -> list[Field]:
    """Return the fields in the order in which a slab holds them: those of a block together."""
    first_of: dict[tuple[str, int | None, str], int] = {}
    for index, field in enumerate(fields):
        first_of.setdefault(_block_key(field), index)
    return sorted(fields, key=lambda field: first_of[_block_key(field)])


def batch_names(fields: Sequence[Field]) -> list[str]:
    """Return the keys of a batch in the order that the user gave, masks behind their values."""
    names: list[str] = []
    for field in fields:
        names.append(field.name)
        if field.nulls == "mask":
            names.append(field.name + _VALID_SUFFIX)
    return names


class LentSlabs:
    """Slabs that torch allocates and the reader fills, by the number they are lent under.

    Each is used for one batch and then dropped, so that torch's own allocator, which knows
    the copies still under way, decides when its memory may be used again.
    """

    def __init__(self, slab_bytes: int, pin_memory: bool) -> None:
        """Prepare to allocate slabs of `slab_bytes` bytes."""
        self._slab_bytes = slab_bytes
        self._pin_memory = pin_memory
        self._lent: dict[int, Tensor] = {}
        self._next_token = 0

    def allocate(self) -> tuple[int, int]:
        """Return the address and the number of a new slab, which is kept until taken."""
        slab = torch.empty(self._slab_bytes, dtype=torch.uint8, pin_memory=self._pin_memory)
        token = self._next_token
        self._next_token += 1
        self._lent[token] = slab
        return slab.data_ptr(), token

    def take(self, token: int) -> Tensor:
        """Return the slab of that number, uint8 `[slab_bytes]`, and forget it."""
        return self._lent.pop(token)

    def clear(self) -> None:
        """Forget all slabs. The reader must have been stopped."""
        self._lent.clear()
