"""The costs of order: shuffling within windows, resuming, planning, beginning a pass.

    python bench/order.py               # all four
    python bench/order.py --only shuffle

Shuffling: the click log of bench/throughput.py as several files, links to one, every byte of every
batch read, page cache warm, orders in turn, each in a process of its own, medians. With a single
file an epoch has two windows of 8, and the time in which its last one is consumed, with nothing
left to decode, counts for as much as it never does in training. Resuming: from `load_state_dict` to
the first batch after a state at the end of an epoch of 10,000 row groups, footers read before.
Planning: 1,000,000 row groups, the plan and one share, and what another world has left of it.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from generated import click_log
from passes.sides import take_turns
from routes.contenders import side, torchparquet_route
from torchparquet import ParquetDataset
from torchparquet._impl.plan.elastic import Leg, plan_leg
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions

_DIRECTORY = Path(__file__).resolve().parent
_ORDERS = {
    "file order": {},
    "row groups": {"shuffle": True, "shuffle_window": 0},
    "windows of 8": {"shuffle": True, "shuffle_window": 8},
}


def _copies(path: Path, number: int) -> Path:
    """Returns a directory with so many links to the file, made anew."""
    directory = path.with_name(f"{path.stem}_copies")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for copy in range(number):
        os.link(path, directory / f"{copy}.parquet")
    return directory


def shuffle(repeats: int, codecs: list[str], max_memory: str, num_files: int) -> None:
    """Prints the rate of each order beside that of the file order."""
    print(
        f"\nShuffling {num_files * click_log.ClickLogOptions().num_rows:,} rows, batches of 8192, "
        f"2 threads, max_memory {max_memory}\n"
    )
    print("| codec | order | GB/s | of file order | spread |")
    print("| --- | --- | ---: | ---: | ---: |")
    files = click_log.ensure_files(_DIRECTORY / "data", codecs, click_log.ClickLogOptions())
    for codec, path in files.items():
        epoch = _copies(path, num_files)
        routes = [
            torchparquet_route(2, name, max_memory=max_memory, **order)
            for name, order in _ORDERS.items()
        ]
        sides = [side(route, epoch, 8192) for route in routes]
        passes = take_turns(sides, repeats, content="same rows")
        in_file_order = statistics.median(one.seconds for one in passes["file order"])
        for name, those in passes.items():
            taken = [one.seconds for one in those]
            median = statistics.median(taken)
            spread = (max(taken) - min(taken)) / median
            print(
                f"| {codec} | {name} | {those[0].totals.num_bytes / 1e9 / median:.2f} | "
                f"{in_file_order / median:.2f} | {spread:.0%} |"
            )


def _median_ms(repeats: int, work: Callable[[], object]) -> float:
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken) * 1e3


def resume(repeats: int) -> None:
    """Prints the time from a state at the end of 10,000 row groups to the next batch."""
    with tempfile.TemporaryDirectory() as folder:
        table = pa.table({"x": np.arange(50_000), "y": np.arange(50_000) / 3})
        for number in range(10):
            path = Path(folder) / f"{number}.parquet"
            pq.write_table(table, path, row_group_size=50, compression="none")
        print("\nResuming at the end of 10,000 row groups, batches of 64\n")
        print("| order | ms to the first batch |")
        print("| --- | ---: |")
        for name, order in _ORDERS.items():
            dataset = ParquetDataset(folder, batch_size=64, **order)  # type: ignore[arg-type]
            dataset.seek(len(dataset) - 2)
            next(iter(dataset))
            state = dataset.state_dict()

            def go_on(dataset: ParquetDataset = dataset, state: dict[Any, Any] = state) -> None:
                dataset.load_state_dict(state)
                next(iter(dataset))

            print(f"| {name} | {_median_ms(repeats, go_on):.1f} |")


def plan(repeats: int) -> None:
    """Prints the time to plan 1,000,000 row groups."""
    rows = np.random.default_rng(0).integers(50_000, 150_000, 1_000_000)
    print("\nPlanning 1,000,000 row groups, shuffled, windows of 8\n")
    print("| ranks | ms for the plan and a share | ms for the rest, dealt to half the ranks |")
    print("| ---: | ---: | ---: |")
    for world_size in (1, 8, 512, 4096):
        options = PlanOptions(8192, shuffle=True, shuffle_window=8, world_size=world_size)
        steps = EpochPlan(rows, options).num_steps(0) // 2
        legs = [Leg(world_size, 1, 8192, steps), Leg(max(world_size // 2, 1) + 1, 1, 8192, 0)]

        def one_share(options: PlanOptions = options) -> None:
            EpochPlan(rows, options).share(0)

        def rest(options: PlanOptions = options, legs: list[Leg] = legs) -> None:
            made = plan_leg(rows, options, legs)
            assert made is not None
            made.share(0)

        planned, dealt = _median_ms(repeats, one_share), _median_ms(repeats, rest)
        print(f"| {world_size} | {planned:.0f} | {dealt:.0f} |")


def begin(repeats: int) -> None:
    """Prints the time of a pass over next to nothing, on a new data set and on the same one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.parquet"
        pq.write_table(pa.table({"x": np.arange(8_000)}), path, row_group_size=1_000)
        print("\nA pass over 8 row groups of 1,000 rows in 8 batches, 2 threads\n")
        print("| order | ms to make a data set | ms of its first pass | ms of another pass |")
        print("| --- | ---: | ---: | ---: |")
        for name, order in _ORDERS.items():

            def make(order: dict[str, Any] = order) -> ParquetDataset:
                return ParquetDataset(path, batch_size=1_000, num_threads=2, **order)

            made = [make() for _ in range(8 * repeats)]
            unread = iter(made)
            first = _median_ms(len(made), lambda unread=unread: list(next(unread)))  # type: ignore[misc]
            again = _median_ms(len(made), lambda made=made: list(made[0]))  # type: ignore[misc]
            print(f"| {name} | {_median_ms(8 * repeats, make):.2f} | {first:.2f} | {again:.2f} |")


def main() -> None:
    """Runs the parts that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["shuffle", "resume", "plan", "begin"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--codecs", nargs="+", default=["none", "lz4", "snappy", "zstd"])
    parser.add_argument("--max-memory", default="2GiB")
    parser.add_argument("--files", type=int, default=4, help="of the epoch that is shuffled")
    options = parser.parse_args()
    print(
        f"{datetime.datetime.now(tz=datetime.UTC).date()}, {platform.machine()}, "
        f"{os.cpu_count()} cores, numpy {np.__version__}"
    )
    if options.only in (None, "shuffle"):
        shuffle(options.repeats, options.codecs, options.max_memory, options.files)
    if options.only in (None, "resume"):
        resume(options.repeats)
    if options.only in (None, "plan"):
        plan(options.repeats)
    if options.only in (None, "begin"):
        begin(options.repeats)


if __name__ == "__main__":
    main()
