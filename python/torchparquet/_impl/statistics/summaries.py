"""Running figures of one column, merged from partial ones of batches, which any thread makes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Priorities = NDArray[np.uint64]

NUM_STEPS = 1000  # between the quantiles, of which there is one more
# More words than this, or longer ones, are identifiers or texts.
MOST_DISTINCT = 10_000_000
_MOST_WORD_BYTES = 2**30
# Partial figures are merged when they have so many words, or bytes.
_PENDING_WORDS = 2**20
_PENDING_BYTES = 2**28
_SPARE_VALUES = 2**16


def priorities_of(first: int, count: int) -> Priorities:
    """Return random priorities of the values from a number on, which only these numbers decide.

    They are the outputs of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
    generators", 2014), a bijection of the numbers.
    """
    return _mixed(np.arange(first + 1, first + count + 1, dtype=np.uint64))


def priorities_of_items(of_rows: Priorities, num_items: NDArray[np.int64]) -> Priorities:
    """Return random priorities of the items of rows, which their row and place in it decide."""
    places = np.arange(num_items.sum()) - np.repeat(np.cumsum(num_items) - num_items, num_items)
    return _mixed(np.repeat(of_rows, num_items) + places.astype(np.uint64))


def _mixed(mixed: Priorities) -> Priorities:
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return mixed


class Values(NamedTuple):
    """The values of one column of a batch, and which of them are valid."""

    values: Any  # numbers as an array, strings as an `Array` of Arrow
    valid: NDArray[np.bool_]
    priorities: Callable[[], Priorities]
    lists: tuple[NDArray[np.int64], NDArray[np.bool_]] | None  # their offsets, and which are valid


class Summary(Protocol):
    """Running figures of one column."""

    def reduced(self, given: Values) -> Any:
        """Return the partial figures of a batch; on any thread."""

    def add(self, partial: Any) -> None:
        """Merge the partial figures of the next batch."""

    def emptied(self) -> Summary:
        """Return one without figures, which reduces a batch as this one does."""

    def figures(self) -> dict[str, Any]:
        """Return the figures of all batches, by the attributes of `ColumnStatistics`."""


class Counts:
    """Numbers of values."""

    def __init__(self) -> None:
        """Begin without values."""
        self._count = self._nulls = 0

    def reduced(self, given: Values) -> tuple[int, int]:
        """Return the values of a batch that are valid, and the others."""
        count = int(given.valid.sum())
        return count, len(given.valid) - count

    def add(self, partial: tuple[int, int]) -> None:
        """Add both."""
        self._count += partial[0]
        self._nulls += partial[1]

    def emptied(self) -> Counts:
        """Return one without values."""
        return Counts()

    def figures(self) -> dict[str, Any]:
        """Return both of all batches."""
        return {"count": self._count, "nulls": self._nulls}


class NumbersPartial(NamedTuple):
    """The numbers of a batch; mean, squared deviations and bounds are of the finite ones."""

    nans: int
    infs: int
    num_finite: int
    mean: float = 0.0
    squares: float = 0.0
    bounds: tuple[Any, Any] = (None, None)
    sample: tuple[NDArray[Any], Priorities] | None = None


class Numbers:
    """Moments and bounds of numbers, and those of the smallest priorities."""

    def __init__(self, sample: int) -> None:
        """Begin without numbers; keep at most `sample` of them."""
        self._most = sample
        self._spare = max(sample // 8, _SPARE_VALUES)
        self._kept: list[tuple[NDArray[Any], Priorities]] = []
        self._num_kept = 0
        self._last_priority = np.uint64(2**64 - 1)
        self._sum = NumbersPartial(0, 0, 0)

    def reduced(self, given: Values) -> NumbersPartial:
        """Return the partial figures of a batch."""
        values, priorities = given.values, given.priorities()
        if not given.valid.all():
            values, priorities = values[given.valid], priorities[given.valid]
        nans = infs = 0
        if values.dtype.kind == "f":
            finite = np.isfinite(values)
            if not finite.all():
                nans = int(np.isnan(values).sum())
                infs = len(values) - int(finite.sum()) - nans
                values, priorities = values[finite], priorities[finite]
        if not len(values):
            return NumbersPartial(nans, infs, 0)
        with np.errstate(over="ignore", invalid="ignore"):
            deviations = values.astype(np.float64)
            mean = float(deviations.mean())
            deviations -= mean
            deviations *= deviations
            squares = float(deviations.sum())
        is_kept = priorities <= self._last_priority
        sample = (values, priorities) if is_kept.all() else (values[is_kept], priorities[is_kept])
        bounds = values.min().item(), values.max().item()
        return NumbersPartial(nans, infs, len(values), mean, squares, bounds, sample)

    def add(self, partial: NumbersPartial) -> None:
        """Merge the partial figures of the next batch.

        Means and squared deviations are merged by the formulas of Chan, Golub and LeVeque,
        "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
        """
        of = self._sum
        nans, infs, count = of.nans + partial.nans, of.infs + partial.infs, of.num_finite
        self._sum = of._replace(nans=nans, infs=infs)
        if partial.sample is None:
            return
        total = count + partial.num_finite
        change = partial.mean - of.mean
        bounds = partial.bounds
        if count:
            bounds = min(of.bounds[0], bounds[0]), max(of.bounds[1], bounds[1])
        self._sum = NumbersPartial(
            nans,
            infs,
            total,
            of.mean + change * (partial.num_finite / total),
            of.squares + partial.squares + change * change * (count / total * partial.num_finite),
            bounds,
        )
        # Copies, since a batch's memory holds all of its columns.
        self._kept.append((partial.sample[0].copy(), partial.sample[1]))
        self._num_kept += len(partial.sample[1])
        if self._num_kept > self._most + 2 * self._spare:
            # Priorities are uniform, so this many remain, and hardly ever less than the sample.
            share = (self._most + self._spare) / self._num_kept
            self._cut(np.uint64(int(int(self._last_priority) * share)))

    def emptied(self) -> Numbers:
        """Return one without numbers, which leaves out those that are too many here."""
        made = Numbers(self._most)
        made._last_priority = self._last_priority
        return made

    def _cut(self, last_priority: np.uint64) -> None:
        """Keep the values up to a priority, if they are enough."""
        values, priorities = (np.concatenate(of) for of in zip(*self._kept, strict=True))
        is_kept = priorities <= last_priority
        if is_kept.sum() >= self._most:
            values, priorities = values[is_kept], priorities[is_kept]
            self._last_priority = last_priority
        self._kept, self._num_kept = [(values, priorities)], len(priorities)

    def _sampled(self) -> NDArray[Any]:
        """Return the values of the smallest priorities."""
        values, priorities = (np.concatenate(of) for of in zip(*self._kept, strict=True))
        if len(priorities) <= self._most:
            return values
        last_priority = np.partition(priorities, self._most - 1)[self._most - 1]
        sample: NDArray[Any] = values[priorities <= last_priority]
        return sample

    def figures(self) -> dict[str, Any]:
        """Return the figures of all numbers."""
        found = self._sum
        figures: dict[str, Any] = {"nans": found.nans, "infs": found.infs, "num_sampled": 0}
        if found.num_finite:
            sample = self._sampled()
            low, high = found.bounds
            # Rounding must not make a deviation of equal values, by which users divide.
            mean, squares = (float(low), 0.0) if low == high else (found.mean, found.squares)
            figures |= {"min": low, "max": high, "num_sampled": len(sample)}
            figures |= {"mean": _finite(mean), "quantiles": _quantiles(sample)}
            figures["std"] = _finite(math.sqrt(squares / found.num_finite))
        return figures


def _finite(figure: float) -> float | None:
    return figure if math.isfinite(figure) else None


def _quantiles(values: NDArray[Any]) -> tuple[float, ...]:
    """Return the quantiles at equal steps, interpolated as `numpy.quantile` does by default."""
    ordered = np.sort(values).astype(np.float64)
    places = np.arange(NUM_STEPS + 1) * (len(ordered) - 1)
    below, share = places // NUM_STEPS, places % NUM_STEPS / NUM_STEPS
    low, high = ordered[below], ordered[np.minimum(below + 1, len(ordered) - 1)]
    with np.errstate(over="ignore", invalid="ignore"):
        found = low + (high - low) * share
    # The difference of huge numbers overflows.
    found = np.where(np.isfinite(found), found, low * (1 - share) + high * share)
    return tuple(np.maximum.accumulate(found).tolist())


class Words:
    """How often each value occurs."""

    def __init__(self, most_words: int) -> None:
        """Begin without words; keep the `most_words` most frequent of them."""
        self._most = most_words
        self._merged: pa.Table | None = None
        self._pending: list[pa.Table] = []
        self._is_dropped = False

    def reduced(self, given: Values) -> pa.Table | None:
        """Return the words of a batch and their counts."""
        if self._is_dropped:
            return None
        values = given.values
        if isinstance(values, np.ndarray):
            values = pa.array(values[given.valid])
        found = values.value_counts()
        words, counts = found.flatten()
        table = pa.table({"word": words, "count": counts})
        return table.filter(words.is_valid()) if words.null_count else table

    def add(self, partial: pa.Table | None) -> None:
        """Merge the partial figures of the next batch."""
        if partial is None or self._is_dropped:
            return
        self._pending.append(partial)
        merged = self._merged
        known_words, known_bytes = (0, 0) if merged is None else (len(merged), merged.nbytes)
        if sum(map(len, self._pending)) > max(_PENDING_WORDS, known_words) or (
            sum(one.nbytes for one in self._pending) > max(_PENDING_BYTES, known_bytes)
        ):
            self._merge()

    def emptied(self) -> Words:
        """Return one without words, which counts none where they are dropped here."""
        made = Words(self._most)
        made._is_dropped = self._is_dropped
        return made

    def _merge(self) -> None:
        tables = [*([] if self._merged is None else [self._merged]), *self._pending]
        if not tables:
            return
        sums = pa.concat_tables(tables).group_by("word").aggregate([("count", "sum")])
        self._merged = sums.rename_columns({"count_sum": "count"})
        self._pending = []
        num_bytes = self._merged["word"].nbytes
        if len(self._merged) > MOST_DISTINCT or num_bytes > _MOST_WORD_BYTES:
            self._is_dropped, self._merged = True, None

    def figures(self) -> dict[str, Any]:
        """Return the number of different words, and the most frequent ones."""
        self._merge()
        if self._is_dropped:
            return {"has_too_many_words": True}
        if self._merged is None:
            return {"distinct": 0}
        order = [("count", "descending"), ("word", "ascending")]
        most = self._merged.sort_by(order).slice(0, self._most).to_pydict()
        words = zip(map(_text, most["word"]), most["count"], strict=True)
        return {"distinct": len(self._merged), "words": tuple(words)}


def _text(word: bytes | int) -> str | bytes | int:
    """Return bytes of UTF-8 as text."""
    if isinstance(word, int):
        return word
    try:
        return word.decode()
    except UnicodeDecodeError:
        return word


LengthsPartial = tuple[int, NDArray[np.int64]]


class Lengths:
    """Lengths of lists, or of strings in bytes."""

    def __init__(self) -> None:
        """Begin without lists."""
        self._count = self._nulls = self._total = self._most = 0
        self._least: int | None = None

    def reduced(self, given: Values) -> LengthsPartial:
        """Return the null lists of a batch, and the lengths of the others."""
        assert given.lists is not None  # noqa: S101
        offsets, is_list = given.lists
        lengths = np.diff(offsets)[is_list]
        return len(is_list) - len(lengths), lengths

    def add(self, partial: LengthsPartial) -> None:
        """Merge the partial figures of the next batch."""
        nulls, lengths = partial
        self._nulls += nulls
        if len(lengths):
            self._count += len(lengths)
            self._total += int(lengths.sum())
            least = int(lengths.min())
            self._least = least if self._least is None else min(self._least, least)
            self._most = max(self._most, int(lengths.max()))

    def emptied(self) -> Lengths:
        """Return one without lists."""
        return Lengths()

    def figures(self) -> dict[str, Any]:
        """Return the figures of all lists."""
        found: dict[str, Any] = {"null_lists": self._nulls}
        if self._least is not None:
            found |= {"min_length": self._least, "max_length": self._most}
            found["mean_length"] = self._total / self._count
        return found
