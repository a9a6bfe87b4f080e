"""Samples per second beside the plain read, and what planning batches of unique keys takes.

    python bench/selected/sampling.py                  # both
    python bench/selected/sampling.py --plan 100000000 # a plan of as many rows only
    python bench/selected/sampling.py --plan 100000000 --ranks 8

Rows have 16 floats, a label that a tenth of them has, a weight and a user. An epoch of each kind is
read in turn, page cache warm, two threads, and every byte is added up; medians, and processor time,
which other work on the machine changes less. The plan is one of `unique=` for users drawn at
random, without files: hashes of keys are there. Batches of some blocks are checked.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from torchparquet import Balanced, ParquetDataset, Weights
from torchparquet._impl.plan.order import split_mix
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.sampling.policy import RowOrder
from torchparquet._impl.sampling.unique import UniqueKeys, most_frequent

_DIRECTORY = Path(__file__).resolve().parents[1] / "data"
_ROW_GROUP = 131_072
_ROWS_PER_USER = 50
_BATCH_SIZE = 8192
_PLANNED_BATCH = 65_536
_KINDS: dict[str, dict[str, Any]] = {
    "in file order": {},
    "shuffled": {"shuffle": True},
    "Balanced": {"shuffle": True, "sample": Balanced("label", {0: 1, 1: 1})},
    "Balanced, as many samples as rows": {"shuffle": True},
    "Weights": {"shuffle": True, "sample": Weights("weight")},
    "unique": {"shuffle": True, "unique": "user"},
}


def _file(num_rows: int) -> Path:
    path = _DIRECTORY / f"samples_{num_rows}.parquet"
    if path.exists():
        return path
    _DIRECTORY.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    columns: dict[str, Any] = {f"x{at}": rng.random(num_rows, dtype=np.float32) for at in range(16)}
    columns["label"] = (rng.random(num_rows) < 0.1).astype(np.int64)
    columns["weight"] = rng.random(num_rows) + 0.1
    columns["user"] = rng.integers(0, num_rows // _ROWS_PER_USER, num_rows)
    pq.write_table(pa.table(columns), path, row_group_size=_ROW_GROUP, compression="none")
    return path


def _read(num_rows: int, repeats: int) -> None:
    path = _file(num_rows)
    kinds = {name: dict(options) for name, options in _KINDS.items()}
    whole = Balanced("label", {0: 1, 1: 1}, num_rows)
    kinds["Balanced, as many samples as rows"]["sample"] = whole
    made: dict[str, float] = {}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    datasets: dict[str, ParquetDataset] = {}
    for name, options in kinds.items():
        begin = time.perf_counter()
        datasets[name] = ParquetDataset(
            path, batch_size=_BATCH_SIZE, columns=["*"], num_threads=2, **options
        )
        made[name] = time.perf_counter() - begin
    for _ in range(repeats):
        for name, dataset in datasets.items():
            begin, used, samples, total = time.perf_counter(), time.process_time(), 0, 0
            for batch in dataset:
                samples += len(batch["user"])
                for values in batch.values():
                    total ^= int(values.numpy().view(np.uint64).sum())
            seconds, used = time.perf_counter() - begin, time.process_time() - used
            found[name].append((samples / seconds / 1e6, used / samples * 1e9))
    print("| an epoch | samples per second, millions | ns of processor time | made in seconds |")
    print("|---|---|---|---|")
    for name, rates in found.items():
        rate, used = map(statistics.median, zip(*rates, strict=True))
        print(f"| {name} | {rate:.2f} | {used:.0f} | {made[name]:.2f} |")


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _plan(num_rows: int, num_ranks: int) -> None:
    rng = np.random.default_rng(2)
    keys = np.empty(num_rows, np.uint64)
    for begin in range(0, num_rows, 1 << 20):
        part = keys[begin : begin + (1 << 20)]
        part[:] = rng.integers(0, num_rows // _ROWS_PER_USER, len(part), dtype=np.uint64)
        part[:] = split_mix(part)
    before, start = _peak_bytes(), time.process_time()
    most, _ = most_frequent(keys)
    counted = time.process_time()
    if most > max(1, num_rows // _PLANNED_BATCH):
        raise SystemExit(f"a key has {most} rows, more than there are steps: plan more rows")
    sizes = np.full(-(-num_rows // _ROW_GROUP), _ROW_GROUP)
    sizes[-1] -= sizes.sum() - num_rows
    order = RowOrder(sizes, PlanOptions(_PLANNED_BATCH, shuffle=True))
    policy = UniqueKeys(
        order,
        keys,
        _PLANNED_BATCH // num_ranks,
        16,
        most_equal=most,
        num_ranks=num_ranks,
        drop_last=False,
    )
    moved = policy.num_moved(0)
    planned = time.process_time()
    twice, used = 0, 0.0
    blocks = range(len(policy.steps))
    checked = [*blocks[:8], *blocks[8:][-8:]]
    for block in checked:
        of_ranks = []
        for rank in range(num_ranks):
            asked = time.process_time()
            rows = policy.rows(0, block * num_ranks + rank)
            used += time.process_time() - asked
            of_ranks.append(np.array_split(keys[rows], policy.steps[block]))
        for batches in zip(*of_ranks, strict=True):
            step = np.concatenate(batches)
            twice += len(step) - len(np.unique(step))
    per_row = (_peak_bytes() - before) / num_rows + keys.itemsize
    num_steps = int(policy.steps[checked].sum())
    ranks = f", which {num_ranks} ranks have together" if num_ranks > 1 else ""
    print(
        f"{num_rows:,} rows, the most frequent key {most} times, batches of {_PLANNED_BATCH:,}"
        f"{ranks}; seconds of a processor: counted in {counted - start:.1f}, an epoch's exchange "
        f"of rows in {planned - counted:.1f}, {moved:,} rows moved ({moved / num_rows:.4%}), "
        f"{per_row:.1f} bytes a row at the peak; {twice} keys twice in {num_steps} batches, whose "
        f"rows take {used / num_ranks / num_steps:.3f} each, on each rank"
    )


def main() -> None:
    """Measures what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--plan", type=int, help="plan as many rows, and read nothing")
    parser.add_argument("--ranks", type=int, default=1, help="that have no key twice in a step")
    arguments = parser.parse_args()
    if arguments.plan is None:
        _read(arguments.rows, arguments.repeats)
    _plan(arguments.plan or 100_000_000, arguments.ranks)


if __name__ == "__main__":
    main()
