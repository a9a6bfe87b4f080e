"""Field: one tensor of a batch, as the files and the user want it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torchparquet._impl.batches.fills import checked_default, checked_value, kind_of, resolved_nulls
from torchparquet._impl.batches.pack import PackedColumn
from torchparquet._impl.checks import shortened
from torchparquet._impl.files.footers.leaf import NULL_KEY, Leaf
from torchparquet.column import Column, Nulls
from torchparquet.options import Pack


@dataclass(frozen=True, repr=False)
class Field:
    """One tensor of a batch, checked against the files.

    Attributes:
        kinds: The kinds of each source in the files, such as ``"timestamp[us]"``.
        width: None for shape ``[B]``; F for shape ``[B, F]``, one entry per source.
        items: None, or n if a value is n items. The shape is then ``[B, n]`` from one source, with
            a mask of ``[B]``, or ``[N, n]`` in lists.
        num_offsets: The number of offsets between a row and its items. Above 0 the field is a
            `Jagged` whose values have the dtype.
        length: L if lists are a tensor of shape ``[B, L]``, or ``[B, L * n]``; else None.
        words: The vocabulary, encoded in UTF-8; None if strings stay strings.
        default: The value of rows of files that lack a column, representable in ``dtype``, or bytes
            for strings, or the items of a list; None if every file must have it.
        file_values: For each source () or, if it is a partition key, the value of each file;
            None for null.
        pack: How lists are packed into sequences of ``length``; None if a row is a row.
        unit: The unit of points in time and durations, such as "us", if they are converted to it.
        shape: The shape in which a row is stored, if rows are tensors of more dimensions than one
            list; else empty. With offsets, rows are lists of lists of these lengths.
        order: The dimensions of ``shape`` as the batch has them; empty for as they are stored.
        nulls: ``"error"``, ``"fill"`` with the value ``fill``, or ``"mask"``, which fills too.
        fills: For each source the value of its nulls, or None if they are errors; empty if
            ``nulls`` and ``fill`` hold for all sources.
        decoded: True if values go to a decoder, to which a null is an error.
        has_own_nulls: True if the policy is the column's own, and not that of the data set.
    """

    name: str
    sources: tuple[str, ...]
    kinds: tuple[tuple[str, ...], ...]
    dtype: str
    width: int | None
    nulls: Literal["error", "fill", "mask"]
    fill: int | float | bool
    items: int | None = None
    default: int | float | bool | bytes | tuple[int | float | bool, ...] | None = None
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
    fills: tuple[int | float | bool | None, ...] = ()
    decoded: bool = False
    has_strings: bool = False
    has_own_nulls: bool = False

    @property
    def identity(self) -> str:
        """The facts about which two data sets must agree for states of one to fit the other."""
        # An attribute that joins belongs here only where it is used, so that states which were
        # saved before stay valid. Facts that follow from the files are left out.
        pack = self.pack
        facts: dict[str, object] = {
            "name": self.name,
            "sources": self.sources,
            "dtype": self.dtype,
            "width": self.width,
            "nulls": self.nulls,
            "fill": self.fill,
            "items": self.items,
            "default": self.default,
            "offsets": self.num_offsets,
            "lists": self.has_lists,
            "length": self.length,
            "words": self.words,
            "unknown": self.unknown,
            "lengths only": self.lengths_only,
            "pack": pack
            and (pack.strategy, pack.separator, pack.padding, pack.window, pack.boundaries),
        }
        if self.unit is not None:
            facts["unit"] = self.unit
        if self.fills:
            facts["fills"] = self.fills
        return repr(sorted(facts.items()))

    @property
    def description(self) -> str:
        """The value in a batch, the sources if their name differs, and what nulls become."""
        shape = "[B]" if self.trailing is None else f"[B, {self.trailing}]"
        sources = "" if self.sources == (self.name,) else f" of {shortened(self.sources)}"
        fill = f" {self.fill}" if self.nulls == "fill" else ""
        if self.fills:
            fill = f" {shortened(['error' if one is None else str(one) for one in self.fills])}"
        kind = "Jagged of " if self.num_offsets else ""
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
    def source_fills(self) -> tuple[int | float | bool | None, ...]:
        """For each source the value of its nulls, or None if they are errors."""
        fill = None if self.nulls == "error" else self.fill
        return self.fills or (fill,) * len(self.sources)

    @property
    def refuses_nulls(self) -> bool:
        """True if a null of some source is an error."""
        return None in self.source_fills

    @property
    def has_mask(self) -> bool:
        """True if the slab has a byte beside each value: it is not null or, packed, its mark."""
        return self.nulls == "mask" or (self.pack is not None and self.pack.has_marks)

    @property
    def mask_names(self) -> tuple[str, ...]:
        """The names of the tensors that tell of values: bool masks, or boundaries of documents."""
        if self.pack is not None:
            return self.pack.names(self.name)
        if self.nulls != "mask":
            return ()
        of_values = (f"{self.name}.values.valid",) if self.num_offsets and self.has_lists else ()
        return (f"{self.name}.valid", *of_values)


def columns_digest(fields: Sequence[Field]) -> str:
    """Return a digest of what a batch holds, the same in all releases."""
    texts = [field.identity for field in fields]
    return hashlib.blake2b(json.dumps(texts).encode(), digest_size=8).hexdigest()


def make_field(
    name: str, column: Column, sources: Sequence[Sequence[Leaf]], default_nulls: Nulls
) -> Field:
    """Return the field that a batch holds for ``column``."""
    leaves = [leaf for found in sources for leaf in found]
    _check_options(name, column, leaves)
    dtype = _common_dtype(name, column, sources)
    width = None if isinstance(column.source, str) else len(column.sources)
    first = leaves[0]
    is_words = column.vocab is not None
    # A partition key whose values are all numbers has no bytes.
    num_offsets = 0 if column.stated_length else first.num_offsets - (is_words and first.is_bytes)
    if width is not None:
        _check_grouped(name, column, sources, num_offsets)
    has_strings = first.is_bytes and not is_words
    nulls, fill, fills = resolved_nulls(column, default_nulls, name, dtype, has_strings)
    if column.decode is not None and (num_offsets != 1 or not has_strings or first.num_lists):
        raise ValueError(f"decode is for strings and binary; {name!r} is {_kinds(column, sources)}")
    return Field(
        name=name,
        sources=column.sources,
        kinds=tuple(tuple(leaf.kind for leaf in found) for found in sources),
        dtype=dtype,
        width=width,
        nulls=nulls,
        fill=fill,
        fills=fills,
        decoded=column.decode is not None,
        has_strings=has_strings,
        has_own_nulls=column.nulls is not None,
        items=first.items,
        default=checked_default(column, name, dtype, num_offsets, leaves),
        num_offsets=num_offsets,
        has_lists=first.num_lists > 0,
        length=column.stated_length,
        words=column.words,
        unknown=column.unknown,
        row_bytes=max(leaf.row_bytes for leaf in leaves) if num_offsets else 0.0,
        unit=column.unit,
    )


def _check_grouped(
    name: str, column: Column, sources: Sequence[Sequence[Leaf]], num_offsets: int
) -> None:
    for found in sources:
        if num_offsets or any(leaf.items or leaf.num_lists for leaf in found):
            raise ValueError(
                "strings, lists and binary of a fixed size cannot share a tensor with others; name "
                f"each of them by itself, outside of the group: {name!r} has "
                f"{_kinds(column, sources)}"
            )


def with_file_values(field: Field, values: Sequence[tuple[str | None, ...]]) -> Field:
    """Return ``field`` with the texts of partition keys: by source, () or one of each file."""
    codes = {word.decode(errors="replace"): i for i, word in enumerate(field.words or ())}
    missing = None if isinstance(field.default, (bytes, tuple)) else field.default

    def number(text: str | None) -> int | float | None:
        if text is None or text == NULL_KEY:
            return missing if text is None else None
        return codes.get(text, field.unknown) if field.words else int(text)

    numbers = tuple(tuple(map(number, of_source)) for of_source in values)
    for source, of_source in zip(field.sources, numbers, strict=True):
        for value in set(of_source) - {None}:
            assert value is not None  # noqa: S101
            checked_value(value, f"partition key ({source})", field.name, field.dtype)
    return replace(field, file_values=numbers) if any(numbers) else field


def with_pack(field: Field, pack: Pack) -> Field:
    """Return a field of lists as one of packed sequences."""
    if field.num_offsets != 1 or not field.has_lists or field.items is not None:
        raise ValueError(
            "pack is for columns of lists of numbers; write the tokens of a text as such a column "
            f"first (recipes.md, tokens from text): {field.name!r} is {field.kinds[0][0]}"
        )
    if field.nulls == "mask":
        raise ValueError(
            f'nulls="mask" does not go with pack; {field.name!r} takes a fill value or "error"'
        )
    if field.missing_is_null:
        raise ValueError(f"pack needs {field.name!r} in all files of the table, also in older ones")
    separator = pack.separator_of(field.name)
    if separator is not None:
        separator = checked_value(separator, "separator", field.name, field.dtype)
    packed = PackedColumn(
        pack.strategy,
        separator,
        checked_value(pack.padding_of(field.name), "padding", field.name, field.dtype),
        pack.window,
        pack.boundaries if field.name == pack.names[0] else "none",
    )
    return replace(field, num_offsets=0, row_bytes=0.0, length=pack.length, pack=packed)


def check_padding(field: Field, value: int | float | bool) -> None:
    """Check that lists of a field can be padded with a value."""
    if field.num_offsets != 1 or not field.has_lists or field.items is not None:
        raise ValueError(
            f'only lists of numbers of any length (length="any") are padded; {field.name!r} is '
            f"{field.kinds[0][0]}"
        )
    checked_value(value, "padding", field.name, field.dtype)


def lengths_of(field: Field) -> Field:
    """Return a field of int64 ``[B]`` with the lengths of the lists that ``field`` packs."""
    return replace(
        field,
        dtype="int64",
        nulls="fill",
        fill=0,
        num_offsets=0,
        row_bytes=0.0,
        length=None,
        pack=None,
        lengths_only=True,
    )


def _kinds(column: Column, sources: Sequence[Sequence[Leaf]]) -> str:
    pairs = zip(column.sources, sources, strict=True)
    return shortened([f"{source!r} {found[0].kind}" for source, found in pairs])


def _check_options(name: str, column: Column, leaves: Sequence[Leaf]) -> None:
    for leaf in leaves:
        if column.vocab is not None and not leaf.is_bytes and leaf.kind != "partition key":
            raise ValueError(
                f"vocab is for strings; {name!r} reads {leaf.path!r}, which is {leaf.kind}"
            )
        if column.stated_length is None:
            continue
        if leaf.num_lists != 1 or (leaf.is_bytes and column.vocab is None):
            raise ValueError(
                "length is for lists of numbers, or of strings with a vocab; "
                f"{name!r} reads {leaf.path!r}, which is {leaf.kind}"
            )


def _common_dtype(name: str, column: Column, sources: Sequence[Sequence[Leaf]]) -> str:
    if column.words is not None:
        dtype = column.dtype_name or "int64"
        if kind_of(dtype) is not int:
            raise ValueError(f"numbers of words must have an integer dtype; {name!r} has {dtype}")
        for code in (column.unknown, len(column.words) - 1):
            checked_value(code, "number of a word", name, dtype)
        return dtype
    dtypes = [column.dtype_name or found[0].dtype for found in sources]
    if len(set(dtypes)) > 1:
        shown = [f"{s!r} {dtype}" for s, dtype in zip(column.sources, dtypes, strict=True)]
        raise ValueError(
            "columns of one tensor must have the same dtype, or be given one by Column(..., "
            f"dtype=...); {name!r} has {shortened(shown)}"
        )
    return dtypes[0]
