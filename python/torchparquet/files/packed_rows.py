"""The packed sequences of a data set, which stand for the rows of its row groups."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class PackedRows:
    """The documents of `G` row groups, and the sequences that they are packed into.

    Attributes:
        packing: How they are packed, as text; another packing has another text.
        num_sequences: int64 `[G]`.
        num_tokens: int64 `[G]`, separators included, padding not.
        num_documents: int64 `[G]`, without empty ones.
    """

    packing: str
    num_sequences: NDArray[np.int64]
    num_tokens: NDArray[np.int64]
    num_documents: NDArray[np.int64]

    def digest(self) -> bytes:
        """Return 16 bytes that differ for other sequences."""
        digest = hashlib.blake2b(self.packing.encode(), digest_size=16)
        for array in (self.num_sequences, self.num_tokens, self.num_documents):
            digest.update(array.astype("<i8").tobytes())
        return digest.digest()

    def keep(self, row_groups: NDArray[np.bool_]) -> PackedRows:
        """Return the sequences of the marked row groups alone."""
        return PackedRows(
            self.packing,
            self.num_sequences[row_groups],
            self.num_tokens[row_groups],
            self.num_documents[row_groups],
        )
