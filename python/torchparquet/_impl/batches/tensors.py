"""Slabs, the memory of batches, and how they are cut into named tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from torchparquet._impl.batches.pack import boundaries_of
from torchparquet.errors import ListLengthError
from torchparquet.jagged import Jagged
from torchparquet.options import Boundaries

if TYPE_CHECKING:
    from torchparquet._impl.batches.fields import Field
    from torchparquet._impl.batches.packed_items import ItemTensors
    from torchparquet._impl.native import FieldPlace

# The marks of packed tokens, until they are boundaries.
_MARKS = "<marks>"

# Values are Tensor or Jagged. A union type would make users state which at every use.
Batch: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class _Block:
    """Tensors of one dtype that lie side by side in the slab, evenly spaced.

    Attributes:
        step: The distance from one to the next, in items; it has room for a full batch.
    """

    dtype: torch.dtype
    begin: int
    step: int
    names: tuple[str, ...]
    width: int | None
    num_extra: int = 0


@dataclass(frozen=True)
class _JaggedBlock:
    """A field of variable length: its first offsets, and its row mask, are in the slab.

    Attributes:
        valid_begin: The beginning of the mask, in bytes from the slab's start; -1 for none.
        names: The name of the field, and those of its masks of rows and of values, if any.
    """

    dtype: torch.dtype
    valid_begin: int
    items: int | None
    names: tuple[str, ...]


class BatchViews:
    """Cuts a slab into the tensors of a batch.

    Tensors of one dtype lie side by side and are cut by one call. At thousands of batches a
    second, one call per tensor would cost as much as decoding. The cut is torch's "unsafe" split:
    autograd does not treat the parts as views of one tensor, so changing one in place does not
    invalidate another.
    """

    def __init__(
        self, fields: Sequence[Field], places: Sequence[FieldPlace], capacity_rows: int
    ) -> None:
        """Prepare the cuts."""
        self._capacity_rows = capacity_rows
        self._blocks: list[_Block] = []
        self._jagged: list[_JaggedBlock] = []
        offsets: list[_Block] = []
        placed = zip(fields, places, strict=True)
        for _, group in groupby(placed, key=lambda item: _block_key(item[0])):
            members = list(group)
            if members[0][0].num_offsets:
                self._jagged += [_jagged_block(field, place) for field, place in members]
                offsets.append(_offsets_block(members))
            else:
                self._add_block(members)
        self._boundaries: Boundaries = "none"
        self._boundary_names: tuple[str, ...] = ()
        for field in fields:
            if field.pack is not None and field.has_mask:
                self._boundaries = field.pack.boundaries
                self._boundary_names = field.mask_names
        self._shaped = [field for field in fields if field.shape]
        self._names = [name for block in self._blocks for name in block.names]
        self._blocks += offsets
        # The cuts of a batch of `_cut_rows` rows; all batches but the last have as many.
        self._cut_rows = -1
        self._part_sizes: list[list[int]] = []
        self._lengths: list[int] = []

    @property
    def names(self) -> list[str]:
        """The keys of the batches that `cut` returns, in their order."""
        names = [*self._names, *(name for jagged in self._jagged for name in jagged.names)]
        return [name for name in names if name != _MARKS] + [*self._boundary_names]

    def _add_block(self, placed: list[tuple[Field, FieldPlace]]) -> None:
        field, place = placed[0]
        dtype: torch.dtype = getattr(torch, field.dtype)
        width = field.trailing
        step = _step(placed, dtype) or self._capacity_rows * (width or 1)
        names = tuple(field.name for field, _ in placed)
        begin = place.values_offset // dtype.itemsize
        self._blocks.append(_Block(dtype, begin, step, names, width))
        if field.has_mask:
            cells = field.width or field.length
            step = self._capacity_rows * (cells or 1)
            mask_names = field.mask_names if field.pack is None else (_MARKS,)
            dtype = torch.bool if field.pack is None else torch.uint8
            self._blocks.append(_Block(dtype, place.valid_offset, step, mask_names, cells))

    def cut(self, slab: Tensor, num_rows: int, items: Sequence[ItemTensors] = ()) -> Batch:
        """Return the tensors of a batch."""
        if num_rows != self._cut_rows:
            self._cut_rows = -1  # An exception may come before all sizes are there.
            self._part_sizes = [_part_sizes(block, num_rows) for block in self._blocks]
            self._lengths = [sum(sizes) for sizes in self._part_sizes]
            self._cut_rows = num_rows
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
        num_flat = len(self._names)
        batch: Batch = dict(zip(self._names, tensors[:num_flat], strict=True))
        if self._boundary_names:
            found = boundaries_of(batch.pop(_MARKS), self._boundaries)
            batch.update(zip(self._boundary_names, found, strict=True))
        if self._jagged:
            for jagged, offsets, of_field in zip(
                self._jagged, tensors[num_flat:], items, strict=True
            ):
                batch[jagged.names[0]] = _jagged(jagged, offsets, of_field)
                if len(jagged.names) > 1:
                    _add_masks(jagged, slab, num_rows, of_field, batch)
        for field in self._shaped:
            _shape(field, batch)
        return batch


def _jagged_block(field: Field, place: FieldPlace) -> _JaggedBlock:
    dtype: torch.dtype = getattr(torch, field.dtype)
    names = (field.name, *field.mask_names)
    return _JaggedBlock(dtype, place.valid_offset, field.items, names)


def _offsets_block(placed: list[tuple[Field, FieldPlace]]) -> _Block:
    begin = placed[0][1].values_offset // torch.int64.itemsize
    names = tuple(field.name for field, _ in placed)
    return _Block(torch.int64, begin, _step(placed, torch.int64), names, None, num_extra=1)


def _step(placed: list[tuple[Field, FieldPlace]], dtype: torch.dtype) -> int:
    """Return the distance between fields, in items; 0 if there is one."""
    if len(placed) == 1:
        return 0
    return (placed[1][1].values_offset - placed[0][1].values_offset) // dtype.itemsize


def _jagged(block: _JaggedBlock, offsets: Tensor, items: ItemTensors) -> Jagged:
    inner_offsets, stored, _ = items
    if stored.dtype != block.dtype:
        stored = stored.view(block.dtype)
    if block.items is not None:
        stored = stored.view(-1, block.items)
    values: Tensor | Jagged = stored
    for inner in reversed(inner_offsets):
        values = Jagged(values, inner)
    return Jagged(values, offsets)


def _add_masks(
    block: _JaggedBlock, slab: Tensor, num_rows: int, items: ItemTensors, batch: Batch
) -> None:
    batch[block.names[1]] = slab.view(torch.bool).narrow(0, block.valid_begin, num_rows)
    value_mask = items[2]
    if value_mask is not None:
        batch[block.names[2]] = value_mask.view(torch.bool)


def _shape(field: Field, batch: Batch) -> None:
    """Give the values of a field, and its mask of values, the shape of its rows."""
    if not field.num_offsets:
        for name in (field.name, *field.mask_names):
            batch[name] = _in_order(batch[name].view(-1, *field.shape), field.order)
        return
    lists: Jagged = batch[field.name]
    batch[field.name] = _dense(lists, None, field, field.shape, field.fill)
    if len(field.mask_names) > 1:
        values = field.mask_names[1]
        batch[values] = _dense(lists, batch[values], field, field.shape, False)


def _in_order(values: Tensor, order: tuple[int, ...]) -> Tensor:
    return values.permute(0, *(dimension + 1 for dimension in order)) if order else values


def _dense(
    lists: Jagged, leaves: Tensor | None, field: Field, shape: tuple[int, ...], fill: float
) -> Tensor:
    """Return lists of lists as `[B, *shape]`; null lists, which are empty, are filled."""
    inner = lists.values
    if isinstance(inner, Jagged):
        values = _dense(inner, leaves, field, shape[1:], fill)
    else:
        values = inner if leaves is None else leaves
    lengths = lists.lengths
    full = lengths == shape[0]
    rows = values.view(-1, shape[0], *values.shape[1:]) if full.any() else None
    if rows is not None and len(rows) == len(lengths) and bool(full.all()):
        return rows
    wrong = lengths[~full & (lengths != 0)]
    if len(wrong):
        raise ListLengthError(
            f"list of {int(wrong[0])} is not of the length {shape[0]} that the Arrow schema in the "
            'files says; Column(..., length="any") reads lists of any length: column '
            f"{field.name!r}"
        )
    made = values.new_full((len(lengths), shape[0], *values.shape[1:]), fill)
    if rows is not None:
        made[full] = rows
    return made


def _part_sizes(block: _Block, num_rows: int) -> list[int]:
    """Return the lengths of a block's tensors, and of the gaps between them if there are any."""
    length = (num_rows + block.num_extra) * (block.width or 1)
    if len(block.names) == 1:
        return [length]
    gap = block.step - length
    if gap == 0:
        return [length] * len(block.names)
    return [length, gap] * (len(block.names) - 1) + [length]


