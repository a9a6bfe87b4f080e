"""The tokens that language models predict, of packed sequences."""

from __future__ import annotations

import torch
from torch import Tensor

from torchparquet._impl.batches.tensors import Batch


def next_tokens(batch: Batch, column: str, loss_column: str | None) -> tuple[Tensor, Tensor]:
    """Return the token after each one, and where the loss counts it, `[B, L]` each.

    It counts if it is of the same document and sequence, and if `loss_column`, packed in step, is
    true for it.
    """
    tokens, document = batch[column], batch[f"{column}.document"]
    following = torch.roll(tokens, -1, 1)
    counts = torch.roll(document, -1, 1) == document
    counts &= document >= 0
    counts[:, -1] = False
    if loss_column is not None:
        counts &= torch.roll(batch[loss_column], -1, 1) != 0
    return following, counts
