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
    """Fields whose tensors are cut from the slab in one go.

    Attributes:
        dtype: Of all of them.
        offset: Of the first value, in items from the slab's start.
        shape: Of the view over all fields, for a full batch; the batch dimension is second.
        stride: Of that view, in items.
    """

    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class BatchViews:
    """Cuts a slab into the tensors of a batch.

    Fields of one dtype lie side by side and are cut by one call, because at thousands of
    batches a second a call per tensor costs as much as decoding.
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
        self._blocks: list[_Block] = []
        self._names: list[str] = []
        self._dtypes = sorted({field.dtype for field in fields} | {"bool"})
        placed = list(zip(fields, places, strict=True))
        for _, group in groupby(placed, key=lambda item: _block_key(item[0])):
            self._add_block(list(group), capacity_rows)
        self._bases = {name: getattr(torch, name) for name in self._dtypes}

    def _add_block(self, placed: list[tuple[Field, FieldPlace]], capacity_rows: int) -> None:
        first, place = placed[0]
        dtype: torch.dtype = getattr(torch, first.dtype)
        width = first.width or 1
        step_bytes = placed[1][1].values_offset - place.values_offset if len(placed) > 1 else 0
        inner_shape = () if first.width is None else (width,)
        inner_stride = (1,) if first.width is None else (width, 1)
        self._blocks.append(
            _Block(
                dtype,
                place.values_offset // dtype.itemsize,
                (len(placed), capacity_rows, *inner_shape),
                (step_bytes // dtype.itemsize, *inner_stride),
            )
        )
        self._names.extend(field.name for field, _ in placed)
        if first.nulls == "mask":
            shape = (1, capacity_rows, *inner_shape)
            self._blocks.append(_Block(torch.bool, place.valid_offset, shape, (0, *inner_stride)))
            self._names.append(first.name + _VALID_SUFFIX)

    def cut(self, slab: Tensor, num_rows: int) -> dict[str, Tensor]:
        """Return the tensors of a batch of `num_rows` rows; all share the slab's storage."""
        tensors: list[Tensor] = []
        bases: dict[torch.dtype, Tensor] = {}
        for block in self._blocks:
            base = bases.get(block.dtype)
            if base is None:
                base = bases[block.dtype] = slab.view(block.dtype)
            count, _, *inner = block.shape
            view = base.as_strided((count, num_rows, *inner), block.stride, block.offset)
            tensors.extend(view.unbind(0))
        return dict(zip(self._names, tensors, strict=True))


def _block_key(field: Field) -> tuple[str, int | None, str]:
    """Return equal keys for fields that one view can cover: those without width and mask."""
    alone = field.width is not None or field.nulls == "mask"
    return (field.dtype, field.width, field.name if alone else "")


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
