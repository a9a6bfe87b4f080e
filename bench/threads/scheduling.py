r"""The cost of threads to each other, and what it allows on a machine with more cores.

    pip install . -C cmake.build-type=RelWithDebInfo \
        -C "cmake.define.CMAKE_CXX_FLAGS_RELWITHDEBINFO=-O3 -g1 -DNDEBUG -fno-omit-frame-pointer"
    python bench/threads/scheduling.py
    python bench/threads/scheduling.py --quick

Local files, a store (nginx on this machine, without delay and with 20 ms before each answer) and
shuffle windows; narrow and wide tables. A library that stands before the C library's locks counts
from outside, so the reader has no counters for it (probe.cc).

A task here is one column of one row group: its processor time, the time for which a decode thread
held a lock for it, by lock, and the waits of decode threads that ended. `opening` and `last` are
the time, once an epoch, before the first and after the last moment in which two decode threads
had work; `alone` is the part of the time between in which at most one had. `loop` and `client` are
the processor time of the consumer, which takes batches and counts their rows, and of the HTTP
client's threads, in parts of that of decode threads: the loop has one core, and the client as many
threads as a rank that has all cores gives it.

From W, the processor time of decode threads, and t(k), the time between in which k of them had
work, on C cores beside L other processes that want one. L is such that the work adds up:

    k threads get                g(k) = k * min(1, C / (L + k)) cores
    work done while k had it     w(k) = g(k) * t(k), and all of them are W
    one thread would take        T(1) = g(1) * t(0) + sum of w(k)
    n threads on n cores take    T(n) = g(1) * t(0) + sum of w(k) / k + time under locks
    an epoch                     both, repeated until W is --epoch-seconds, + opening + last
    serial share, by Karp-Flatt  s = (T(n) / T(1) - 1 / n) / (1 - 1 / n)
    speed-up, by Amdahl          S(m) = 1 / (s + (1 - s) / m)

The last columns are S(m) / m, or less where `loop` or `client` allow less. A lock that is
taken under another counts as that one; time for which its holder waited for a core does not count.
Bounds of memory bandwidth, of sockets and of the network are not in it. The median of the passes;
page cache warm. Other load spoils all but the processor times.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from report.machine import OtherLoad, described, environment
from report.tables import markdown
from stores.nginx import Distance, Place, store
from stores.readers import options_of_s3
from threads import probe
from torchparquet import ParquetDataset

_THREADS = (1, 2, 8, 16, 64, 128)
_CORES = (16, 64)
_DELAYS_MS = (0.0, 20.0)


class Table(NamedTuple):
    """A data set of files with the same content."""

    num_columns: int
    group_rows: int
    num_groups: int  # of each file
    num_files: int
    batch_size: int

    @property
    def num_tasks(self) -> int:
        """Columns of row groups."""
        return self.num_columns * self.num_groups * self.num_files


_TABLES = (
    Table(1, 1 << 20, 8, 32, 1 << 20),
    Table(2, 1 << 20, 8, 16, 1 << 19),
    Table(40, 1 << 17, 8, 8, 1 << 15),
    Table(1000, 1 << 15, 4, 4, 1 << 13),
)


class Found(NamedTuple):
    """One pass, in seconds as the module's text says.

    Attributes:
        work: Processor time of decode threads.
        locked: By lock.
        num_wakes: Waits of decode threads that ended.
        at_work: Between opening and last steps, the time by number of threads with work.
        once: Opening, last steps, and the part of both in which one thread had work.
        first_loop: Processor time of the consumer until the first batch.
        loop: The same after it.
        client: Processor time of threads that neither decode nor consume.
    """

    work: float
    locked: dict[str, float]
    num_wakes: int
    at_work: dict[int, float]
    once: tuple[float, float, float]
    first_loop: float
    loop: float
    client: float

    def cores_of(self, threads: int) -> float:
        """Return how many cores so many threads got."""
        cores = len(os.sched_getaffinity(0))

        def got(k: int, others: float) -> float:
            return k * min(1.0, cores / (others + k))

        def work(others: float) -> float:
            between = sum(got(k, others) * seconds for k, seconds in self.at_work.items())
            return between + got(1, others) * self.once[2]

        low, high = 0.0, 1000.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if work(middle) > self.work else (low, middle)
        return got(threads, low)

    def alone(self) -> float:
        """Return the part of the time between in which at most one thread had work."""
        return (self.at_work.get(0, 0) + self.at_work.get(1, 0)) / sum(self.at_work.values())

    def bound(self, threads: int, cores: int, epoch_seconds: float) -> float:
        """Return the speed-up of such an epoch on so many cores, in parts of the linear one."""
        done = {k: self.cores_of(k) * seconds for k, seconds in self.at_work.items() if k}
        none = self.cores_of(1) * self.at_work.get(0, 0.0)
        locked = sum(self.locked.values())
        times = epoch_seconds / self.work
        once = self.cores_of(1) * (self.once[0] + self.once[1])
        alone = times * (none + sum(done.values())) + once
        beside = times * (none + sum(work / k for k, work in done.items()) + locked) + once
        share = max(0.0, (beside / alone - 1 / threads) / (1 - 1 / threads))
        stages = (times * self.loop + self.first_loop, times * self.client / (cores // 4))
        return min(1 / (share * cores + 1 - share), alone / (max(stages) * cores))


def _write(folder: Path, table: Table) -> Path:
    """Write the files: half of the columns from dictionaries, half plain; Snappy."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    names = [f"c{i}" for i in range(table.num_columns)]
    kinds = [
        pa.array(rng.integers(0, 1000, table.group_rows, np.int32)),
        pa.array(np.rint(rng.lognormal(3, 1, table.group_rows)).astype(np.float32)),
    ]
    group = pa.table([kinds[i % 2] for i in range(table.num_columns)], names)
    first = folder / "0.parquet"
    with pq.ParquetWriter(first, group.schema, use_dictionary=names[::2]) as writer:
        for _ in range(table.num_groups):
            writer.write_table(group, row_group_size=table.group_rows)
    for number in range(1, table.num_files):
        os.link(first, folder / f"{number}.parquet")
    return folder


