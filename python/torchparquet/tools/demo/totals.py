"""Sums of columns: of the batches that training saw, and of the files as others read them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]
from numpy.typing import NDArray

from torchparquet.files.leaf import Leaf
from torchparquet.files.manifest import Manifest

_FLOAT_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Totals:
    """Of the values of one column.

    Attributes:
        count: Values that are not null.
        not_finite: Those of them that are NaN or infinite.
        total: Sum of the others; exact for integers, booleans, dates and times.
    """

    count: int = 0
    not_finite: int = 0
    total: int | float = 0

    def __add__(self, other: Totals) -> Totals:
        """Return the totals of both parts."""
        return Totals(
            self.count + other.count,
            self.not_finite + other.not_finite,
            self.total + other.total,
        )

    def agrees(self, other: Totals, sum_of_absolutes: float) -> bool:
        """Whether both are of the same values; floats may round differently by order."""
        if (self.count, self.not_finite) != (other.count, other.not_finite):
            return False
        if isinstance(self.total, int) and isinstance(other.total, int):
            return self.total == other.total
        return abs(self.total - other.total) <= _FLOAT_TOLERANCE * sum_of_absolutes


def totals_of(values: NDArray[Any], num_nulls: int = 0) -> Totals:
    """Return the totals of values of any numeric dtype, where nulls stand as zeros."""
    count = values.size - num_nulls
    if values.dtype.kind == "b":
        return Totals(count, 0, int(np.count_nonzero(values)))
    if values.dtype.kind == "f":
        finite = np.isfinite(values)
        num_finite = int(np.count_nonzero(finite))
        total = float(values.sum(where=finite, dtype=np.float64))
        return Totals(count, values.size - num_finite, total)
    if values.dtype.itemsize < 8:
        return Totals(count, 0, int(values.sum(dtype=np.int64)))
    # In halves, whose sums cannot overflow as that of timestamps would.
    high, low = values >> 32, values & 0xFFFFFFFF
    return Totals(count, 0, (int(high.sum()) << 32) + int(low.sum()))


@dataclass(frozen=True)
class ColumnFacts:
    """What another reader says about a column of the files.

    Attributes:
        totals: Of all rows.
        sum_of_absolutes: Of the finite values; measures how far float sums may differ.
        mean: Of the finite values; 0 without any.
        std: Their standard deviation; 0 without any.
    """

    totals: Totals
    sum_of_absolutes: float
    mean: float
    std: float


def read_facts(files: Sequence[str], columns: Sequence[Leaf]) -> tuple[str, dict[str, ColumnFacts]]:
    """Read the files with DuckDB, or with pyarrow where DuckDB is missing or has no such type.

    Returns:
        Which reader it was, and the facts of each column by name.
    """
    expressions = [_duckdb_expression(leaf) for leaf in columns]
    names = [leaf.path for leaf in columns]
    # A list of names is one of patterns to DuckDB, and its column names know no case.
    plain = not any(set(file) & set("*?[") for file in files)
    if plain and all(expressions) and len({name.casefold() for name in names}) == len(names):
        try:
            import duckdb  # noqa: F401
        except ImportError:
            pass
        else:
            return f"DuckDB {version('duckdb')}", _facts_of_duckdb(files, columns)
    return f"pyarrow {version('pyarrow')}", _facts_of_pyarrow(files, columns)


def _duckdb_expression(leaf: Leaf) -> str | None:
    """Return the SQL of the column's values as HUGEINT or DOUBLE; None where there is none."""
    name = '"' + leaf.path.replace('"', '""') + '"'
    if leaf.kind == "date":
        return f"date_diff('day', DATE '1970-01-01', {name})::HUGEINT"
    for unit in ("ms", "us", "ns"):
        if leaf.kind.startswith(f"timestamp[{unit}"):
            return f"epoch_{unit}({name})::HUGEINT"
    if leaf.kind.startswith("time"):
        return None
    return f"{name}::DOUBLE" if leaf.dtype.startswith("float") else f"{name}::HUGEINT"


