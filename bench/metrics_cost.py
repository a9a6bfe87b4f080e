"""The cost of the counters of `metrics()`, an upper bound, and of ranges for profilers.

    python bench/metrics_cost.py
    python bench/metrics_cost.py --codecs none --batch-sizes 256 8192
    python bench/metrics_cost.py --wait-ranges

Counters cannot be left out of a build, so this counts what a pass does for them and says what that
takes. A reading of the clock is timed from Python, which adds a call to it: more than it costs the
reader. Decode threads read the clock twice for each task, opening, read, page that is decompressed
and wait; the loop twice for each batch. Adding up goes by another reading of the clock for each
task, which is more than its additions take. All of it counts against the time that threads and
loop were at work, in the file order of the click log of bench/throughput.py, page cache warm.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import time
import timeit
from collections.abc import Callable
from pathlib import Path

from torch.profiler import record_function

from generated import click_log
from passes.consumption import consume
from torchparquet import ParquetDataset
from torchparquet._impl.metrics.wait_ranges import WAIT_RANGE, wait_range
from torchparquet._impl.native import ReaderStats

_DIRECTORY = Path(__file__).resolve().parent
_READINGS = 1_000_000
_CALLS = 100_000


def seconds_of_a_reading(repeats: int) -> float:
    """Returns the median seconds of reading the monotonic clock once, with Python's call."""
    timer = timeit.Timer("read()", globals={"read": time.perf_counter_ns})
    return statistics.median(timer.repeat(repeats, _READINGS)) / _READINGS


def count_readings(stats: ReaderStats) -> int:
    """Returns how often a pass has read the clock, at most."""
    columns = stats.columns
    tasks = sum(column.num_tasks for column in columns)
    reads = sum(column.num_reads for column in columns)
    pages = sum(column.num_decompressed for column in columns)
    # A task is timed, may open a column chunk, and is added up.
    return 5 * tasks + 2 * (reads + pages + stats.num_waits + stats.batches)


def work_seconds(stats: ReaderStats) -> float:
    """Returns the seconds that decode threads were at work, all together."""
    return sum(
        column.open_seconds
        + column.read_seconds
        + column.decompress_seconds
        + column.decode_seconds
        for column in stats.columns
    )


def stats_of_pass(dataset: ParquetDataset) -> ReaderStats:
    """Returns what the reader has counted in one epoch, every byte of every batch read."""
    iterator = iter(dataset)
    stream = iterator._stream_at(iterator.begin())
    consume(stream)
    return stream.reader.stats


def _nothing() -> None:
    """Stands for what is there already."""


def _with_a_range() -> None:
    with record_function(WAIT_RANGE):
        _nothing()


def print_wait_ranges(repeats: int) -> None:
    """Prints the least that the check for a profiler, and a range, add to a call."""

    def nanoseconds(call: Callable[[], object], calls: int) -> float:
        return min(timeit.repeat(call, number=calls, repeat=repeats)) / calls * 1e9

    bare = nanoseconds(_nothing, _CALLS)
    asked = nanoseconds(wait_range, _CALLS)
    ranged = nanoseconds(_with_a_range, _CALLS // 100)
    print(f"asking whether a profiler is active: {asked - bare:.0f} ns a batch")
    print(f"a range without asking: {ranged - bare:.0f} ns a batch")


def main() -> None:
    """Prints a table with a row for each codec and batch size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--codecs", nargs="+", default=["none", "lz4", "snappy", "zstd"])
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[256, 8192])
    parser.add_argument("--num-threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, default=click_log.ClickLogOptions.num_rows)
    parser.add_argument("--wait-ranges", action="store_true", help="only ranges for profilers")
    arguments = parser.parse_args()
    if arguments.wait_ranges:
        print_wait_ranges(max(15, arguments.repeats))
        return
    reading = seconds_of_a_reading(arguments.repeats)
    print(
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {platform.machine()}, "
        f"{os.cpu_count()} processors, {arguments.num_threads} threads; one reading of the clock "
        f"takes {reading * 1e9:.0f} ns\n"
    )
    print("| codec | batch size | readings | ms | at most, of the threads' work |")
    print("| --- | ---: | ---: | ---: | ---: |")
    options = click_log.ClickLogOptions(num_rows=arguments.rows)
    files = click_log.ensure_files(_DIRECTORY / "data", tuple(arguments.codecs), options)
    for codec, path in files.items():
        for batch_size in arguments.batch_sizes:
            dataset = ParquetDataset(path, batch_size=batch_size, num_threads=arguments.num_threads)
            fractions = []
            for _ in range(arguments.repeats + 1):
                stats = stats_of_pass(dataset)
                readings = count_readings(stats)
                fractions.append(readings * reading / work_seconds(stats))
            # The first pass warms the page cache and the memory of batches.
            print(
                f"| {codec} | {batch_size} | {readings} | {readings * reading * 1e3:.2f} | "
                f"{statistics.median(fractions[1:]):.3%} |"
            )


if __name__ == "__main__":
    main()
