"""Single rows of batches, as dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from torchparquet.batches.batch_rows import element_mask_owner
from torchparquet.batches.fields import Field
from torchparquet.batches.tensors import Batch
from torchparquet.jagged import Jagged

Row: TypeAlias = dict[str, Any]
Texts: TypeAlias = Mapping[str, Literal["str", "bytes"]]

_OF_TEXT = ("string", "enum", "json")


def texts_of(fields: Sequence[Field]) -> dict[str, Literal["str", "bytes"]]:
    """Return which fields are strings, and which are binary, by name; lists of these too."""
    found: dict[str, Literal["str", "bytes"]] = {}
    for field in fields:
        if field.dtype != "uint8" or field.num_offsets == field.has_lists:
            continue
        kind = field.kinds[0][0]
        while kind.startswith("list<"):
            kind = kind[len("list<") : -len(">")]
        if kind.startswith(_OF_TEXT):
            found[field.name] = "str"
        elif kind == "binary":
            found[field.name] = "bytes"
    return found


def split_rows(batch: Batch, texts: Texts) -> list[Row]:
    """Return the rows of a batch.

    Of `[B, ...]` a row has `[...]`, a view; of a Jagged the items of the row: `str` or `bytes`
    where it is text, else `[n, ...]`, a view, or a Jagged; of any other sequence its element.

    Args:
        batch: All values have B rows, see `check_rows`.
        texts: Which of its Jagged hold strings or binary.

    Raises:
        ValueError: A mask of the elements of nested lists or strings in lists is among the
            columns.
        UnicodeDecodeError: A string is no UTF-8.
    """
    columns: list[Sequence[Any]] = []
    for name, value in batch.items():
        owner = element_mask_owner(batch, name)
        if owner is not None:
            columns.append(torch.split(value, owner.lengths.tolist()))
        else:
            columns.append(_split(value, texts.get(name)))
    return [dict(zip(batch, row, strict=True)) for row in zip(*columns, strict=True)]


def _split(value: Any, text: str | None) -> Sequence[Any]:
    if isinstance(value, Tensor):
        return value.unbind()
    if not isinstance(value, Jagged):
        return list(value)
    if text == "str":
        return value.to_str()
    if text == "bytes":
        return value.to_bytes()
    if isinstance(value.values, Jagged):
        return [value.row(index) for index in range(value.num_rows)]
    return torch.split(value.values, value.lengths.tolist())
