"""Pack: documents of any length as sequences of one length, and where documents begin in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchparquet._impl.native import cumulative_lengths, documents_of
from torchparquet.options import Boundaries, Number, Strategy

# Bits of a mark, as the native reader writes them.
_IS_TOKEN, _IS_FIRST = 1, 2


@dataclass(frozen=True)
class PackedColumn:
    """How one column is packed.

    Attributes:
        strategy: That of its `Pack`.
        separator: The value that follows each document; None for none.
        padding: The value of padding.
        window: That of its `Pack`.
        boundaries: The tensors that tell documents; "none" for all columns but the first.
    """

    strategy: Strategy
    separator: Number | None
    padding: Number
    window: int
    boundaries: Boundaries

    @property
    def has_marks(self) -> bool:
        """True if the reader marks the first token of each document."""
        return self.boundaries != "none"

    def names(self, column: str) -> tuple[str, ...]:
        """Return the keys that `boundaries_of` adds to a batch."""
        of_tokens = (f"{column}.document", f"{column}.position")
        of_lengths = ("cu_seqlens", "max_seqlen")
        return {
            "tokens": of_tokens,
            "cu_seqlens": of_lengths,
            "both": of_tokens + of_lengths,
            "none": (),
        }[self.boundaries]


def boundaries_of(marks: Tensor, boundaries: Boundaries) -> list[Any]:
    """Return what a batch says of documents, in the order of `PackedColumn.names`.

    Args:
        marks: uint8 ``[B, L]``. Bit 0: a token, not padding. Bit 1: the first token of a document,
            or the first of the padding.
        boundaries: The wanted ones.
    """
    on_cpu = marks.device.type == "cpu"
    return _on_cpu(marks, boundaries) if on_cpu else boundaries_by_torch(marks, boundaries)


def boundaries_by_torch(marks: Tensor, boundaries: Boundaries) -> list[Any]:
    """Return the same, by operators that devices have."""
    first = marks.bitwise_and(_IS_FIRST).ne_(0).view(torch.bool)
    found: list[Any] = []
    if boundaries in ("tokens", "both"):
        found += _of_tokens(marks, first)
    if boundaries in ("cu_seqlens", "both"):
        starts = first.view(-1).nonzero().view(-1).to(torch.int32)
        end = torch.full((1,), first.numel(), dtype=torch.int32, device=marks.device)
        cu_seqlens = torch.cat((starts, end))
        found += [cu_seqlens, int(cu_seqlens.diff().max()) if len(starts) else 0]
    return found


def _on_cpu(marks: Tensor, boundaries: Boundaries) -> list[Any]:
    """Return the same, in a tenth of the time that torch's operators take here."""
    found: list[Any] = []
    if boundaries in ("tokens", "both"):
        found += map(torch.from_numpy, documents_of(marks.numpy()))
    if boundaries in ("cu_seqlens", "both"):
        cu_seqlens = cumulative_lengths(marks.numpy())
        found += [torch.from_numpy(cu_seqlens), int(np.diff(cu_seqlens).max())]
    return found


def _of_tokens(marks: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """Return the document and the position of each token."""
    document = first.cumsum(1, dtype=torch.int32).sub_(1)
    document.masked_fill_(marks.bitwise_and(_IS_TOKEN).eq(0), -1)
    place = torch.arange(marks.shape[1], dtype=torch.int32, device=marks.device)
    begin = torch.where(first, place, 0).cummax(1).values
    return document, place - begin
