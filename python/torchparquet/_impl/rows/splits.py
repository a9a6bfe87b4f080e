"""Splits of a data set's rows into parts: deterministic, disjoint and complete."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from torchparquet._impl.checks import shown
from torchparquet._impl.plan.order import GOLDEN, split_mix
from torchparquet.options import Split

SplitArgument: TypeAlias = "Split | tuple[Any, ...] | None"


def rows_of_split(split: Split, begin: int, num_rows: int) -> NDArray[np.bool_]:
    """Return which of the rows from global number `begin` on belong to the part."""
    numbers = np.arange(begin, begin + num_rows, dtype=np.uint64)
    return _has(split, _mixed(numbers, split.seed))


def values_of_split(split: Split, values: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return which rows, given their values of `by`, belong to the part."""
    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_nested(column.type):
        raise ValueError(f"a split cannot be by values of type {column.type}")
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    # One more for nulls.
    of_null = _mixed(np.array([0x6E756C6C], np.uint64), split.seed ^ 2**62)
    of_words = _has(split, np.append(_hashes(column.dictionary, split.seed), of_null))
    codes = column.indices.cast(pa.int64()).fill_null(len(column.dictionary))
    marked: NDArray[np.bool_] = of_words[codes.to_numpy(zero_copy_only=False)]
    return marked


def bounds_of(split: Split) -> tuple[int, int]:
    """Return the hashes of the part: at least the first, at most the second, of `2**64`."""
    # The order of the dict does not matter, so that scripts cannot differ by it.
    names = sorted(split.parts)
    at = names.index(split.name)
    low, high = round(math.fsum(split.parts[name] for name in names[:at]) * 2**64), 2**64 - 1
    if at + 1 < len(names):
        high = round(math.fsum(split.parts[name] for name in names[: at + 1]) * 2**64) - 1
    return low, high


def _has(split: Split, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return which hashes belong to the part."""
    low, high = bounds_of(split)
    if high < low:
        return np.zeros(len(hashes), bool)
    return (hashes >= np.uint64(low)) & (hashes <= np.uint64(high))


def split_of(argument: Any) -> Split | None:
    """Return a split, from its name, parts, seed and column if these are given as a tuple."""
    if argument is None or isinstance(argument, Split):
        return argument
    if not isinstance(argument, tuple) or not 2 <= len(argument) <= 4:
        raise TypeError(
            f'split must be a Split or a tuple such as ("train", {{"train": 0.9, "val": 0.1}}, 0); '
            f"got {shown(argument)}"
        )
    return Split(*argument)


def _hashes(words: pa.Array, seed: int) -> NDArray[np.uint64]:
    from torchparquet._impl.native import hash_bytes

    kind, types = words.type, pa.types
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
    if words.type not in (*kinds, pa.large_binary()):
        raise ValueError(f"a split cannot be by values of type {kind}")
    words = words.cast(pa.large_binary())
    _, offsets, data = words.buffers()
    ends = np.frombuffer(offsets, np.int64)[words.offset : words.offset + len(words) + 1]
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return _mixed(hash_bytes(content, ends), seed)


def _mixed(numbers: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Return a hash of each number: SplitMix64 of the number, and again with the seed."""
    start = split_mix(np.array([seed], np.uint64) + GOLDEN)
    return split_mix((split_mix(numbers + GOLDEN) ^ start) + GOLDEN)
