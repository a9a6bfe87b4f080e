"""Features of a click log, transformed while they are decoded, beside libraries that do it after.

    python bench/features/transforms.py
    python bench/features/transforms.py --codec zstd

13 numbers are clipped, logged and scaled, and 26 categories hashed to 100,000 buckets, in batches
of 8,192 rows. "after torchparquet" transforms the batches of torchparquet by torch, "after pyarrow"
those of `iter_batches` by NumPy, whose hash is a multiplication: cheaper than XXH64, and worse.
"not transformed" is torchparquet without transforms. Sides take turns in one process: two threads,
page cache warm; a pass that does not count comes first; every value is read; medians. Seconds of
the processor are those of all threads.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

# The rooms of the bench.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from generated import click_log
from torchparquet import Column, ParquetDataset
from torchparquet.features import Clip, Hash, Log1p, Scale

_DATA = Path(__file__).resolve().parents[1] / "data"
_BATCH, _THREADS, _BUCKETS = 8_192, 2, 100_000
_NAMES = click_log.schema().names
_NUMBERS = [name for name in _NAMES if name.startswith("number")]
_CATEGORIES = [name for name in _NAMES if name.startswith("category")]
_LOW, _HIGH, _MEAN, _STD = 0.0, 1e4, 3.0, 2.0
_FACTOR = 0x9E3779B97F4A7C15

Batches = Callable[[], Iterator[list[torch.Tensor]]]


def _read(path: Path, columns: dict[str, Column]) -> Iterator[dict[str, torch.Tensor]]:
    yield from ParquetDataset(path, batch_size=_BATCH, columns=columns, num_threads=_THREADS)


def _ours(path: Path) -> Batches:
    steps = [Clip(_LOW, _HIGH), Log1p(), Scale(_MEAN, _STD)]
    columns = {name: Column(name, transform=steps, nulls=0) for name in _NUMBERS}
    columns |= {name: Column(name, transform=Hash(_BUCKETS), nulls=0) for name in _CATEGORIES}
    return lambda: (list(batch.values()) for batch in _read(path, columns))


def _plain(path: Path) -> Batches:
    columns = {name: Column(name, dtype="float32", nulls=0) for name in _NUMBERS}
    columns |= {name: Column(name, dtype="int64", nulls=0) for name in _CATEGORIES}
    return lambda: (list(batch.values()) for batch in _read(path, columns))


def _after(path: Path) -> Batches:
    def batches() -> Iterator[list[torch.Tensor]]:
        for batch in _plain(path)():
            numbers, categories = batch[: len(_NUMBERS)], batch[len(_NUMBERS) :]
            scaled = [(one.clamp(_LOW, _HIGH).log1p() - _MEAN) / _STD for one in numbers]
            yield scaled + [(one * (_FACTOR - 2**64)) % _BUCKETS for one in categories]

    return batches


def _pyarrow(path: Path) -> Batches:
    def batches() -> Iterator[list[torch.Tensor]]:
        names = _NUMBERS + _CATEGORIES
        for batch in pq.ParquetFile(path).iter_batches(_BATCH, columns=names):
            made = []
            for name in names:
                values = batch[name].to_numpy(zero_copy_only=False)
                if name in _NUMBERS:
                    clipped = values.astype(np.float32).clip(_LOW, _HIGH)
                    made.append((np.log1p(clipped) - _MEAN) / _STD)
                else:
                    made.append(
                        (values.astype(np.uint64) * np.uint64(_FACTOR)) % np.uint64(_BUCKETS)
                    )
            yield [torch.from_numpy(one.view(f"i{one.itemsize}")) for one in made]

    return batches


def _pass(batches: Batches) -> tuple[float, float]:
    begin, begin_cpu = time.perf_counter(), time.process_time()
    for batch in batches():
        for tensor in batch:
            tensor.sum()
    return time.perf_counter() - begin, time.process_time() - begin_cpu


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--codec", choices=click_log.CODECS, default="snappy")
    parser.add_argument("--rows", type=int, default=1_000_000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    pa.set_cpu_count(_THREADS)
    options = click_log.ClickLogOptions(num_rows=given.rows)
    path = click_log.ensure_files(_DATA, (given.codec,), options)[given.codec]
    sides = {
        "torchparquet": _ours(path),
        "not transformed": _plain(path),
        "after torchparquet": _after(path),
        "after pyarrow": _pyarrow(path),
    }
    passes = [{name: _pass(side) for name, side in sides.items()} for _ in range(given.repeats + 1)]
    wall, cpu = (
        {name: statistics.median(one[name][kind] for one in passes[1:]) for name in sides}
        for kind in (0, 1)
    )
    print(f"{platform.machine()}, {datetime.date.today()}, {given.rows:,} rows, {given.codec}\n")
    print("| side | rows a second | time | processor time |")
    print("| --- | ---: | ---: | ---: |")
    for name in sides:
        ratio = wall[name] / wall["torchparquet"]
        print(f"| {name} | {given.rows / wall[name]:,.0f} | {ratio:.2f}x | {cpu[name]:.2f} s |")


if __name__ == "__main__":
    main()
