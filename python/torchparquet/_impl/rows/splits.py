"""Splits of a data set's rows into parts: deterministic, disjoint and complete."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from torchparquet._impl.checks import checked_int

SplitArgument: TypeAlias = "Split | tuple[Any, ...] | None"


@dataclass(frozen=True)
class Split:
    """One part of a random split of the rows.

    A row's part follows from the seed and from its global number or, with `by`, from its value in
    that column, so that all rows of a user are in one part. It never depends on other rows: files
    that are added after the others leave the rows before them where they are.

    Attributes:
        name: The part to read.
        parts: The fraction of rows, or of values of `by`, of each part; together 1.
        seed: Another seed makes another split.
        by: A column of numbers, strings or bytes. Rows with a null there are in one part. None to
            split by row.
    """

    name: str
    parts: Mapping[str, float]
    seed: int = 0
    by: str | None = None

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            TypeError: A field has a wrong type.
            ValueError: The fractions are not positive or do not add up to 1, or the name is of
                no part.
        """
        parts: Any = self.parts
        if not isinstance(parts, Mapping) or not parts:
            raise TypeError(f"split needs a dict of fractions, got {self.parts!r}")
        if self.name not in self.parts:
            raise ValueError(f"split has no part {self.name!r}: {dict(self.parts)!r}")
        fractions = list(self.parts.values())
        if not all(fraction > 0 for fraction in fractions) or not math.isclose(
            sum(fractions), 1, abs_tol=1e-9
        ):
            raise ValueError(f"the fractions of a split must add up to 1: {dict(self.parts)!r}")
        checked_int("the seed of a split", self.seed, 0, 2**63)
        if self.by is not None and not isinstance(self.by, str):
            raise TypeError(f"a split is by the name of a column, got {self.by!r}")

    @property
    def bounds(self) -> tuple[int, int]:
        """The hashes of the part: at least the first, at most the second, of `2**64`."""
        # The order of the dict does not matter, so that scripts cannot differ by it.
        names = sorted(self.parts)
        at = names.index(self.name)
        before = math.fsum(self.parts[name] for name in names[:at])
        low = round(before * 2**64)
        high = 2**64 - 1
        if at + 1 < len(names):
            high = round(math.fsum(self.parts[name] for name in names[: at + 1]) * 2**64) - 1
        return low, high

    def has(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which hashes belong to the part."""
        low, high = self.bounds
        if high < low:
            return np.zeros(len(hashes), bool)
        return (hashes >= np.uint64(low)) & (hashes <= np.uint64(high))

    def rows(self, begin: int, num_rows: int) -> NDArray[np.bool_]:
        """Return which of the rows from global number `begin` on belong to the part."""
        numbers = np.arange(begin, begin + num_rows, dtype=np.uint64)
        return self.has(_mixed(numbers, self.seed))

    def values(self, values: pa.ChunkedArray) -> NDArray[np.bool_]:
        """Return which rows, given their values of `by`, belong to the part."""
        column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        if pa.types.is_nested(column.type):
            raise ValueError(f"a split cannot be by values of type {column.type}")
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        # One more for nulls.
        of_words = self.has(
            np.append(_hashes(column.dictionary, self.seed), _mixed_null(self.seed))
        )
        codes = column.indices.cast(pa.int64()).fill_null(len(column.dictionary))
        marked: NDArray[np.bool_] = of_words[codes.to_numpy(zero_copy_only=False)]
        return marked


def split_of(argument: Any) -> Split | None:
    """Return a split, from its name, parts, seed and column if these are given as a tuple."""
    if argument is None or isinstance(argument, Split):
        return argument
    if not isinstance(argument, tuple) or not 2 <= len(argument) <= 4:
        raise TypeError(
            f'split must be a Split or a tuple such as ("train", {{"train": 0.9, "val": 0.1}}, 0); '
            f"got {argument!r}"
        )
    return Split(*argument)


def _hashes(words: pa.Array, seed: int) -> NDArray[np.uint64]:
    kind = words.type
    types = pa.types
    if types.is_boolean(kind) or types.is_integer(kind):
        numbers = words.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False)
        return _mixed(numbers.view(np.uint64), seed)
    if types.is_temporal(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        return _hashes(words.view(width), seed)
    if types.is_floating(kind):
        numbers = words.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0
        numbers = np.where(np.isnan(numbers), np.nan, numbers)
        return _mixed(numbers.view(np.uint64), seed)
    if types.is_decimal(kind):
        words = words.cast(pa.string())
    if types.is_fixed_size_binary(kind):
        words = words.cast(pa.binary())
    kinds = (pa.string(), pa.large_string(), pa.string_view(), pa.binary_view(), pa.binary())
    if words.type in kinds or words.type == pa.large_binary():
        return _hashes_of_bytes(words.cast(pa.large_binary()), seed)
    raise ValueError(f"a split cannot be by values of type {kind}")


def _hashes_of_bytes(words: pa.LargeBinaryArray, seed: int) -> NDArray[np.uint64]:
    from torchparquet._impl.native import hash_bytes

    _, offsets, data = words.buffers()
    ends = np.frombuffer(offsets, np.int64)[words.offset : words.offset + len(words) + 1]
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    hashes: NDArray[np.uint64] = hash_bytes(content, ends)
    return _mixed(hashes, seed)


def _mixed_null(seed: int) -> NDArray[np.uint64]:
    return _mixed(np.array([0x6E756C6C], np.uint64), seed ^ 2**62)


def _mixed(numbers: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Return a hash of each number: SplitMix64 of the number, and again with the seed."""
    start = _split_mix(np.array([seed], np.uint64))
    return _split_mix(_split_mix(numbers) ^ start)


def _split_mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed = state + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    out: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return out
