"""Reading some rows of strings and lists, beside reading all rows and dropping the others.

    python bench/selected/lists.py

A million rows, uncompressed, in row groups of 250,000: strings of a dictionary of 5,000, strings of
12 letters that are all different, lists of 0 to 9 int64, and lists of 8 float32. A mask selects
single rows, or runs of 1,000. Sides take turns in one process: two threads, page cache warm,
medians. "all" reads all rows and drops none; "all, then drop" drops rows of each batch by the
mask, in torch. Both are multiples of the time for the rows that the mask selects.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from torchparquet import Jagged, ParquetDataset

_PATH = Path(__file__).resolve().parents[1] / "data" / "selected_lists.parquet"
_NUM_ROWS, _BATCH_SIZE, _THREADS = 1_000_000, 8192, 2
_CUTS = range(_BATCH_SIZE, _NUM_ROWS, _BATCH_SIZE)
_MASKS = ((0.01, 1), (0.1, 1), (0.5, 1), (0.9, 1), (0.5, 1000))


def _write() -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    words = np.array([f"word {number}" for number in range(5000)])
    ends = np.cumsum(rng.integers(0, 10, _NUM_ROWS))
    offsets = pa.array(np.append(0, ends), pa.int32())
    values = pa.array(rng.integers(0, 2**31, ends[-1]))
    vectors = pa.array(rng.random(8 * _NUM_ROWS, dtype=np.float32))
    table = pa.table(
        {
            "words": words[rng.integers(0, len(words), _NUM_ROWS)],
            "letters": [f"{number:012x}" for number in rng.integers(0, 2**47, _NUM_ROWS)],
            "lists": pa.ListArray.from_arrays(offsets, values),
            "vectors": pa.FixedSizeListArray.from_arrays(vectors, 8),
        }
    )
    _PATH.parent.mkdir(parents=True, exist_ok=True)
    part = _PATH.with_suffix(".partial")
    pq.write_table(table, part, row_group_size=250_000, compression="none")
    part.replace(_PATH)


def _dropped(value: Any, mask: torch.Tensor) -> Any:
    if isinstance(value, Jagged):
        kept = torch.repeat_interleave(mask, value.lengths)
        return value.values[kept], value.lengths[mask]
    return value[mask]


def _read(dataset: ParquetDataset, masks: list[torch.Tensor] | None = None) -> None:
    for number, batch in enumerate(dataset):
        for delivered in batch.values():
            value: Any = delivered
            if masks is not None:
                value = _dropped(value, masks[number])
            elif isinstance(value, Jagged):
                value = value.values, value.offsets
            for part in value if isinstance(value, tuple) else (value,):
                part.view(torch.uint8).sum(dtype=torch.int64)


def _taken(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    if not _PATH.exists():
        _write()
    rng = np.random.Generator(np.random.PCG64(2))
    print(f"{platform.machine()}, {datetime.date.today()}, {_NUM_ROWS:,} rows\n")
    print("| column | share | run | ms | all | all, then drop |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    options: dict[str, Any] = {"batch_size": _BATCH_SIZE, "num_threads": _THREADS}
    for column in ("words", "letters", "lists", "vectors"):
        every = ParquetDataset(_PATH, columns=[column], **options)
        for share, run in _MASKS:
            mask = np.repeat(rng.random(-(-_NUM_ROWS // run)) < share, run)[:_NUM_ROWS]
            some = ParquetDataset(_PATH, columns=[column], rows=mask, **options)
            masks = [torch.from_numpy(part) for part in np.split(mask, _CUTS)]
            sides: list[Callable[[], None]] = [
                lambda some=some: _read(some),  # type: ignore[misc]
                lambda every=every: _read(every),  # type: ignore[misc]
                lambda every=every, masks=masks: _read(every, masks),  # type: ignore[misc]
            ]
            turns = [[_taken(side) for side in sides] for _ in range(given.repeats + 1)][1:]
            ours, whole, drop = (statistics.median(times) for times in zip(*turns, strict=True))
            print(
                f"| {column} | {share:.0%} | {run} | {ours * 1e3:.1f} | {whole / ours:.2f}x | "
                f"{drop / ours:.2f}x |",
                flush=True,
            )


if __name__ == "__main__":
    main()
