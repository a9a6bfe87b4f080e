"""The rows of a data set, where these are not all rows of its row groups, or what they become."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Unit = Literal["sequence", "batch"]

_ALL, _RUNS, _BITS = 0, 1, 2
_WORD_ROWS = 64
# Begins and ends of runs have 32 bits.
MAX_ROWS = 2**32


@dataclass(frozen=True, eq=False)
class RowSelection:
    """The selected rows of `G` row groups, each kept as runs or as bits, whichever is smaller.

    Attributes:
        begin: int64 `[G + 1]`, where the words of each row group begin, and the last ones end.
        words: uint64. A run is one word: its first row in the low half, the row after its last
            in the high half. Bits are 64 rows a word, the first row lowest.
    """

    form: NDArray[np.uint8]
    begin: NDArray[np.int64]
    words: NDArray[np.uint64]
    num_rows: NDArray[np.int64]

    @classmethod
    def of_masks(cls, masks: Iterable[NDArray[np.bool_]]) -> RowSelection:
        """Return the selection of the rows that a mask of each row group marks."""
        forms, parts, counts = [], [], []
        for mask in masks:
            form, words = _packed(mask)
            forms.append(form)
            parts.append(words)
            counts.append(np.count_nonzero(mask))
        ends = np.cumsum([0, *(len(words) for words in parts)], dtype=np.int64)
        return cls(
            np.array(forms, np.uint8),
            ends,
            np.concatenate([np.zeros(0, np.uint64), *parts]),
            np.array(counts, np.int64),
        )

    @property
    def is_all(self) -> bool:
        """True if every row is selected."""
        return not self.form.any()

    def digest(self) -> bytes:
        """Return 16 bytes that differ for other rows."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.form, self.begin, self.words):
            digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
        return digest.digest()

    def keep(self, row_groups: NDArray[np.bool_]) -> RowSelection:
        """Return the selection of the marked row groups alone."""
        sizes = np.diff(self.begin)
        return RowSelection(
            self.form[row_groups],
            np.concatenate([[0], np.cumsum(sizes[row_groups])]),
            self.words[np.repeat(row_groups, sizes)],
            self.num_rows[row_groups],
        )

    def stored_rows(self, row_group: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers, in their row group, of rows that are counted among the selected."""
        words = self.words[self.begin[row_group] : self.begin[row_group + 1]]
        form = self.form[row_group]
        if form == _ALL:
            return rows
        if form == _BITS:
            bits = np.unpackbits(words.view(np.uint8), bitorder="little")
            return np.flatnonzero(bits)[rows]
        bounds = words.view(np.uint32).astype(np.int64).reshape(-1, 2)
        ends = np.cumsum(bounds[:, 1] - bounds[:, 0])
        run = np.searchsorted(ends, rows, side="right")
        stored: NDArray[np.int64] = bounds[run, 1] - (ends[run] - rows)
        return stored

    def mask(self, row_group: int, stored_rows: int) -> NDArray[np.bool_]:
        """Return a bool for each of the row group's `stored_rows` rows."""
        mask = np.zeros(stored_rows, bool)
        mask[self.stored_rows(row_group, np.arange(self.num_rows[row_group]))] = True
        return mask


@dataclass(frozen=True, eq=False)
class PackedRows:
    """The packed sequences, or batches of similar length, that rows of `G` row groups become.

    Attributes:
        num_tokens: int64 `[G]`, items of lists, separators included, padding not.
        num_places: int64 `[G]`, entries of the tensors that tokens and padding fill.
    """

    unit: Unit
    rules: str
    num_units: NDArray[np.int64]
    num_tokens: NDArray[np.int64]
    num_places: NDArray[np.int64]
    num_documents: NDArray[np.int64]

    def digest(self) -> bytes:
        """Return 16 bytes that differ for other units."""
        digest = hashlib.blake2b(self.rules.encode(), digest_size=16)
        for array in self._arrays():
            digest.update(array.astype("<i8").tobytes())
        return digest.digest()

    def keep(self, row_groups: NDArray[np.bool_]) -> PackedRows:
        """Return what the marked row groups alone become."""
        return PackedRows(self.unit, self.rules, *(array[row_groups] for array in self._arrays()))

    def _arrays(self) -> list[NDArray[np.int64]]:
        return [self.num_units, self.num_tokens, self.num_places, self.num_documents]


def _packed(mask: NDArray[np.bool_]) -> tuple[int, NDArray[np.uint64]]:
    """Return the form and the words of the marked rows."""
    if len(mask) >= MAX_ROWS:
        raise ValueError(f"no rows can be selected in a row group of 2**32 or more: {len(mask)}")
    if mask.all():
        return _ALL, np.zeros(0, np.uint64)
    edges = np.flatnonzero(np.diff(mask, prepend=False, append=False))
    if len(edges) // 2 <= -(-len(mask) // _WORD_ROWS):
        return _RUNS, edges.astype("<u4").view(np.uint64)
    padded = np.zeros(-(-len(mask) // _WORD_ROWS) * 8, np.uint8)
    bits = np.packbits(mask, bitorder="little")
    padded[: len(bits)] = bits
    return _BITS, padded.view(np.uint64)
