"""Statistics of columns: what feature transforms and vocabularies are made of."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from torchparquet._impl.checks import (
    checked_int,
    checked_names,
    close_names,
    listed,
    plain_number,
    shown,
)
from torchparquet._impl.files.cache_file import write_to_disk
from torchparquet._impl.sequences.holding import HoldingOpener
from torchparquet._impl.statistics.column_pass import Machines, summarize
from torchparquet._impl.statistics.summaries import MOST_DISTINCT, NUM_STEPS
from torchparquet.dataset import ParquetDataset
from torchparquet.errors import one_line
from torchparquet.features import Bucketize, Clip, Scale

__all__ = ["ColumnStatistics", "Statistics"]

_FORMAT = "torchparquet.statistics"
_VERSION = 1
_AGAIN = "make it again by torchparquet stats, or Statistics.of(...).save(...)"
_COUNTS = ("count", "nulls", "nans", "infs", "num_sampled")
_OPTIONAL_COUNTS = ("distinct", "null_lists", "min_length", "max_length")
_FIGURES = ("mean", "std", "min", "max", "mean_length")


@dataclass(frozen=True)
class ColumnStatistics:
    """Statistics of the values of one column; of lists, those of their elements.

    A figure is None where it does not exist: of numbers for strings, of any without a value.

    Attributes:
        count: Values that are not null, NaN and infinite ones included.
        nulls: Values that are null.
        nans: Values that are NaN.
        infs: Values that are infinite. All figures below are of finite values.
        mean: The mean, in float64; None also if it overflows.
        std: The standard deviation of the population, as of sklearn's ``StandardScaler``: the
            square root of the mean squared deviation. None also if it overflows.
        min: The least value.
        max: The greatest value.
        quantiles: 1,001 floats, the quantiles at 0, 0.1, ... and 100 %, interpolated as
            ``numpy.quantile`` does by default; empty without a finite value.
        num_sampled: The number of values that the quantiles are of: all finite ones, or a uniform
            sample of them.
        distinct: The number of different values; None if words were not counted.
        words: Pairs of a value and its count, most frequent first, equal ones by value, at most
            ``max_words``. Strings are str, or bytes if they are not UTF-8.
        has_too_many_words: True if there are so many different values (10 million), or so long
            ones (1 GiB), that their words were dropped.
        null_lists: Lists, or strings, that are null.
        min_length: The least number of elements of a list, or of bytes of a string.
        mean_length: The mean number of them.
        max_length: The greatest number of them.
    """

    count: int
    nulls: int
    nans: int = 0
    infs: int = 0
    mean: float | None = None
    std: float | None = None
    min: int | float | None = None
    max: int | float | None = None
    quantiles: tuple[float, ...] = field(default=(), repr=False)
    num_sampled: int = 0
    distinct: int | None = None
    words: tuple[tuple[str | bytes | int, int], ...] = field(default=(), repr=False)
    has_too_many_words: bool = False
    null_lists: int | None = None
    min_length: int | None = None
    mean_length: float | None = None
    max_length: int | None = None

    def quantile(self, q: float) -> float:
        """Return the quantile at `q` from 0 to 1, between two stored ones by interpolation.

        Raises:
            ValueError: `q` is out of range, or the column has no finite number.
        """
        if not isinstance(plain_number(q), int | float) or not 0 <= q <= 1:
            raise ValueError(f"q must be from 0 to 1, got {shown(q)}")
        return self._quantile(q * NUM_STEPS)

    def _quantile(self, place: float) -> float:
        if not self.quantiles:
            raise ValueError("quantiles need a column of numbers that has a finite value")
        # So that a step is hit exactly where rounding missed it.
        place = round(place, 9)
        below = math.floor(place)
        low, high = self.quantiles[below], self.quantiles[min(below + 1, NUM_STEPS)]
        return low if low == high else low * (1 - (place - below)) + high * (place - below)

    def borders(self, num_buckets: int) -> list[float]:
        """Return the borders that cut the values into `num_buckets` buckets of equal shares.

        There are ``num_buckets - 1`` of them, ascending, or fewer where one value has the share of
        several buckets.

        Raises:
            TypeError: `num_buckets` is not an int.
            ValueError: It is below 2 or above 1,000, which is as many as the quantiles can tell,
                or the column has no finite number.
        """
        checked_int("num_buckets", num_buckets, 2, NUM_STEPS + 1)
        places = (number * NUM_STEPS / num_buckets for number in range(1, num_buckets))
        return sorted({self._quantile(place) for place in places})

    def scale(self) -> Scale:
        """Return the transform to a mean of 0 and a standard deviation of 1.

        Raises:
            ValueError: All values are equal, or there is none.
        """
        if self.mean is None or not self.std:
            raise ValueError(
                "a scale needs numbers that differ, with a deviation that float64 holds; clip this "
                "column first, or leave it out"
            )
        return Scale(self.mean, self.std)

    def clip(self, low: float = 0.01, high: float = 0.99) -> Clip:
        """Return the transform that bounds values by two quantiles, from 0 to 1.

        Raises:
            ValueError: A quantile is out of range, or the column has no finite number.
        """
        return Clip(self.quantile(low), self.quantile(high))

    def bucketize(self, num_buckets: int) -> Bucketize:
        """Return the transform to `num_buckets` buckets of equal shares, by `borders`."""
        return Bucketize(self.borders(num_buckets))

    def vocabulary(self, size: int | None = None, min_count: int = 1) -> list[Any]:
        """Return the most frequent words, most frequent first: strings for ``Column(vocab=...)``.

        Args:
            size: The most words; None for all.
            min_count: Leave out words that occur less often.

        Raises:
            ValueError: The statistics have no words, or not all that are asked for.
        """
        size = None if size is None else checked_int("size", size, 1, 2**62, " or None")
        checked_int("min_count", min_count, 1, 2**62)
        if self.has_too_many_words:
            raise ValueError(
                "the column looks like an identifier or a text, whose words are not kept; hash it "
                f"(Hash), or count some rows (filters=): more than {MOST_DISTINCT:,} different "
                "values, or 1 GiB of them"
            )
        if self.distinct is None and isinstance(self.min, float):
            raise ValueError("floats have no words; bucketize() makes buckets of them")
        if self.distinct is None:
            raise ValueError(
                "words of a column of integers are counted if it is named: "
                "Statistics.of(dataset, words=[name])"
            )
        found = [word for word, count in self.words if count >= min_count]
        is_cut = len(found) == len(self.words) < self.distinct
        if is_cut and (size is None or size > len(found)):
            raise ValueError(
                f"the statistics keep {len(self.words):,} of {self.distinct:,} words: ask for size="
                f"{len(self.words)} or less, a higher min_count, or make them with a higher "
                "max_words"
            )
        return found[:size]


class Statistics(Mapping[str, ColumnStatistics]):
    """Statistics of the columns of a data set, by the names of their tensors; it never changes.

    The columns of a group (``[B, F]`` or a `KeyedJagged`) have the names of their sources.
    """

    def __init__(self, columns: Mapping[str, ColumnStatistics], num_rows: int) -> None:
        """Take the statistics of `num_rows` rows, by column."""
        self._columns = dict(columns)
        self._num_rows = num_rows

    @property
    def num_rows(self) -> int:
        """The number of rows that were read."""
        return self._num_rows

    @staticmethod
    def of(
        dataset: ParquetDataset,
        *,
        words: Sequence[str] = (),
        max_words: int = 10_000,
        sample: int = 1_000_000,
    ) -> Statistics:
        """Read all rows of a data set once, on this process alone, and return their statistics.

        The rows are those of all ranks: `filters`, `rows` and `split` hold, and what divides an
        epoch or cuts it does not. Values are those of the tensors, after casts and vocabularies.
        Nulls are counted whatever becomes of them in a batch. The result does not depend on ranks,
        threads or batches, but for the last bits of mean and standard deviation.

        Args:
            dataset: A data set without functions (`processors`, `transform`, `Column(decode=)`)
                and without `Pack`. It keeps its epoch.
            words: Columns of integers whose values are counted too, as those of strings are.
            max_words: The most words of a column that are kept.
            sample: The most values of a column that quantiles are computed from. Of more, a uniform
                sample is drawn, with the same result each time: with 95 % confidence, the share of
                values below each quantile is off by at most sqrt(1.85 / sample), 0.14 % for a
                million. It takes up to 40 bytes per value and column of memory, and 5 MB.

        Raises:
            TypeError: An argument has a wrong type.
            ValueError: An argument is out of its range, `words` names a column that does not exist
                or is of floats, or the data set has functions or `Pack`.
        """
        return statistics_of(dataset, words, max_words, sample)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Statistics:
        """Return the statistics of a file that `save` wrote.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: The file is of another kind, damaged, or of a newer torchparquet.
        """
        content = Path(path).read_bytes()
        place = f": {os.fspath(path)!r}"
        try:
            found = json.loads(content)
            is_one = isinstance(found, dict) and found.get("format") == _FORMAT
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"no file of statistics, {_AGAIN} ({one_line(error)}){place}"
            ) from None
        if not is_one:
            raise ValueError(f"no file of statistics, {_AGAIN}{place}")
        if found.get("version") != _VERSION:
            raise ValueError(
                f"a file of statistics has version {found.get('version')!r}, and this torchparquet "
                f"reads version {_VERSION}: install the torchparquet that wrote it, or {_AGAIN}"
                f"{place}"
            )
        try:
            columns = {name: _column(one) for name, one in found["columns"].items()}
            return Statistics(columns, checked_int("rows", found["rows"], 0, 2**63))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"a file of statistics is damaged, {_AGAIN} ({one_line(error)}){place}"
            ) from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the statistics to a file of JSON, at once: others read the old or the new one.

        Raises:
            OSError: The file cannot be written.
        """
        path = checked_place(path)
        columns = {name: _as_json(column) for name, column in self._columns.items()}
        content = {"format": _FORMAT, "version": _VERSION, "rows": self._num_rows}
        text = json.dumps(
            content | {"columns": columns},
            allow_nan=False,
            ensure_ascii=False,
            separators=(",", ":"),
        )
        # Unlike caches, others may read it.
        write_to_disk(path, f"{text}\n".encode(), mode=0o666)

    def __getitem__(self, name: str) -> ColumnStatistics:
        """Return the statistics of a column.

        Raises:
            KeyError: There is no such column.
        """
        if name in self._columns:
            return self._columns[name]
        close = close_names(str(name), self._columns)
        meant = f"did you mean {close[0]!r}" if close else f"there are {listed([*self])}"
        raise KeyError(f"no statistics of {name!r}; {meant}")

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of columns, in the order of the data set."""
        return iter(self._columns)

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self._columns)

    def __repr__(self) -> str:
        """Return the number of rows, and the first names of columns."""
        return f"Statistics of {self._num_rows:,} rows: {listed([*self])}"


def checked_place(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file to write; raise unless its folder exists on this machine."""
    if "://" in os.fspath(path):
        raise ValueError(
            f"statistics are written to a local file; copy it to a store: {os.fspath(path)!r}"
        )
    if not Path(path).parent.is_dir():
        raise FileNotFoundError(
            f"a file needs a folder that exists; make it first: {os.fspath(Path(path).parent)!r}"
        )
    return Path(path)


