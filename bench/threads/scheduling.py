r"""How the reader's threads scale to 16 and 64 cores, on a machine that has two.

    pip install . -C cmake.build-type=RelWithDebInfo \
        -C "cmake.define.CMAKE_CXX_FLAGS_RELWITHDEBINFO=-O3 -g1 -DNDEBUG -fno-omit-frame-pointer"
    chrt --rr 1 python bench/threads/scheduling.py
    python bench/threads/scheduling.py --quick
    python bench/threads/scheduling.py --check

Local files, a store (nginx on this machine, without delay and with 20 ms before each answer) and
shuffle windows; narrow and wide tables. A library that stands before the C library's locks makes
the process D times slower: each thread sleeps D - 1 times as long as it uses the processor, before
it asks for a lock, lets one go, wakes others or waits (probe.cc). With D of four times the threads
the cores are mostly idle, and run the threads as so many cores would, each D times slower. All
times here are divided by D. A client of stores has as many threads as on a machine of that size.
The library also counts from outside, so the reader has no counters for it.

A task is one column of one row group. By row and number of threads:

    task µs         processor time of decode threads
    under locks     for which a decode thread held a lock, by lock, µs a task
    wake-ups        waits of decode threads that ended, a task
    ends ms         what an epoch takes beside its rows at the pace of its middle half
    busy            the part of their time for which decode threads decode, the consumer takes
                    batches and counts rows, and the client's threads bring bytes, in the middle
                    half or, the latter two, in all; the one near 100 % bounds the others
    GB/s read       bytes of files, and of decoded columns, in a second of such a long epoch: what
                    the store, its network and memory have to bear
    of linear       T(1) / (n T(n)) for an epoch of --epoch-seconds of decoding, both of the same
                    work: by how long threads decode, so that noise of the machine does not count

Not in it: the store's own process, what the kernel does for sockets outside of the process's
threads, bandwidth of memory and of the network, cache lines that go from core to core. A thread
that wakes up does so at once, but for what the machine takes, divided by D; where others use the
machine, `chrt` lets it. A thread that has slept finds cold caches, so its work counts by weights:
a part of an epoch without and with sleeping gives those of the consumer, the client, decoding, and
all that is done under locks.

--check compares T(1) and T(2) with and without the library, and a program that holds one lock for a
known part of its time with what that allows.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
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

_THREADS = (1, 16, 64)
_SLOWER = 3  # times the number of threads
_DELAYS_MS = (0.0, 20.0)
_PARTS = 4  # of an epoch, of which one gives the weights
_LIKELY = probe.Used(consumer=0.2, decode=0.8, client=0.5, locked=0.4)  # weights


class Table(NamedTuple):
    """A data set of files with the same content."""

    num_columns: int
    group_rows: int
    num_groups: int  # of each file
    num_files: int
    batch_size: int

    @property
    def num_rows(self) -> int:
        """Of all files."""
        return self.group_rows * self.num_groups * self.num_files

    @property
    def num_tasks(self) -> int:
        """Columns of row groups."""
        return self.num_columns * self.num_groups * self.num_files

    @property
    def decoded_bytes(self) -> int:
        """Of all files, whose values have four bytes each."""
        return 4 * self.num_columns * self.num_rows


_TABLES = (
    Table(1, 1 << 20, 8, 96, 1 << 20),
    Table(2, 1 << 20, 8, 48, 1 << 19),
    Table(40, 1 << 17, 8, 12, 1 << 15),
    Table(1000, 1 << 15, 4, 4, 1 << 13),
)


class Row(NamedTuple):
    """A case: the data, by how many threads, and how many times slower.

    Attributes:
        alone: Seconds of a part of an epoch with one thread, which leaves a core to the consumer.
    """

    paths: Any
    options: dict[str, Any]
    table: Table
    threads: int
    factor: int
    alone: probe.Used | None = None


class Found(NamedTuple):
    """One epoch, in seconds of a machine that is not slowed down.

    Attributes:
        epoch: From begin to end.
        middle: In which the middle half of the batches came.
        trace: The counts of the probe.
        used: By kind of work, weighed.
        plain: The counts of a part of such an epoch that was not slowed down.
        plain_part: That part, of all batches.
    """

    epoch: float
    middle: float
    trace: probe.Trace
    used: probe.Used
    plain: probe.Trace
    plain_part: float

    @property
    def ends(self) -> float:
        """Return the seconds of the epoch beside its rows."""
        return max(0.0, self.epoch - 2 * self.middle)

    def busy(self, epoch_seconds: float, threads: int) -> float:
        """Return the part of the time for which threads decode, in an epoch of so much decoding."""
        times = epoch_seconds / self.used.decode
        return epoch_seconds / threads / (self.ends + 2 * self.middle * times)


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


def _weights(plain: probe.Used, alone: probe.Used, slowed: probe.Used) -> probe.Used:
    """Return what a second of each kind of work counts for in an epoch that is slowed down."""
    # Two cores run many threads with colder caches than as many cores as threads would. But more
    # threads have more to do under locks.
    least = probe.Used(*map(min, plain, alone))._replace(locked=plain.locked)
    kinds = zip(least, slowed, strict=True)
    return probe.Used(*(min(1.0, one / two) if one else 1.0 for one, two in kinds))


def _epoch(dataset: Any) -> list[float]:
    """Return the moments before, between and after the batches of an epoch."""
    moments, num_batches = [time.monotonic()], 0
    for batch in dataset:
        num_batches += len(batch["c0"]) > 0
        moments.append(time.monotonic())
    probe.settle()
    moments.append(time.monotonic())
    if num_batches != len(dataset):
        raise RuntimeError(f"{num_batches:,} batches came, not {len(dataset)}")
    return moments


def _pass(row: Row) -> Found:
    # As on a machine of that size.
    os.sched_getaffinity = lambda _: set(range(row.threads))

    def made(num_steps: int | None) -> Any:
        return ParquetDataset(
            row.paths,
            batch_size=row.table.batch_size,
            limit_steps=num_steps,
            num_threads=row.threads,
            rank=0,
            world_size=1,
            **row.options,
        )

    whole = made(None)
    part = made(len(whole) // _PARTS)
    _epoch(part)  # connections, and memory that later epochs have
    probe.begin(1)
    _epoch(part)
    plain = probe.read()
    probe.begin(row.factor, _LIKELY)
    _epoch(part)
    weights = _weights(plain.used, row.alone or plain.used, probe.read().used)
    probe.begin(row.factor, weights)
    moments = _epoch(whole)
    trace = probe.read()
    half = len(moments) // 4
    return Found(
        epoch=(moments[-1] - moments[0]) / row.factor,
        middle=(moments[3 * half] - moments[half]) / row.factor,
        trace=trace,
        used=probe.Used(*(one * weight for one, weight in zip(trace.used, weights, strict=True))),
        plain=plain,
        plain_part=len(part) / len(whole),
    )


def _found(row: Row) -> Found:
    """Return what a pass in a process of its own finds."""
    context = multiprocessing.get_context("fork")
    ours, its = context.Pipe()
    process = context.Process(target=lambda: its.send(_pass(row)), daemon=True)
    process.start()
    its.close()
    try:
        found: Found = ours.recv()
    except EOFError:
        raise RuntimeError("a pass failed") from None
    finally:
        process.join()
    return found


@contextmanager
def _ways(
    folder: Path, factors: list[int]
) -> Iterator[dict[str, dict[int, tuple[Any, dict[str, Any]]]]]:
    """Yield, by name and by how many times slower, what to read and the options for it."""
    ways: dict[str, dict[int, tuple[Any, dict[str, Any]]]] = {
        "local": dict.fromkeys(factors, (folder, {})),
        "shuffled": dict.fromkeys(factors, (folder, {"shuffle": True})),
    }
    far = list(itertools.product(_DELAYS_MS, factors))
    distances = [Distance(ms * factor, 0, 0, 0) for ms, factor in far]
    with (
        tempfile.TemporaryDirectory() as served,
        store(Path(served), {folder.name: folder}, distances) as endpoints,
    ):
        for (ms, factor), endpoint in zip(far, endpoints, strict=True):
            place = Place(endpoint, f"{folder.name}/")
            way = ways.setdefault(f"remote, {ms:g} ms", {})
            way[factor] = (place.s3_url, {"storage_options": options_of_s3(place)})
        yield ways


def _client_threads(found: Found, threads: int, way: str) -> str:
    if "remote" not in way:
        return "-"
    return f"{found.used.client / found.epoch / max(1, threads // 4):.0%}"


def _rates(row: Row, found: Found, file_bytes: int, epoch_seconds: float) -> list[str]:
    """Return the GB/s that are read from files and decoded in a long epoch."""
    decodes = found.busy(epoch_seconds, row.threads) * row.threads / found.used.decode / 1e9
    return [f"{decodes * size:.1f}" for size in (file_bytes, row.table.decoded_bytes)]


def _shown(way: str, row: Row, found: Found, rates: list[str], linear: float) -> list[str]:
    table, threads = row.table, row.threads
    plain_tasks = table.num_tasks * found.plain_part
    locks = sorted(found.plain.locks.items(), key=lambda item: -item[1])
    by_lock = [f"{name} {seconds / plain_tasks * 1e6:.1f}" for name, seconds in locks]
    return [
        way,
        str(table.num_columns),
        str(threads),
        f"{found.plain.decode / plain_tasks * 1e6:.0f}",
        ", ".join(text for text in by_lock if not text.endswith(" 0.0")),
        f"{found.trace.num_wakes / table.num_tasks:.2f}",
        f"{1e3 * found.epoch:.1f}",
        f"{1e3 * found.ends:.1f}",
        f"{found.used.decode / found.epoch / threads:.0%}",
        f"{found.used.consumer / found.epoch:.0%}",
        _client_threads(found, threads, way),
        *rates,
        f"{linear:.2f}",
    ]


_HEADER = (
    "",
    "columns",
    "threads",
    "task µs",
    "under locks, µs a task",
    "wake-ups a task",
    "epoch ms",
    "ends ms",
    "threads busy",
    "loop busy",
    "client busy",
    "GB/s read",
    "GB/s decoded",
    "of linear",
)


def _check(tables: list[Table]) -> int:
    """Print T(1) and T(2) with the library by those without it, and known programs."""
    rows = []
    for table in tables:
        with tempfile.TemporaryDirectory() as name:
            folder = _write(Path(name) / "table", table)
            with _ways(folder, [1, _SLOWER, 2 * _SLOWER]) as ways:
                for way, by_factor in ways.items():
                    for threads in (1, 2):
                        plain, slowed = (
                            _found(Row(*by_factor[factor], table, threads, factor)).epoch
                            for factor in (1, _SLOWER * threads)
                        )
                        shown = [f"{1e3 * plain:.1f}", f"{1e3 * slowed:.1f}"]
                        shown.append(f"{slowed / plain:.2f}")
                        rows.append([way, str(table.num_columns), str(threads), *shown])
                        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    print(markdown(["", "columns", "threads", "plain ms", "slowed down ms", "ratio"], rows))
    rows = []
    times, beside, locked = 20, 900, 100
    for threads in (1, 4, 16, 64):
        probe.begin(_SLOWER * threads)
        seconds = probe.tried(threads, times, beside, locked) / _SLOWER / threads
        probe.read()
        known = times * max(beside + locked, threads * locked) / 1e6
        rows.append([str(threads), f"{1e3 * known:.1f}", f"{1e3 * seconds:.1f}"])
    print(markdown(["threads, a tenth under one lock", "computed ms", "slowed down ms"], rows))
    return 0


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=_THREADS)
    parser.add_argument("--columns", type=int, nargs="+", default=[t.num_columns for t in _TABLES])
    parser.add_argument("--ways", nargs="+", default=[""], help="parts of their names")
    parser.add_argument("--epoch-seconds", type=float, default=60.0)
    parser.add_argument("--quick", action="store_true", help="few threads and files")
    parser.add_argument("--check", action="store_true", help="compare with what is known")
    arguments = parser.parse_args()
    probe.load()
    tables = [table for table in _TABLES if table.num_columns in arguments.columns]
    if arguments.quick:
        arguments.threads = (1, 4)
        tables = [table._replace(num_files=table.num_files // 4) for table in tables]
    if arguments.check:
        return _check(tables)
    load = OtherLoad()
    rows: list[list[str]] = []
    for table in tables:
        with tempfile.TemporaryDirectory() as name:
            folder = _write(Path(name) / "table", table)
            file_bytes = sum(path.stat().st_size for path in folder.iterdir())
            factors = {threads: _SLOWER * threads for threads in arguments.threads}
            with _ways(folder, list(factors.values())) as ways:
                for way, by_factor in ways.items():
                    if not any(part in way for part in arguments.ways):
                        continue
                    one: Found | None = None
                    for threads, factor in factors.items():
                        row = Row(*by_factor[factor], table, threads, factor)
                        found = _found(row._replace(alone=one.plain.used if one else None))
                        one = one or found
                        linear = found.busy(arguments.epoch_seconds, threads) / one.busy(
                            arguments.epoch_seconds, arguments.threads[0]
                        )
                        rates = _rates(row, found, file_bytes, arguments.epoch_seconds)
                        rows.append(_shown(way, row, found, rates, linear))
                        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    print(described(environment(max(arguments.threads))))
    print(f"other load: {load.cores():.2f} cores")
    print(markdown(_HEADER, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