def _at_work(
    spans: Sequence[tuple[float, float]], begin: float, end: float
) -> tuple[dict[int, float], tuple[float, float, float]]:
    """Return the time between opening and last steps, by number of spans, and these."""
    changes = sorted([(one, 1) for one, _ in spans] + [(two, -1) for _, two in spans])
    moments = [(begin, 0), *changes, (end, 0)]
    stretches = []
    number = 0
    for (since, change), (until, _) in itertools.pairwise(moments):
        number += change
        stretches.append((number, since, until))
    shared = [(since, until) for number, since, until in stretches if number > 1]
    first, last = (shared[0][0], shared[-1][1]) if shared else (begin, end)
    seconds: dict[int, float] = defaultdict(float)
    one_of_once = 0.0
    for number, since, until in stretches:
        if first <= since and until <= last:
            seconds[number] += until - since
        elif number == 1:
            one_of_once += until - since
    return dict(seconds), (first - begin, end - last, one_of_once)


def _pass(dataset: Any, num_rows: int) -> Found:
    def all_others() -> float:
        return time.process_time() - time.thread_time()

    probe.begin()
    begin, loop, others = time.monotonic(), time.thread_time(), all_others()
    batches = iter(dataset)
    found_rows = len(next(batches)["c0"])
    first_loop = time.thread_time() - loop
    found_rows += sum(len(batch["c0"]) for batch in batches)
    end, loop_end, others_end = time.monotonic(), time.thread_time(), all_others()
    if found_rows != num_rows:
        raise RuntimeError(f"{found_rows:,} rows came, not {num_rows:,}")
    trace = probe.read()
    at_work, once = _at_work(trace.spans, begin, end)
    return Found(
        work=trace.cpu_seconds,
        locked=trace.locks,
        num_wakes=trace.num_wakes,
        at_work=at_work,
        once=once,
        first_loop=first_loop,
        loop=loop_end - loop - first_loop,
        client=max(0.0, others_end - others - trace.cpu_seconds),
    )


