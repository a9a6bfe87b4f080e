"""Batches of a recommender's sparse features, beside tensors made of pyarrow's record batches.

    python bench/sequences/keyed.py
    python bench/sequences/keyed.py --codec zstd

200 columns of lists of 0 to 50 int64 identifiers below a million, in row groups of 8,192 rows,
snappy unless said otherwise; batches of 8,192 rows. Each side delivers the values of all features,
feature after feature, and int32 lengths, as TorchRec's KeyedJaggedTensor takes them, and reads
them. Sides take turns in one process: two threads, page cache warm; a pass that does not count
comes first; medians. Seconds of the processor are those of all threads, which tell more where other
programs run beside.

"pyarrow" makes values and lengths of the columns of `iter_batches`, and joins them by NumPy.
"TorchEasyRec" does what its data parser does with features that are lists: a cast to lists of
int64, NumPy's views of values and lengths, torch.cat. "a Jagged per column" is torchparquet with
the columns one by one, joined by torch.cat.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from torchparquet import ParquetDataset

_DATA = Path(__file__).resolve().parents[1] / "data"
_KEYS = [f"feature_{number}" for number in range(200)]
_ROW_GROUP, _BATCH, _THREADS = 8_192, 8_192, 2

Parts = tuple[torch.Tensor, torch.Tensor]  # values, lengths


def _write(path: Path, num_rows: int, most: int, codec: str) -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".partial")
    schema = pa.schema([(key, pa.list_(pa.int64())) for key in _KEYS])
    with pq.ParquetWriter(part, schema, compression=codec, use_dictionary=False) as writer:
        for _ in range(num_rows // _ROW_GROUP):
            columns = []
            for _ in _KEYS:
                offsets = np.append(0, np.cumsum(rng.integers(0, most + 1, _ROW_GROUP)))
                values = rng.integers(0, 1_000_000, offsets[-1])
                columns.append(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values))
            writer.write_table(pa.table(columns, schema=schema))
    part.replace(path)


def _ours(path: Path, max_memory: str) -> Callable[[], Iterator[Parts]]:
    dataset = ParquetDataset(
        path,
        batch_size=_BATCH,
        columns={"sparse": _KEYS},
        num_threads=_THREADS,
        max_memory=max_memory,
    )
    return lambda: ((batch["sparse"].values, batch["sparse"].lengths) for batch in dataset)


def _one_by_one(path: Path, max_memory: str) -> Callable[[], Iterator[Parts]]:
    dataset = ParquetDataset(
        path, batch_size=_BATCH, columns=_KEYS, num_threads=_THREADS, max_memory=max_memory
    )

    def batches() -> Iterator[Parts]:
        for batch in dataset:
            values = torch.cat([batch[key].values for key in _KEYS])
            yield values, torch.cat([batch[key].lengths.int() for key in _KEYS])

    return batches


def _pyarrow(path: Path) -> Callable[[], Iterator[Parts]]:
    def batches() -> Iterator[Parts]:
        for batch in pq.ParquetFile(path).iter_batches(_BATCH, use_threads=True):
            values, lengths = [], []
            for column in batch.columns:
                offsets = column.offsets.to_numpy()
                values.append(column.values.to_numpy()[offsets[0] : offsets[-1]])
                lengths.append(np.diff(offsets))
            joined = np.concatenate(values), np.concatenate(lengths)
            yield torch.from_numpy(joined[0]), torch.from_numpy(joined[1])

    return batches


def _torcheasyrec(path: Path) -> Callable[[], Iterator[Parts]]:
    def batches() -> Iterator[Parts]:
        for batch in pq.ParquetFile(path).iter_batches(_BATCH, use_threads=True):
            values, lengths = {}, {}
            for name in batch.schema.names:
                lists = batch[name].cast(pa.list_(pa.int64()), safe=False)
                offsets = lists.offsets.to_numpy()
                values[name] = torch.from_numpy(lists.values.to_numpy().copy())
                lengths[name] = torch.from_numpy(offsets[1:] - offsets[:-1])
            yield (
                torch.cat([values[key] for key in _KEYS]),
                torch.cat([lengths[key] for key in _KEYS]),
            )

    return batches


def _pass(batches: Callable[[], Iterator[Parts]]) -> tuple[float, float, int]:
    begin, begin_cpu, checked = time.perf_counter(), time.process_time(), 0
    for values, lengths in batches():
        # As bytes, and with the places of values: sides must agree.
        checked += int(values[::4097].sum()) + int(lengths.sum()) + int(values.sum())
    return time.perf_counter() - begin, time.process_time() - begin_cpu, checked


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--codec", choices=("snappy", "zstd", "none"), default="snappy")
    parser.add_argument("--rows", type=int, default=2 * _ROW_GROUP)
    parser.add_argument("--most", type=int, default=50, help="the length of the longest lists")
    parser.add_argument("--max-memory", default="4GiB")
    given = parser.parse_args()
    torch.set_num_threads(1)
    pa.set_cpu_count(_THREADS)
    path = _DATA / f"keyed_{given.rows}_{given.most}_{given.codec}.parquet"
    if not path.exists():
        _write(path, given.rows, given.most, given.codec)
    sides = {
        "torchparquet": _ours(path, given.max_memory),
        "a Jagged per column": _one_by_one(path, given.max_memory),
        "pyarrow": _pyarrow(path),
        "TorchEasyRec": _torcheasyrec(path),
    }
    passes = [{name: _pass(side) for name, side in sides.items()} for _ in range(given.repeats + 1)]
    found = {checked for one in passes for *_, checked in one.values()}
    if len(found) > 1:
        raise SystemExit(f"sides read different values: {found}")
    print(f"{platform.machine()}, {datetime.date.today()}, {given.rows:,} rows, {given.codec}\n")
    print("| side | rows a second | time | processor time | of torchparquet |")
    print("| --- | ---: | ---: | ---: | ---: |")
    wall, cpu = (
        {name: statistics.median(one[name][kind] for one in passes[1:]) for name in sides}
        for kind in (0, 1)
    )
    for name in sides:
        print(
            f"| {name} | {given.rows / wall[name]:,.0f} | {wall[name] / wall['torchparquet']:.2f}x "
            f"| {cpu[name]:.2f} s | {cpu[name] / cpu['torchparquet']:.2f}x |"
        )


if __name__ == "__main__":
    main()