def statistics_of(
    dataset: ParquetDataset,
    words: Sequence[str],
    max_words: int,
    sample: int,
    advance: Callable[[int], None] = lambda _: None,
    machines: Machines | None = None,
) -> Statistics:
    """Return `Statistics.of` a data set; `advance` is called with the rows that were read."""
    if not isinstance(dataset, ParquetDataset):
        raise TypeError(f"dataset must be a ParquetDataset, got {shown(dataset)}")
    words = checked_names(words, "words") if words else ()
    checked_int("max_words", max_words, 1, 2**31)
    checked_int("sample", sample, 1, 2**31)
    session = dataset._session
    if session.transforms is not None:
        raise ValueError(
            "statistics are of columns as they are read, before functions: give a data set without "
            "processors, transform and Column(decode=)"
        )
    streams = session.streams
    rows = streams.rows if isinstance(streams, HoldingOpener) else streams
    if any(field.pack is not None for field in streams.fields):
        raise ValueError("statistics are of rows, which Pack turns into sequences; leave out pack")
    found = summarize(
        rows,
        words=words,
        max_words=max_words,
        sample=sample,
        advance=advance,
        machines=machines,
    )
    columns = {name: ColumnStatistics(**figures) for name, figures in found.items()}
    return Statistics(columns, rows.manifest.num_rows)


