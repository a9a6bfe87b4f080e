"""Pack: documents of any length as sequences of one length, and where documents begin in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchparquet._impl.native import cumulative_lengths, documents_of
from torchparquet.options import Boundaries, Number, Strategy


@dataclass(frozen=True)
class PackedColumn:
    """How one column is packed, as its `Pack` says."""

    strategy: Strategy
    separator: Number | None
    padding: Number
    window: int
    boundaries: Boundaries  # "none" for all columns but the first

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
        marks: uint8 ``[B, L]`` on the host. Bit 0: a token, not padding. Bit 1: the first token of
            a document, or the first of the padding.
    """
    found: list[Any] = []
    if boundaries in ("tokens", "both"):
        found += map(torch.from_numpy, documents_of(marks.numpy()))
    if boundaries in ("cu_seqlens", "both"):
        cu_seqlens = cumulative_lengths(marks.numpy())
        found += [torch.from_numpy(cu_seqlens), int(np.diff(cu_seqlens).max())]
    return found