@contextmanager
def _ways(folder: Path) -> Iterator[dict[str, tuple[Any, dict[str, Any]]]]:
    """Yield, by name, what to read and the options for it."""
    ways: dict[str, tuple[Any, dict[str, Any]]] = {
        "local": (folder, {}),
        "shuffled": (folder, {"shuffle": True}),
    }
    distances = [Distance(ms, late_share=0, connection_kb_per_second=0) for ms in _DELAYS_MS]
    with (
        tempfile.TemporaryDirectory() as served,
        store(Path(served), {folder.name: folder}, distances) as endpoints,
    ):
        for delay, endpoint in zip(_DELAYS_MS, endpoints, strict=True):
            place = Place(endpoint, f"{folder.name}/")
            ways[f"remote, {delay:g} ms"] = (
                place.s3_url,
                {"storage_options": options_of_s3(place)},
            )
        yield ways


def _median(passes: Sequence[Found]) -> Found:
    """Return the pass whose share of time alone is the median."""
    return sorted(passes, key=Found.alone)[len(passes) // 2]


def _shown(table: Table, threads: int, found: Found, epoch_seconds: float) -> list[str]:
    def per_task(seconds: float) -> float:
        return seconds / table.num_tasks * 1e6

    locks = sorted(found.locked.items(), key=lambda item: -item[1])
    by_lock = [f"{name} {per_task(seconds):.2f}" for name, seconds in locks]
    shown = [
        f"{per_task(found.work):.0f}",
        ", ".join(text for text in by_lock if not text.endswith(" 0.00")),
        f"{found.num_wakes / table.num_tasks:.2f}",
    ]
    if threads > 1:
        rate = found.cores_of(1)
        shown += [f"{1e3 * rate * seconds:.1f}" for seconds in found.once[:2]]
        shown.append(f"{found.alone():.1%}")
    else:
        shown += ["-", "-", "-"]
    shown += [f"{found.loop / found.work:.1%}", f"{found.client / found.work:.1%}"]
    for cores in _CORES:
        shown.append(f"{found.bound(threads, cores, epoch_seconds):.2f}" if threads > 1 else "-")
    return shown


_HEADER = (
    "task µs",
    "under locks, µs a task",
    "wake-ups a task",
    "opening ms",
    "last ms",
    "alone",
    "loop",
    "client",
)


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=_THREADS)
    parser.add_argument("--columns", type=int, nargs="+", default=[t.num_columns for t in _TABLES])
    parser.add_argument("--ways", nargs="+", default=[""], help="parts of their names")
    parser.add_argument("--epoch-seconds", type=float, default=60.0)
    parser.add_argument("--quick", action="store_true", help="few threads and files, one pass")
    arguments = parser.parse_args()
    probe.load()
    tables = [table for table in _TABLES if table.num_columns in arguments.columns]
    if arguments.quick:
        arguments.passes, arguments.threads = 1, (2, 16)
        tables = [table._replace(num_files=1, num_groups=2) for table in tables]
    load = OtherLoad()
    rows: list[list[str]] = []
    for table in tables:
        with tempfile.TemporaryDirectory() as name:
            folder = _write(Path(name) / "table", table)
            num_rows = table.group_rows * table.num_groups * table.num_files
            with _ways(folder) as ways:
                for way, (paths, options) in ways.items():
                    if not any(part in way for part in arguments.ways):
                        continue
                    for threads in arguments.threads:
                        dataset = ParquetDataset(
                            paths,
                            batch_size=table.batch_size,
                            num_threads=threads,
                            rank=0,
                            world_size=1,
                            **options,
                        )
                        passes = [_pass(dataset, num_rows) for _ in range(arguments.passes + 1)]
                        shown = _shown(table, threads, _median(passes[1:]), arguments.epoch_seconds)
                        rows.append([way, str(table.num_columns), str(threads), *shown])
                        print(*rows[-1], file=sys.stderr, flush=True)
                        del dataset
    print(described(environment(max(arguments.threads))))
    print(f"other load: {load.cores():.2f} cores")
    print(markdown(["", "columns", "threads", *_HEADER, *map(str, _CORES)], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
