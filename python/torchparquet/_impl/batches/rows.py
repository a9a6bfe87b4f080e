"""Single rows of batches, as dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from torchparquet._impl.batches.batch_rows import element_mask_owner, is_of_batch
from torchparquet._impl.batches.fields import Field
from torchparquet._impl.batches.tensors import Batch
from torchparquet.jagged import Jagged

Row: TypeAlias = dict[str, Any]
Texts: TypeAlias = Mapping[str, Literal["str", "bytes"]]

_OF_TEXT = ("string", "enum", "json")


def texts_of(fields: Sequence[Field]) -> dict[str, Literal["str", "bytes"]]:
    """Return, by name, which fields are strings or binary, or lists of these."""
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

    A row has a view `[...]` of a tensor `[B, ...]`. Of a Jagged it has the row's items: `str` or
    `bytes` for text, else a view `[n, ...]` or a Jagged. Of any other sequence it has the element.

    Raises:
        ValueError: A column is the mask of elements of nested lists or of strings in lists, or
            the lengths of packed documents.
    """
    columns: list[Sequence[Any]] = []
    for name, value in batch.items():
        if is_of_batch(batch, name):
            raise ValueError(
                f"rows one by one cannot have {name!r}, which is of a batch; take "
                'Pack(..., boundaries="tokens")'
            )
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
        return list(value)
    return torch.split(value.values, value.lengths.tolist())
