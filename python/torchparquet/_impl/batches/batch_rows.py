"""Slicing and joining batches by rows, and single rows as dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from itertools import chain
from typing import Any, Literal, TypeAlias, cast

import torch
from torch import Tensor

from torchparquet._impl.batches.fields import Field
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.checks import shortened
from torchparquet.errors import SchemaMismatchError
from torchparquet.jagged import Jagged
from torchparquet.keyed_jagged import KeyedJagged

Row: TypeAlias = dict[str, Any]
Texts: TypeAlias = Mapping[str, Literal["str", "bytes"]]

_OF_TEXT = ("string", "enum", "json")
ELEMENT_MASK = ".values.valid"  # after the name of the lists whose values it masks
_GATHERED_AS = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
# The lengths of documents in packed sequences, which are not row by row.
_ENDS, _LONGEST, _LENGTHS = "cu_seqlens", "max_seqlen", "seqlens"


def num_rows_of(batch: Batch) -> int:
    """Return the number of rows of a batch, B."""
    return len(next(value for name, value in batch.items() if not is_of_batch(batch, name)))


def check_rows(batch: Batch, num_rows: int | None) -> None:
    """Check that a user's functions kept the number of rows of a batch."""
    if num_rows is None:
        return
    for name, value in batch.items():
        if element_mask_owner(batch, name) is not None or is_of_batch(batch, name):
            continue
        has_rows = isinstance(value, Sized) and getattr(value, "ndim", 1) > 0
        if not has_rows or len(value) != num_rows:
            what = f"{len(value)} rows" if has_rows else type(value).__name__
            raise ValueError(
                "processors and transform must keep rows if rows are read one by one, or batches "
                f"are mixed or resumed within: {name!r} is {what}, given were {num_rows} rows"
            )


def sliced(batch: Batch, begin: int, end: int) -> Batch:
    """Return rows `begin` to `end`; tensors are views, and offsets begin at 0."""
    found: Batch = {}
    for name, value in batch.items():
        owner = element_mask_owner(batch, name)
        if is_of_batch(batch, name):
            # Documents of different sequences count as different ones.
            ends = batch[_ENDS]
            length = int(ends[-1]) // num_rows_of(batch)
            inside = (ends >= begin * length) & (ends <= end * length)
            kept = ends[inside] - begin * length
            if name == _LENGTHS:
                found[name] = value[inside[:-1] & inside[1:]]
            else:
                found[name] = kept if name == _ENDS else int(kept.diff().max())
        elif owner is not None:
            first, last = owner.offsets[[begin, end]].tolist()
            found[name] = value[first:last]
        else:
            found[name] = value[begin:end]
    return found


def picked(batch: Batch, rows: Tensor) -> Batch:
    """Return rows by number, int64 `[n]`, in that order; a row may be there several times."""
    found: Batch = {}
    for name, value in batch.items():
        owner = element_mask_owner(batch, name)
        if owner is not None:
            found[name] = Jagged(value, owner.offsets).select(rows).values
        elif isinstance(value, Tensor):
            # Indexing by `[]` wakes torch's threads for few rows, and waits for busy processors.
            found[name] = gatherable(value).index_select(0, rows).view(value.dtype)
        else:
            found[name] = value[rows]
    return found


def gatherable(values: Tensor) -> Tensor:
    """Return a view for `index_select`, which torch has not for unsigned numbers."""
    return values.view(_GATHERED_AS.get(values.dtype, values.dtype))


def is_of_batch(batch: Batch, name: str) -> bool:
    """True for the lengths of documents in packed sequences, which are not row by row."""
    return name in (_ENDS, _LONGEST, _LENGTHS) and isinstance(batch.get(_LONGEST), int)


def element_mask_owner(batch: Batch, name: str) -> Jagged | None:
    """Return the lists whose elements a value masks; None if the value has one entry per row."""
    if not name.endswith(ELEMENT_MASK):
        return None
    owner = batch.get(name.removesuffix(ELEMENT_MASK))
    if not isinstance(owner, Jagged):
        return None
    if isinstance(owner.values, Jagged):
        raise ValueError(
            'batches with a mask of the elements of nested lists (nulls="mask") cannot be '
            f"cut: {name!r}"
        )
    return owner


def joined(batches: Sequence[Batch]) -> Batch:
    """Return one batch of all rows of batches that are alike, in order; see `check_alike`."""
    first = batches[0]
    if len(batches) == 1:
        return first
    found = {}
    for name in first:
        how: Any = _joined
        if is_of_batch(first, name):
            how = {_LONGEST: max, _ENDS: _joined_offsets, _LENGTHS: _joined}[name]
        found[name] = how([batch[name] for batch in batches])
    return found


def _joined_offsets(parts: Sequence[Tensor]) -> Tensor:
    found = [parts[0]]
    end = parts[0][-1]
    for part in parts[1:]:
        found.append(part[1:] + end)
        end = end + part[-1]
    return torch.cat(found)


def check_alike(batches: Sequence[Batch], sources: Sequence[str]) -> None:
    """Check that batches can be joined."""
    first = batches[0]
    for batch, source in zip(batches[1:], sources[1:], strict=True):
        for name in (*first, *batch):
            kind, other = _kind_in(first, name), _kind_in(batch, name)
            if kind != other:
                raise SchemaMismatchError(
                    "data sets must have the same columns to be mixed within a batch: "
                    f"{name!r} is {kind} in {sources[0]}, {other} in {source}"
                )


def _kind_in(batch: Batch, name: str) -> str:
    if name not in batch:
        return "missing"
    return "of packed sequences" if is_of_batch(batch, name) else _kind(batch[name])


def _kind(value: Any) -> str:
    if isinstance(value, Jagged):
        return f"Jagged of {_kind(value.values)}"
    if isinstance(value, KeyedJagged):
        weighted = "" if value.weights is None else " with weights"
        keys = shortened([repr(key) for key in value.keys])
        return f"KeyedJagged of {keys}, {_kind(value.values)}{weighted}"
    if isinstance(value, list):
        return "list"
    if not isinstance(value, Tensor):
        raise TypeError(
            "batches whose rows are mixed must hold tensors, Jagged, KeyedJagged or lists, got "
            f"{type(value).__name__}"
        )
    shape = ", ".join(["B", *map(str, value.shape[1:])])
    place = "" if value.device.type == "cpu" else f" on {value.device}"
    return f"{str(value.dtype).removeprefix('torch.')} [{shape}]{place}"


def _joined(values: Sequence[Any]) -> Any:
    if isinstance(values[0], Tensor):
        return torch.cat(list(values))
    if isinstance(values[0], KeyedJagged):
        return KeyedJagged.cat(values)
    if isinstance(values[0], list):
        return list(chain.from_iterable(values))
    parts = cast("Sequence[Jagged]", values)
    offsets = _joined_offsets([part.offsets for part in parts])
    return Jagged(_joined([part.values for part in parts]), offsets)


def texts_of(fields: Sequence[Field]) -> dict[str, Literal["str", "bytes"]]:
    """Return, by name, which fields are strings or binary, or lists of these."""
    found: dict[str, Literal["str", "bytes"]] = {}
    for field in fields:
        kind = field.kinds[0][0].replace("list<", "").rstrip(">")
        if field.has_strings and kind.startswith(_OF_TEXT):
            found[field.name] = "str"
        elif field.has_strings and kind == "binary":
            found[field.name] = "bytes"
    return found


def split_rows(batch: Batch, texts: Texts) -> list[Row]:
    """Return the rows of a batch: views of tensors, the items of a Jagged, `str` or `bytes`."""
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
