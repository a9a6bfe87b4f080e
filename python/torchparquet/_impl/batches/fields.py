"""Field: one tensor of a batch, as the files and the user want it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import torch

from torchparquet._impl.checks import shortened
from torchparquet.features import Transforms, identity_of
from torchparquet.jagged import in_dtype
from torchparquet.options import Boundaries, Number, Pack, Strategy

Value: TypeAlias = int | float | bool
Policy: TypeAlias = Literal["error", "fill", "mask"]


class PackedColumn(NamedTuple):
    """How one column is packed, as its `Pack` says; only the first column has boundaries."""

    strategy: Strategy
    separator: Number | None
    padding: Number
    window: int
    boundaries: Boundaries
    pad_documents_to: int

    def names(self, column: str) -> tuple[str, ...]:
        """Return the keys of a batch that tell where documents begin."""
        of_tokens = (f"{column}.document", f"{column}.position")
        of_lengths: tuple[str, ...] = ("cu_seqlens", "max_seqlen")
        if self.pad_documents_to > 1:
            of_lengths += ("seqlens",)
        both = of_tokens + of_lengths
        found = {"tokens": of_tokens, "cu_seqlens": of_lengths, "both": both, "none": ()}
        return found[self.boundaries]

    @property
    def identity(self) -> tuple[object, ...]:
        """The facts that states depend on; one that joined later, only where it is used."""
        *first, pad_documents_to = self
        return (*first, pad_documents_to) if pad_documents_to > 1 else tuple(first)


@dataclass(frozen=True, repr=False)
class Field:
    """One tensor of a batch, checked against the files.

    Attributes:
        kinds: The kinds of each source in the files, such as ``"timestamp[us]"``.
        width: F for shape ``[B, F]``, one entry per source; None for ``[B]``.
        nulls: ``"error"``, ``"fill"`` with the value ``fill``, or ``"mask"``, which fills too.
        items: n if a value is n items: ``[B, n]`` with a mask of ``[B]``, or ``[N, n]`` in lists.
        default: The value of rows of files that lack a column, or the items of a list.
        file_values: For each source () or, if it is a partition key, the value of each file.
        num_offsets: The offsets between a row and its items. Above 0 the field is a `Jagged`.
        length: L if lists are a tensor ``[B, L]``, or ``[B, L * n]``.
        words: The vocabulary, encoded in UTF-8; None if strings stay strings.
        pack: How lists are packed into sequences of ``length``.
        unit: The unit that points in time and durations are converted to, such as "us".
        shape: The shape in which a row is stored, if rows are tensors of more dimensions than one
            list. With offsets, rows are lists of lists of these lengths.
        order: The dimensions of ``shape`` as the batch has them; empty for as they are stored.
        fills: For each source the value of its nulls, or None if they are errors; empty if
            ``nulls`` and ``fill`` hold for all sources.
        decoded: True if values go to a decoder, to which a null is an error.
        keyed: True if the sources are a `KeyedJagged`; it has no mask.
        scalars: For each source of a `KeyedJagged` True if a row is one value or, null, none.
        empty_nulls: For each of them True if a null row is empty, whatever other nulls become.
        transforms: For each source what its values go through; empty if none is transformed.
        hashes_texts: For each of them True if it has strings, which a hash then takes.
        weighs: The name of the `KeyedJagged` whose weights these are. No tensor has their own.
        takes_mask: False if nothing tells of nulls: in a `Pack`, a tokenizer or a `KeyedJagged`.
        window: T if a sample has the values of a window of rows.
    """

    name: str
    sources: tuple[str, ...]
    kinds: tuple[tuple[str, ...], ...]
    dtype: str
    width: int | None
    nulls: Policy
    fill: Value
    items: int | None = None
    default: Value | bytes | tuple[Value, ...] | None = None
    file_values: tuple[tuple[int | float | None, ...], ...] = ()
    num_offsets: int = 0
    has_lists: bool = False
    length: int | None = None
    words: tuple[bytes, ...] | None = None
    unknown: int = -1
    row_bytes: float = 0.0
    missing_is_null: bool = False
    pack: PackedColumn | None = None
    lengths_only: bool = False
    unit: str | None = None
    shape: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    fills: tuple[Value | None, ...] = ()
    decoded: bool = False
    has_strings: bool = False
    has_own_nulls: bool = False
    keyed: bool = False
    scalars: tuple[bool, ...] = ()
    empty_nulls: tuple[bool, ...] = ()
    weighs: str | None = None
    transforms: tuple[Transforms, ...] = ()
    hashes_texts: tuple[bool, ...] = ()
    takes_mask: bool = True
    window: int | None = None

    @property
    def identity(self) -> str:
        """The facts about which two data sets must agree for states of one to fit the other."""
        # An attribute that joins belongs here only where it is used, so that states which were
        # saved before stay valid. Facts that follow from the files are left out.
        same = ("name", "sources", "dtype", "width", "nulls", "fill", "items", "default", "length")
        facts: dict[str, object] = {name: getattr(self, name) for name in same}
        facts |= {"words": self.words, "unknown": self.unknown, "lengths only": self.lengths_only}
        facts |= {"offsets": self.num_offsets, "lists": self.has_lists}
        facts["pack"] = None if self.pack is None else self.pack.identity
        facts |= {} if self.unit is None else {"unit": self.unit}
        facts |= {"fills": self.fills} if self.fills else {}
        facts |= {"empty nulls": self.empty_nulls, "weighs": self.weighs} if self.keyed else {}
        if self.transforms:
            facts["transforms"] = tuple(map(identity_of, self.transforms))
        return repr(sorted(facts.items()))

    @property
    def description(self) -> str:
        """The value in a batch, the sources if their name differs, and what nulls become."""
        sizes = [str(size) for size in (self.window, self.trailing) if size is not None]
        shape = f"[{', '.join(['B', *sizes])}]"
        sources = "" if self.sources == (self.name,) else f" of {shortened(self.sources)}"
        fill = f" {self.fill}" if self.nulls == "fill" else ""
        if self.fills:
            fill = f" {shortened(['error' if one is None else str(one) for one in self.fills])}"
        kind = "Jagged of " if self.num_offsets else ""
        kind = f"KeyedJagged of {len(self.sources)} keys of " if self.keyed else kind
        fill += "" if not self.transforms else f", transform={_shown_transforms(self.transforms)}"
        fill += ", null rows are empty" if self.keyed and all(self.empty_nulls) else ""
        return f"{kind}{self.dtype} {shape}{sources}, nulls={self.nulls}{fill}"

    def __repr__(self) -> str:
        """Return a line for people."""
        return f"{self.name}: {self.description}"

    @property
    def trailing(self) -> int | None:
        """The second dimension of the tensor, or None if it has one dimension."""
        if self.num_offsets:
            return None
        inner = (self.length or 1) * (self.items or 1)
        return self.width or (inner if self.length or self.items else None)

    @property
    def source_fills(self) -> tuple[Value | None, ...]:
        """For each source the value of its nulls, or None if they are errors."""
        fill = None if self.nulls == "error" else self.fill
        return self.fills or (fill,) * len(self.sources)

    @property
    def has_mask(self) -> bool:
        """True if the slab has a byte beside each value: it is not null or, packed, its mark."""
        has_marks = self.pack is not None and self.pack.boundaries != "none"
        return self.nulls == "mask" or has_marks

    @property
    def mask_names(self) -> tuple[str, ...]:
        """The names of the tensors that tell of values: bool masks, or boundaries of documents."""
        if self.pack is not None:
            return self.pack.names(self.name)
        if self.nulls != "mask":
            return ()
        of_values = (f"{self.name}.values.valid",) if self.num_offsets and self.has_lists else ()
        return (f"{self.name}.valid", *of_values)


def _shown_transforms(transforms: Sequence[Transforms]) -> str:
    """Return the transforms of all sources for people, or of the first and a hint at others."""
    first = next(filter(None, transforms))
    shown = shortened([f"{one!r:.60}" for one in first])
    return shown if len(set(transforms)) == 1 else f"{shown} and others"


def with_pack(field: Field, pack: Pack) -> Field:
    """Return the field of the sequences that the lists of a field become."""
    name, dtype = field.name, field.dtype
    if field.keyed:
        raise ValueError(
            "pack takes columns that are named one by one, as in Pack([name, ...]); "
            f"{name!r} is {shortened(field.sources)}"
        )
    if not is_list_of_numbers(field):
        raise ValueError(
            "pack is for columns of lists of numbers, and with tokenizer= for a column of strings: "
            f"{name!r} is {field.kinds[0][0]}"
        )
    if field.nulls == "mask":
        raise ValueError(
            f'nulls="mask" does not go with pack; {name!r} takes a fill value or "error"'
        )
    if field.missing_is_null:
        raise ValueError(f"pack needs {name!r} in all files of the table, also in older ones")
    separator = pack.separator_of(name)
    if separator is not None:
        separator = checked_value(separator, "separator", name, dtype)
    padding = checked_value(pack.padding_of(name), "padding", name, dtype)
    boundaries = pack.boundaries if name == pack.names[0] else "none"
    packed = PackedColumn(
        pack.strategy, separator, padding, pack.window, boundaries, pack.pad_documents_to
    )
    packed_field = replace(field, length=pack.length, pack=packed, takes_mask=False)
    return replace(packed_field, num_offsets=0, row_bytes=0.0)


def check_padding(field: Field, value: Value) -> None:
    """Check that lists of a field can be padded with a value."""
    if not is_list_of_numbers(field):
        raise ValueError(
            f'only lists of numbers of any length (length="any") are padded; {field.name!r} is '
            f"{field.kinds[0][0]}"
        )
    checked_value(value, "padding", field.name, field.dtype)


def is_list_of_numbers(field: Field) -> bool:
    """True for lists of any length of one level."""
    is_one_list = field.num_offsets == 1 and field.has_lists and field.items is None
    return is_one_list and not field.keyed


def weights_of(field: Field, weights: Field) -> Field:
    """Return the field of the weights of a `KeyedJagged`."""
    if not field.keyed:
        raise ValueError(
            "weights are for lists, or for scalars that are read as such by Column(..., "
            f'length="any"): the columns of {field.name!r} are scalars'
        )
    return replace(weights, name=f"{field.name}.weights", weighs=field.name)


def lengths_of(field: Field) -> Field:
    """Return a field of int64 ``[B]`` with the lengths of the lists that ``field`` packs."""
    counted = replace(field, dtype="int64", nulls="fill", fill=0, length=None, pack=None)
    # Strings that are hashed are numbers, whatever those are.
    words = (b"",) if any(field.hashes_texts) else field.words
    counted = replace(counted, words=words, transforms=(), hashes_texts=())
    return replace(counted, num_offsets=0, row_bytes=0.0, lengths_only=True)


def columns_digest(fields: Sequence[Field]) -> str:
    """Return a digest of what a batch holds, the same in all releases."""
    texts = [field.identity for field in fields]
    return hashlib.blake2b(json.dumps(texts).encode(), digest_size=8).hexdigest()


def checked_value(value: Value, what: str, name: str, dtype: str) -> Value:
    """Return ``value`` as a bool, int or float of Python, as ``dtype`` demands."""
    fitting = in_dtype(value, getattr(torch, dtype))
    if fitting is None:
        raise ValueError(
            f"a {what} must be representable in the column's dtype: {name!r} is {dtype}, the "
            f"value {value!r}"
        )
    return fitting
