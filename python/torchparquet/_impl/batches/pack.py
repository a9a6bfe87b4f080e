"""Pack: documents of any length as sequences of one length, and where documents begin in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from torchparquet._impl.batches.column import checked_names
from torchparquet._impl.checks import checked_int, plain_number
from torchparquet._impl.native import cumulative_lengths, documents_of

Strategy = Literal["concat", "split", "best_fit"]
Boundaries = Literal["tokens", "cu_seqlens", "both", "none"]

_Number = int | float | bool
_NUMBERS = (int, float)  # bool is an int
# Bits of a mark, as the native reader writes them.
_IS_TOKEN, _IS_FIRST = 1, 2


@dataclass(frozen=True)
class Pack:
    """How lists of any length, the documents, become sequences of one length.

    Each row group is packed by itself, in file order, so its last sequence may have padding. A row
    of the data set is then a sequence: `batch_size`, lengths, shares, shuffle windows and states
    count sequences. Every token is in one sequence. Empty documents add nothing.

    Attributes:
        columns: The list column to pack, or several that are packed alike, such as tokens and the
            mask of their loss. In each row their lists must have the same length. They are names
            of `columns=`, if that is given.
        length: L, the tokens of a sequence. Each column becomes a tensor ``[B, L]``.
        strategy: ``"concat"``: one document after the other; a document that does not fit
            continues in the next sequence. ``"split"``: a document that does not fit starts the
            next sequence. ``"best_fit"``: the documents of a window are placed where they leave
            the least space, longest first. In the last two, only documents longer than L are cut,
            and padding fills the rest.
        separator: A value that follows each document, such as the tokenizer's end of text. It is
            the last token of its document. A number for the first column, with 0 for the others,
            or a dict from column to number. None for no separator.
        padding: The value of padding: a number for all columns, or a dict from column to number.
        window: The number of consecutive documents of a row group that ``"best_fit"`` places
            together, or fewer if they have 4 million tokens. Each decode thread holds one window.
        boundaries: The tensors that mark the documents of the first column. The rest of a document
            in another sequence counts as another document.

            - ``"tokens"``: ``"<column>.document"``, int32 ``[B, L]``, the number of a token's
              document in its sequence, -1 for padding. ``"<column>.position"``, int32 ``[B, L]``,
              the token's place in its document, from 0.
            - ``"cu_seqlens"``: for kernels of attention over variable lengths, which take a batch
              as one row of ``B * L`` tokens. ``"cu_seqlens"``, int32 ``[N + 1]``, where the N
              documents begin, and the end. ``"max_seqlen"``, an int, the longest length. Padding
              counts as a document.
            - ``"both"``, or ``"none"``.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: An argument is out of its range.
    """

    columns: str | Sequence[str]
    length: int
    strategy: Strategy = "concat"
    separator: _Number | Mapping[str, _Number] | None = None
    padding: _Number | Mapping[str, _Number] = 0
    window: int = 16_384
    boundaries: Boundaries = "tokens"

    def __post_init__(self) -> None:
        """Check the arguments and give them one form."""
        if not isinstance(self.columns, str):
            object.__setattr__(self, "columns", checked_names(self.columns, "columns of Pack"))
        elif not self.columns:
            raise ValueError(f"columns of Pack must not be empty; got {self.columns!r}")
        for name, least, end in (("length", 1, 2**31), ("window", 1, 2**31)):
            object.__setattr__(self, name, checked_int(name, getattr(self, name), least, end))
        for name, words in (("strategy", Strategy), ("boundaries", Boundaries)):
            if getattr(self, name) not in get_args(words):
                known = ", ".join(f'"{word}"' for word in get_args(words))
                raise ValueError(f"{name} must be one of {known}; got {getattr(self, name)!r}")
        if self.separator is not None:
            first, *others = self.names
            given = self._by_column("separator", {first: self.separator} | dict.fromkeys(others, 0))
            object.__setattr__(self, "separator", given)
        given = self._by_column("padding", dict.fromkeys(self.names, self.padding))
        object.__setattr__(self, "padding", given)

    @property
    def names(self) -> tuple[str, ...]:
        """The packed columns, one or more."""
        return (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)

    def separator_of(self, column: str) -> _Number | None:
        """Return the value that follows each document in a column; None for none."""
        return None if self.separator is None else dict(self.separator)[column]  # type: ignore[arg-type]

    def padding_of(self, column: str) -> _Number:
        """Return the value of padding in a column."""
        return dict(self.padding)[column]  # type: ignore[arg-type]

    def _by_column(
        self, argument: str, of_number: Mapping[str, Any]
    ) -> tuple[tuple[str, _Number], ...]:
        """Return the values of an argument, column by column."""
        given = getattr(self, argument)
        if isinstance(given, tuple):
            given = dict(given)
        values = {**given} if isinstance(given, Mapping) else {**of_number}
        unknown = [name for name in values if name not in self.names]
        missing = [name for name in self.names if name not in values]
        if unknown or missing:
            raise ValueError(
                f"{argument} must have a number for each packed column, {list(self.names)}; got "
                f"{given!r}"
            )
        values = {name: plain_number(value) for name, value in values.items()}
        for value in values.values():
            if not isinstance(value, _NUMBERS):
                raise TypeError(f"{argument} must be a number or a dict of numbers; got {given!r}")
        return tuple((name, values[name]) for name in self.names)


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
    separator: _Number | None
    padding: _Number
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
