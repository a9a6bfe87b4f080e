"""A column that the user asks for, as the files store it: its tensor, and what nulls become."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from torchparquet._impl.batches.fields import Field, Policy, Value, checked_value
from torchparquet._impl.checks import shortened
from torchparquet._impl.files.footers.leaf import NULL_KEY, Leaf
from torchparquet._impl.files.schemas import Schemas
from torchparquet.column import Column, Nulls
from torchparquet.errors import UnsupportedColumnError, users_level
from torchparquet.features import Hash, Transform, applied


class ColumnInFiles:
    """A column with what files or their table say of it, where its user does not."""

    def __init__(
        self,
        name: str,
        column: Column,
        schemas: Schemas,
        find_words: Callable[[str, Column], tuple[bytes, ...]] | None,
    ) -> None:
        """Find the leaves of the column, about which all files must agree."""
        self.name = name
        self._schemas = schemas
        if column.decode is not None:
            names, inner = schemas.names(), f"{column.source}.bytes"
            if column.source not in names and inner in names:
                column = replace(column, source=inner)  # of the struct that it names
        if column.vocab == "auto":
            assert find_words is not None  # noqa: S101
            column = replace(column, vocab=find_words(name, column))
        self.column = column = self._in_one_unit(self._as_table_has_it(column))
        self._transforms = column.transforms
        self._by_source = [self._agreed_leaves(source) for source in column.sources]
        pairs = zip(column.sources, self._by_source, strict=True)
        by_leaf = [(source, leaf) for source, leaves in pairs for leaf in leaves]
        self._leaves = [leaf for _, leaf in by_leaf]
        self._first = self._leaves[0]
        # Strings become numbers by a vocabulary or a hash.
        are_words = [leaf.is_bytes and self._numbers(source) for source, leaf in by_leaf]
        self._has_strings = self._first.is_bytes and not are_words[0]
        self.leaves_as_values = [
            leaf for leaf, is_word in zip(self._leaves, are_words, strict=True) if not is_word
        ]
        self._are_words = are_words

    def _numbers(self, source: str) -> bool:
        """Return True if strings of a source become numbers."""
        is_hashed = any(isinstance(one, Hash) for one in self._transforms[source])
        return is_hashed or self.column.vocab is not None

    def _as_table_has_it(self, column: Column) -> Column:
        """Return the column with a table's default and dtype, since files may predate both."""
        if column.default is None:
            defaults = {self._schemas.default_of_table(source) for source in column.sources}
            if len(defaults) > 1:
                raise UnsupportedColumnError(
                    "columns of one tensor need one default in files that are older than they "
                    f"(give Column(..., default=...)): {column.sources} have {defaults}"
                )
            column = replace(column, default=defaults.pop())
        if column.dtype_name is not None or column.vocab is not None:
            return column  # of the result, if there is a transform
        dtype = next(filter(None, map(self._schemas.dtype_of_table, column.sources)), None)
        return column if dtype is None else replace(column, dtype=dtype)

    def _in_one_unit(self, column: Column) -> Column:
        """Return the column with a unit that holds all times of the files, if these differ."""
        dtype = column.dtype_name or ""
        takes_unit = (dtype == "int64" or "float" in dtype) and column.vocab is None
        takes_unit |= column.transform is not None
        if column.unit is not None or not takes_unit or not isinstance(column.source, str):
            return column
        unit = self._schemas.finest_unit(column.source)
        if unit is None:
            return column
        warnings.warn(
            "files store times in several units, which are read in the finest of them (Column(..., "
            f"unit=...) sets one, and ends this warning): {column.source!r} is read in {unit}",
            stacklevel=users_level(),
        )
        return replace(column, unit=unit)  # type: ignore[arg-type]

    def _agreed_leaves(self, source: str) -> list[Leaf]:
        """Return the leaves of a source; with a vocabulary those of nulls are strings."""
        column, schemas = self.column, self._schemas
        transforms = self._transforms[source]
        dtype = column.dtype_name
        if column.vocab is not None:
            dtype = "uint8"  # before words become numbers
        elif transforms:
            first = schemas.first_leaf(source)
            _check_takes(transforms[0], first, self.name)
            is_text = first is not None and first.is_bytes
            hashed = "uint8" if is_text else "int64"
            dtype = hashed if isinstance(transforms[0], Hash) else "float64"
        everywhere = column.default is None
        leaves = schemas.agreed_leaves(source, dtype, everywhere=everywhere, unit=column.unit)
        if column.vocab is not None and leaves[0].holds_nulls:
            return [replace(leaf, is_bytes=True) for leaf in leaves]
        return leaves

    def field(self, default_nulls: Nulls) -> Field:
        """Return the tensor of a batch that the column becomes."""
        column, first, schemas = self.column, self._first, self._schemas
        for leaf in self._leaves:
            if column.vocab is not None and not leaf.is_bytes and leaf.kind != "partition key":
                raise self._misfit("vocab is for strings", leaf)
        length = self._length()
        # A partition key whose values are all numbers has no bytes.
        is_word = first.is_bytes and not self._has_strings
        num_offsets = 0 if length else first.num_offsets - is_word
        is_group = not isinstance(column.source, str)
        if is_group:
            self._check_group()
        is_keyed = self._is_keyed
        if is_keyed:
            num_offsets = 1
        nulls, fill, fills = self._nulls(default_nulls)
        if column.decode is not None and not (self._has_strings and num_offsets == 1):
            raise ValueError(f"decode is for strings and binary; {self.name!r} is {self._kinds}")
        declared = None
        if column.length is None and not is_group and first.num_lists and not is_word:
            declared = schemas.declared_tensor(column.sources[0])
        shape, order = declared or ((), ())
        default = self._default(num_offsets)
        transforms = tuple(self._transforms[source] for source in column.sources)
        added = [schemas.added_since(source) is not None for source in column.sources]
        return Field(
            name=self.name,
            sources=column.sources,
            kinds=tuple(tuple(leaf.kind for leaf in leaves) for leaves in self._by_source),
            dtype=self._dtype,
            width=len(column.sources) if is_group else None,
            nulls=nulls,
            fill=fill,
            items=first.items,
            default=default,
            file_values=self._file_values(default),
            num_offsets=num_offsets,
            has_lists=first.num_lists > 0,
            length=length,
            words=column.words,
            unknown=column.unknown,
            row_bytes=self._row_bytes if num_offsets else 0.0,
            missing_is_null=default is None and any(added),  # in files older than the column
            unit=column.unit,
            shape=shape,
            order=order,
            fills=fills,
            decoded=column.decode is not None,
            has_strings=self._has_strings,
            has_own_nulls=column.nulls is not None,
            keyed=is_keyed,
            takes_mask=not is_keyed,
            scalars=tuple(leaves[0].num_lists == 0 for leaves in self._by_source) * is_keyed,
            empty_nulls=self._empty_nulls(default_nulls) if is_keyed else (),
            transforms=transforms if any(transforms) else (),
            hashes_texts=tuple(leaves[0].is_bytes for leaves in self._by_source) * any(transforms),
        )

    def weights(self) -> ColumnInFiles:
        """Return the columns of the weights."""
        items = self.column.default
        default = [1.0] * len(items) if isinstance(items, tuple) else None if items is None else 1.0
        column = Column(
            self.column.weights, nulls="empty", dtype="float32", length="any", default=default
        )
        return ColumnInFiles(self.name, column, self._schemas, None)

    @property
    def _is_keyed(self) -> bool:
        """True if the columns are a `KeyedJagged`."""
        is_group = not isinstance(self.column.source, str)
        has_lists = any(leaf.num_lists for leaf in self._leaves)
        return is_group and (has_lists or self.column.length == "any")

    def _check_group(self) -> None:
        """Check that several columns can be one tensor, or one `KeyedJagged`."""
        kinds = self._kinds
        if any(leaf.is_bytes or leaf.items for leaf in self.leaves_as_values):
            raise ValueError(
                "strings and binary cannot be read with other columns as one; name each of them "
                "by itself, outside of the group, or read strings as numbers by Column([...], "
                f"vocab=...) or transform=Hash(...): {self.name!r} has {kinds}"
            )
        if any(leaf.num_lists > 1 for leaf in self._leaves):
            raise ValueError(
                "lists of lists cannot be read with other columns as one; name each of them by "
                f"itself, outside of the group: {self.name!r} has {kinds}"
            )
        if self._is_keyed and self.column.stated_length is not None:
            raise ValueError(
                "length is for columns that are named by themselves, outside of a group; several "
                f"columns with lists are read with the length of each: {self.name!r} has {kinds}"
            )
        if self._is_keyed and any(map(self._schemas.is_partition_key, self.column.sources)):
            raise ValueError(
                "partition keys have no lists; name each of them by itself, outside of the group: "
                f"{self.name!r} has {kinds}"
            )

    @property
    def _row_bytes(self) -> float:
        """Likely bytes of the items of a row, of all sources."""
        size: int = getattr(torch, self._dtype).itemsize
        bytes_of = [
            # Footers tell little of columns of scalars, and each is one value.
            max(leaf.row_bytes for leaf in leaves) if leaves[0].num_offsets else float(size)
            for leaves in self._by_source
        ]
        return sum(bytes_of)

    @property
    def _kinds(self) -> str:
        pairs = zip(self.column.sources, self._by_source, strict=True)
        return shortened([f"{source!r} {leaves[0].kind}" for source, leaves in pairs])

    def _misfit(self, rule: str, leaf: Leaf) -> ValueError:
        return ValueError(f"{rule}; {self.name!r} reads {leaf.path!r}, which is {leaf.kind}")

    def _length(self) -> int | None:
        """Return the length of all lists, which the user states or files declare."""
        column, source = self.column, self.column.source
        pairs = zip(self._leaves, self._are_words, strict=True)
        fits = [leaf.num_lists == 1 and (is_word or not leaf.is_bytes) for leaf, is_word in pairs]
        if column.length is None:
            declares = isinstance(source, str) and all(fits)
            return self._schemas.declared_length(str(source)) if declares else None
        if column.stated_length is not None and not all(fits):
            rule = "length is for lists of numbers, or of strings with a vocab"
            raise self._misfit(rule, self._leaves[fits.index(False)])
        return column.stated_length

    @cached_property
    def _dtype(self) -> str:
        column = self.column
        if column.words is not None:
            dtype = column.dtype_name or "int64"
            if _kind_of(dtype) is not int:
                raise ValueError(
                    f"numbers of words must have an integer dtype; {self.name!r} has {dtype}"
                )
            for code in (column.unknown, len(column.words) - 1):
                checked_value(code, "number of a word", self.name, dtype)
            return dtype
        dtypes = [column.dtype_name or leaves[0].dtype for leaves in self._by_source]
        if len(set(dtypes)) > 1:
            shown = [f"{s!r} {dtype}" for s, dtype in zip(column.sources, dtypes, strict=True)]
            raise ValueError(
                "columns of one tensor must have the same dtype, or be given one by Column(..., "
                f"dtype=...); {self.name!r} has {shortened(shown)}"
            )
        return dtypes[0]

    def _checked(self, value: Value, what: str) -> Value:
        return checked_value(value, what, self.name, self._dtype)

    def _file_values(self, missing: Any) -> tuple[tuple[int | float | None, ...], ...]:
        """Return the numbers of partition keys: by source, () or one of each file."""
        column, schemas = self.column, self._schemas
        codes = {word.decode(errors="replace"): i for i, word in enumerate(column.words or ())}

        def number(text: str | None, source: str) -> Any:
            if text == NULL_KEY or (text is None and missing is None):
                return None
            transforms = self._transforms[source]
            if transforms:
                # A hash takes keys as they are written, whatever others look like.
                stated: Any = text if self._numbers(source) else int(text or 0)
                return applied(transforms, missing if text is None else stated).item()
            if text is None:
                return missing
            value = codes.get(text, column.unknown) if column.words else int(text)
            return self._checked(value, f"partition key ({source})")

        found: list[tuple[int | float | None, ...]] = []
        for source in column.sources:
            texts = schemas.partition_values(source) if schemas.is_partition_key(source) else ()
            numbers = {text: number(text, source) for text in dict.fromkeys(texts)}
            found.append(tuple(map(numbers.__getitem__, texts)))
        return tuple(found) if any(found) else ()

    def _default(self, num_offsets: int) -> Value | bytes | tuple[Value, ...] | None:
        """Return the value of rows of files that lack the column, as dtype and lists demand."""
        default: Any = self.column.default
        words, first = self.column.words, self._first
        if default is None:
            return None
        if isinstance(default, str | bytes):
            if not all(leaf.is_bytes and leaf.num_lists == 0 for leaf in self._leaves):
                raise ValueError(f"a default of text is for strings: {self.name!r} has {default!r}")
            text = default.encode() if isinstance(default, str) else default
            codes = {word: code for code, word in enumerate(words or ())}
            if words is None:
                return text
            return self._checked(codes.get(text, self.column.unknown), "default")
        if self._is_keyed and not isinstance(default, Sequence):
            default = (default,)
        is_list = isinstance(default, Sequence)
        if is_list and not num_offsets:
            raise ValueError(
                "a default of several values is for lists of any length; lists of one length take a"
                f" number for all elements: {self.name!r} has {default!r}"
            )
        place = f"{self.name!r} is {first.kind}, default={default!r}"
        if num_offsets and not (is_list and (first.num_lists or self._is_keyed)):
            raise ValueError(
                "the default of a list is a list, such as default=[], that of a string a str or "
                f"bytes: {place}"
            )
        if not isinstance(default, Sequence):
            return self._checked_default(default)
        if default and (first.num_offsets > 1 or first.items):
            raise ValueError(
                f"the default of nested lists and of lists of strings is default=[]: {place}"
            )
        return tuple(map(self._checked_default, default))

    def _checked_default(self, value: Value) -> Value:
        """Return a number that stands in files without the column, before its transforms."""
        if self.column.transform is None:
            return self._checked(value, "default")
        if any(leaf.is_bytes for leaf in self._leaves):
            raise ValueError(
                "the default of strings that are hashed is a str or bytes, and a tensor that has "
                f"other columns too takes none: {self.name!r} has default={value!r}"
            )
        return value

    def _nulls(self, default: Nulls) -> tuple[Policy, Value, tuple[Value | None, ...]]:
        """Return the policy and the fill of all sources, or a fill of each."""
        column = self.column
        policy = default if column.nulls is None else column.nulls
        if not isinstance(policy, Mapping | tuple):
            return *self._policy(policy), ()
        policies = dict(policy)
        found = [self._policy(policies.get(source, default)) for source in column.sources]
        if any(how == "mask" for how, _ in found):
            raise ValueError(
                'nulls="mask" is for all columns of a tensor; give each of them another policy: '
                f"{self.name!r} has nulls={policies}"
            )
        fills = tuple(None if how == "error" else fill for how, fill in found)
        return "fill", _kind_of(self._dtype)(0), fills

    def _empty_nulls(self, default: Nulls) -> tuple[bool, ...]:
        """Return for each source of a `KeyedJagged` whether a null row is empty."""
        policy = default if self.column.nulls is None else self.column.nulls
        of = dict(policy) if isinstance(policy, Mapping | tuple) else None
        found = [policy if of is None else of.get(one, default) for one in self.column.sources]
        return tuple(one in (None, "empty") for one in found)

    def _policy(self, policy: Nulls) -> tuple[Policy, Value]:
        """Return one policy, and the value that it gives to nulls."""
        kind = _kind_of(self._dtype)
        if self._is_keyed and policy == "mask":
            raise ValueError(
                'nulls="mask" is not for several columns with lists, whose lengths tell which are '
                f'empty; give them a value, "empty" or "error": {self.name!r}'
            )
        if self._is_keyed and policy == "empty":
            policy = "error"
        if policy == "empty" and not self._has_strings:
            raise ValueError(
                'nulls="empty" is for strings; give a column of numbers a value, as in Column(..., '
                f"nulls=0), which makes null lists empty too: {self.name!r} is {self._dtype}"
            )
        if self._has_strings and policy not in (None, "empty", "error", "mask"):
            raise ValueError(
                'nulls of strings must be "empty", "mask" or "error", which Column(..., '
                f'nulls="empty") sets for one column: {self.name!r} is strings, nulls={policy!r}'
            )
        if policy is None:
            policy = "nan" if kind is float else "error"
        if policy == "error" or policy == "mask":
            return policy, kind(0)
        if policy == "empty":
            return "fill", kind(0)
        if policy == "nan":
            if kind is not float:
                raise ValueError(
                    'nulls="nan" needs a float column (set "error", "mask" or a fill value with '
                    f"Column(..., nulls=...)): {self.name!r} is {self._dtype}"
                )
            return "fill", float("nan")
        return "fill", self._checked(policy, "fill value for nulls")


def _check_takes(transform: Transform, leaf: Leaf | None, name: str) -> None:
    """Check that a column has values that a transform takes."""
    if leaf is None or leaf.holds_nulls or not (leaf.dtype or leaf.is_bytes):
        return
    is_hash = isinstance(transform, Hash)
    is_whole = leaf.dtype == "bool" or "int" in leaf.dtype
    fits = leaf.is_bytes or is_whole if is_hash else not leaf.is_bytes
    if not fits or leaf.items:
        takes = "integers, strings and binary of any length" if is_hash else "numbers"
        raise ValueError(
            f"{type(transform).__name__} takes {takes}; {name!r} reads {leaf.path!r}, which is "
            f"{leaf.kind}"
        )


def _kind_of(dtype: str) -> type[Value]:
    """Return the type of Python's values of a dtype."""
    if dtype == "bool":
        return bool
    return float if getattr(torch, dtype).is_floating_point else int