def _block_key(field: Field) -> tuple[str, int | None, str]:
    """Return equal keys for fields that one view can cover: those without width or mask."""
    if field.num_offsets:
        return ("offsets", None, field.name if field.nulls == "mask" else "")
    width = field.trailing
    alone = width is not None or field.has_mask
    return (field.dtype, width, field.name if alone else "")


def slab_order(fields: Sequence[Field]) -> list[Field]:
    """Return the fields in the order of the slab, which holds those of a block together."""
    first_of: dict[tuple[str, int | None, str], int] = {}
    for index, field in enumerate(fields):
        first_of.setdefault(_block_key(field), index)
    return sorted(fields, key=lambda field: first_of[_block_key(field)])


def batch_names(fields: Sequence[Field]) -> list[str]:
    """Return the keys of a batch in the user's order, masks after their values."""
    names: list[str] = []
    for field in fields:
        names += [field.name, *field.mask_names]
    return names


class LentSlabs:
    """Slabs that torch allocates and the reader fills, each lent under a number.

    Each slab is used for one batch and then dropped. torch's allocator knows which copies are
    still under way and decides when the memory may be used again.
    """

    def __init__(self, slab_bytes: int, pin_memory: bool) -> None:
        """Prepare to allocate slabs of `slab_bytes` bytes."""
        self._slab_bytes = slab_bytes
        self._pin_memory = pin_memory
        self._lent: dict[int, Tensor] = {}
        self._next_token = 0

    def allocate(self) -> tuple[int, int]:
        """Return the address and the number of a new slab, and hold it until `take`."""
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