def _facts_of_duckdb(files: Sequence[str], columns: Sequence[Leaf]) -> dict[str, ColumnFacts]:
    import duckdb

    selected = []
    for leaf in columns:
        value = _duckdb_expression(leaf)
        finite = f"isfinite({value}::DOUBLE)"
        selected += [
            f"count({value})",
            f"count({value}) FILTER (NOT {finite})",
            f"sum({value}) FILTER ({finite})",
            f"sum(abs({value}::DOUBLE)) FILTER ({finite})",
            f"avg({value}::DOUBLE) FILTER ({finite})",
            f"stddev_pop({value}::DOUBLE) FILTER ({finite})",
        ]
    # Names and files only; the values come from this process's own list of files.
    query = f"SELECT {', '.join(selected)} FROM read_parquet(?, hive_partitioning = false)"  # noqa: S608
    with duckdb.connect() as connection:
        row = connection.execute(query, [list(files)]).fetchone()
    assert row is not None  # noqa: S101
    facts = {}
    for index, leaf in enumerate(columns):
        count, not_finite, total, absolutes, mean, std = row[6 * index : 6 * index + 6]
        facts[leaf.path] = ColumnFacts(
            Totals(count, not_finite, total or 0), absolutes or 0.0, mean or 0.0, std or 0.0
        )
    return facts


def _facts_of_pyarrow(files: Sequence[str], columns: Sequence[Leaf]) -> dict[str, ColumnFacts]:
    names = [leaf.path for leaf in columns]
    facts = {name: ColumnFacts(Totals(), 0.0, 0.0, 0.0) for name in names}
    for file in files:
        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(columns=names):
                for name in names:
                    facts[name] = _merged(facts[name], _values(batch.column(name)))
    return facts


def _values(array: Any) -> NDArray[Any]:
    """Return the values of a pyarrow array that are not null; dates and times as integers."""
    array = array.drop_null()
    if pa.types.is_temporal(array.type):
        array = array.view(f"int{array.type.bit_width}")
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def _merged(facts: ColumnFacts, values: NDArray[Any]) -> ColumnFacts:
    """Return the facts with more values; moments as Chan, Golub and LeVeque combine them."""
    totals = facts.totals + totals_of(values)
    finite = values.astype(np.float64)
    finite = finite[np.isfinite(finite)]
    if len(finite) == 0:
        return ColumnFacts(totals, facts.sum_of_absolutes, facts.mean, facts.std)
    before = facts.totals.count - facts.totals.not_finite
    after = before + len(finite)
    step = float(finite.mean()) - facts.mean
    spread = facts.std**2 * before + float(finite.var()) * len(finite)
    spread += step**2 * before * len(finite) / after
    return ColumnFacts(
        totals,
        facts.sum_of_absolutes + float(np.abs(finite).sum()),
        facts.mean + step * len(finite) / after,
        math.sqrt(spread / after),
    )


def totals_of_rows(
    manifest: Manifest, row_ids: Iterable[int], columns: Sequence[Leaf]
) -> Mapping[str, Totals]:
    """Return the totals of single rows, read with pyarrow; a row counts as often as it is given."""
    names = [leaf.path for leaf in columns]
    totals = dict.fromkeys(names, Totals())
    for row in row_ids:
        group = int(np.searchsorted(manifest.row_group_first_row, row, side="right")) - 1
        path = manifest.files[int(manifest.row_group_file[group])]
        with pq.ParquetFile(path) as parquet:
            table = parquet.read_row_group(int(manifest.row_group_in_file[group]), columns=names)
        one = table.slice(row - int(manifest.row_group_first_row[group]), 1).combine_chunks()
        for name in names:
            totals[name] += totals_of(_values(one.column(name).combine_chunks()))
    return totals
