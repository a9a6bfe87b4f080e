"""The cost of threads to each other: tasks so small that dealing them out is most of the work.

    python bench/threads/scheduling.py

A task is one column of one row group of 64 rows, uncompressed, about a thousandth of a usual one.
Tables are narrow and wide. Of each task: the processor time of the decode threads, opening and
decoding included; the time for which a thread holds the one lock under which tasks are dealt out;
and the times that a thread gave its core away to wait. Time that grows with the number of threads
is spent on each other. One thread holds the lock at a time, so tasks of T seconds keep
T / (time held) threads at work at most: the last column, for tasks of 300 µs.
Medians of the passes; page cache warm. With more threads than cores, one that holds the lock may
have to wait for a core, and that time counts.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from report.machine import described, environment
from report.tables import markdown
from torchparquet import ParquetDataset

_ROWS, _TASKS = 64, 20_000
_COLUMNS = (1, 8, 40, 200)
_THREADS = (1, 2, 4, 16, 64, 128)
_USUAL_SECONDS = 300e-6
_HEADER = ("CPU µs a task", "lock held, µs a task", "waits a task", "threads at most")


class Cost(NamedTuple):
    """Of one task.

    Attributes:
        seconds: Processor time of decode threads.
        held_seconds: Time in which one of them held the lock.
        switches: Times that a thread gave its core away to wait.
    """

    seconds: float
    held_seconds: float
    switches: float


def _write(path: Path, num_columns: int) -> None:
    values = pa.array(np.arange(_ROWS, dtype=np.int32))
    table = pa.table([values] * num_columns, [f"c{i}" for i in range(num_columns)])
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(path, table.schema, **options) as writer:
        for _ in range(_TASKS // num_columns):
            writer.write_table(table)


def _pass(dataset: ParquetDataset, num_tasks: int) -> Cost:
    def used() -> tuple[float, int]:
        of_all = resource.getrusage(resource.RUSAGE_SELF)
        of_loop = resource.getrusage(resource.RUSAGE_THREAD)
        return time.process_time() - time.thread_time(), of_all.ru_nvcsw - of_loop.ru_nvcsw

    seconds, switches = used()
    num_rows = sum(len(batch["c0"]) for batch in dataset)
    if num_rows * num_tasks == 0:
        raise RuntimeError("the data set is empty")
    seconds_after, switches_after = used()
    totals = (
        seconds_after - seconds,
        dataset.metrics().threads_held_lock_seconds,
        switches_after - switches,
    )
    return Cost(*(total / num_tasks for total in totals))


def _shown(costs: list[Cost]) -> list[str]:
    medians = Cost(*map(statistics.median, zip(*costs, strict=True)))
    return [
        f"{medians.seconds * 1e6:.2f}",
        f"{medians.held_seconds * 1e6:.2f}",
        f"{medians.switches:.2f}",
        f"{_USUAL_SECONDS / medians.held_seconds:,.0f}",
    ]


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=_THREADS)
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for num_columns in _COLUMNS:
            path = Path(folder) / f"{num_columns}.parquet"
            _write(path, num_columns)
            num_tasks = _TASKS // num_columns * num_columns
            costs: dict[int, list[Cost]] = {threads: [] for threads in arguments.threads}
            for _ in range(arguments.passes + 1):
                for threads, of_threads in costs.items():
                    dataset = ParquetDataset(path, batch_size=None, num_threads=threads)
                    of_threads.append(_pass(dataset, num_tasks))
            for threads, of_threads in costs.items():
                rows.append([str(num_columns), str(threads), *_shown(of_threads[1:])])
    print(described(environment(max(arguments.threads))))
    print(markdown(["columns", "threads", *_HEADER], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
