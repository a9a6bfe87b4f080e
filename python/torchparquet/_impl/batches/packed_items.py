"""The items of a batch's fields of variable length, which lie outside its slab."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    # Offsets of all lists but the outermost, the values, and their mask or None.
    Items: TypeAlias = tuple[list[NDArray[np.int64]], NDArray[np.generic], NDArray[np.bool_] | None]

# The same as tensors: offsets int64 [lists + 1], values [values] or their bytes, and the mask,
# bool or uint8 [values].
ItemTensors: TypeAlias = tuple[list[Tensor], Tensor, Tensor | None]

_ALIGNMENT_BYTES = 64


def in_own_memory(items: Sequence[Items]) -> list[ItemTensors]:
    """Return the items of each field as tensors that share the decoded memory."""
    return [
        (
            [torch.from_numpy(offsets) for offsets in inner_offsets],
            torch.from_numpy(values),
            None if value_mask is None else torch.from_numpy(value_mask),
        )
        for inner_offsets, values, value_mask in items
    ]


class PackedItems:
    """The items of all fields of a batch in one piece of memory, which one copy can move."""

    def __init__(self, items: Sequence[Items], pin_memory: bool) -> None:
        """Copy the items to memory of torch, page-locked if `pin_memory`."""
        self._forms = [(len(inner_offsets), mask is not None) for inner_offsets, _, mask in items]
        arrays = [array.view("u1") for of_field in items for array in _arrays(of_field)]
        self._num_bytes = [array.nbytes for array in arrays]
        padded = (-(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES for size in self._num_bytes)
        *self._begins, total = accumulate(padded, initial=0)
        self.memory = torch.empty(total, dtype=torch.uint8, pin_memory=pin_memory)
        into = self.memory.numpy()
        for begin, array in zip(self._begins, arrays, strict=True):
            into[begin : begin + array.nbytes] = array

    def tensors_in(self, memory: Tensor) -> list[ItemTensors]:
        """Return the items of each field in `memory`, which is `self.memory` or a copy of it."""
        parts = iter(zip(self._begins, self._num_bytes, strict=True))
        flat = (memory.narrow(0, begin, size) for begin, size in parts)
        return [
            (
                [next(flat).view(torch.int64) for _ in range(num_offsets)],
                next(flat),
                next(flat) if has_mask else None,
            )
            for num_offsets, has_mask in self._forms
        ]


def _arrays(items: Items) -> Iterator[NDArray[np.generic]]:
    inner_offsets, values, value_mask = items
    yield from inner_offsets
    yield values
    if value_mask is not None:
        yield value_mask
