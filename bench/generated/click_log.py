"""A generated click log: one label, 13 numbers and 26 categories per row, in several codecs.

The table has the shape of a large public advertising log: wide, flat, all fixed-width, with
skewed categories. Files are written with pyarrow's defaults apart from the codec: nullable columns
without nulls, and dictionary encoding, which the continuous numbers outgrow, so that each of their
column chunks begins with dictionary indices and ends with plain values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

CODECS = ("none", "lz4", "snappy", "zstd")
NUM_NUMBERS = 13
NUM_COUNTS = 6
NUM_CATEGORIES = 26
LEAST_DISTINCT = 100
MOST_DISTINCT = 200_000
ZIPF_EXPONENT = 1.05
CLICK_RATE = 0.03
_GENERATOR_VERSION = 1
_METADATA_KEY = b"torchparquet.click_log"


@dataclass(frozen=True)
class ClickLogOptions:
    """The options that shape the table; two files with equal options hold equal rows."""

    num_rows: int = 4_000_000
    row_group_rows: int = 250_000
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError where a count is not positive."""
        if self.num_rows <= 0 or self.row_group_rows <= 0:
            raise ValueError(f"num_rows and row_group_rows must be positive, got {self}")


def schema() -> pa.Schema:
    """Returns the table's schema: every column nullable, as pandas and pyarrow write by default."""
    label = [("label", pa.int8())]
    numbers = [(f"number_{i:02d}", pa.float32()) for i in range(NUM_NUMBERS)]
    categories = [(f"category_{i:02d}", pa.int64()) for i in range(NUM_CATEGORIES)]
    return pa.schema(label + numbers + categories)


def distinct_counts() -> NDArray[np.int64]:
    """Returns the number of distinct values of each category column, evenly spaced in log scale."""
    spaced = np.geomspace(LEAST_DISTINCT, MOST_DISTINCT, NUM_CATEGORIES)
    return np.rint(spaced).astype(np.int64)


class _Category:
    """Draws category numbers 0 .. distinct - 1 with Zipf-like frequencies, in no value order."""

    def __init__(self, distinct: int, rng: np.random.Generator) -> None:
        weights = 1.0 / np.arange(1, distinct + 1) ** ZIPF_EXPONENT
        self._cumulative = np.cumsum(weights) / weights.sum()
        self._value_of_rank = rng.permutation(distinct).astype(np.int64)

    def draw(self, num_rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Returns ``num_rows`` values, int64 [num_rows]."""
        ranks = np.searchsorted(self._cumulative, rng.random(num_rows), side="right")
        return self._value_of_rank[np.minimum(ranks, len(self._value_of_rank) - 1)]


def row_groups(options: ClickLogOptions) -> Iterator[pa.Table]:
    """Yields the table one row group at a time."""
    rng = np.random.Generator(np.random.PCG64(options.seed))
    categories = [_Category(int(distinct), rng) for distinct in distinct_counts()]
    for begin in range(0, options.num_rows, options.row_group_rows):
        num_rows = min(options.row_group_rows, options.num_rows - begin)
        columns: list[pa.Array] = [pa.array((rng.random(num_rows) < CLICK_RATE).astype(np.int8))]
        for i in range(NUM_NUMBERS):
            # The first columns are counts with few distinct values, the others continuous.
            number = rng.lognormal(1.0, 1.0, num_rows)
            columns.append(pa.array((np.rint(number) if i < NUM_COUNTS else number).astype("f4")))
        columns += [pa.array(category.draw(num_rows, rng)) for category in categories]
        yield pa.Table.from_arrays(columns, schema=schema())


def _holds(path: Path, description: bytes) -> bool:
    if not path.exists():
        return False
    metadata = pq.read_metadata(path).metadata or {}
    return bool(metadata.get(_METADATA_KEY) == description)


def ensure_files(directory: Path, codecs: Any, options: ClickLogOptions) -> dict[str, Path]:
    """Writes the files that are not in ``directory`` yet and returns the path of each codec's.

    Args:
        directory: made when missing, with a ``.gitignore`` that covers all of it.
        codecs: names out of ``CODECS``.
        options: a file that was written with other options is replaced.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / ".gitignore").write_text("*\n")
    description = json.dumps({"version": _GENERATOR_VERSION} | asdict(options)).encode()
    paths = {codec: directory / f"click_log_{codec}.parquet" for codec in codecs}
    missing = {codec: path for codec, path in paths.items() if not _holds(path, description)}
    if not missing:
        return paths
    described = schema().with_metadata({_METADATA_KEY: description})
    partial = {codec: path.with_suffix(".partial") for codec, path in missing.items()}
    with ExitStack() as stack:
        writers = [
            stack.enter_context(pq.ParquetWriter(path, described, compression=codec))
            for codec, path in partial.items()
        ]
        for table in row_groups(options):
            for writer in writers:
                writer.write_table(table, row_group_size=options.row_group_rows)
    for codec, path in missing.items():
        partial[codec].replace(path)
    return paths