def _as_json(column: ColumnStatistics) -> dict[str, Any]:
    """Return the attributes of a column for JSON."""
    found = {one.name: getattr(column, one.name) for one in fields(column)}
    words = [
        ({"hex": word.hex()} if isinstance(word, bytes) else word, count)
        for word, count in column.words
    ]
    return found | {"words": words}


def _column(found: dict[str, Any]) -> ColumnStatistics:
    """Return the column of its JSON values, checked."""
    if unknown := sorted(found.keys() - {one.name for one in fields(ColumnStatistics)}):
        raise ValueError(f"unknown: {listed(unknown)}")
    words = tuple(
        (bytes.fromhex(word["hex"]) if isinstance(word, dict) else word, count)
        for word, count in found["words"]
    )
    column = ColumnStatistics(**found | {"words": words, "quantiles": tuple(found["quantiles"])})
    counts: list[Any] = [getattr(column, name) for name in _COUNTS]
    counts += [one for name in _OPTIONAL_COUNTS if (one := getattr(column, name)) is not None]
    counts += [count for _, count in words]
    if not all(type(one) is int and one >= 0 for one in counts):
        raise ValueError("a count is no number from 0 on")
    figures: list[Any] = [getattr(column, name) for name in _FIGURES]
    figures = [one for one in figures if one is not None] + list(column.quantiles)
    if not all(type(one) in (int, float) and math.isfinite(one) for one in figures):
        raise ValueError("a figure is no number")
    if (column.std or 0) < 0 or type(column.has_too_many_words) is not bool:
        raise ValueError("a deviation is below 0, or a mark is neither true nor false")
    if len(column.quantiles) not in (0, NUM_STEPS + 1):
        raise ValueError(f"{len(column.quantiles)} quantiles")
    if any(low > high for low, high in pairwise(column.quantiles)):
        raise ValueError("quantiles descend")
    if not all(type(word) in (str, bytes, int) for word, _ in words):
        raise ValueError("a word is neither a string nor an integer")
    return column
