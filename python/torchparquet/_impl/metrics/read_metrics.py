"""The speed and the costs of reading a data set, as plain numbers at one moment."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from torch.utils.data import get_worker_info

from torchparquet._impl.metrics.bottleneck import describe
from torchparquet._impl.processors import num_own_processors
from torchparquet._impl.reading.waits import LENGTHS, Waits

# In the order of `Manifest.excluded`.
OF_DATA = ("files_excluded", "row_groups_excluded", "rows_excluded")


@dataclass(frozen=True)
class CodecMetrics:
    """The costs of the column chunks of one codec.

    Attributes:
        bytes_read: Stored bytes read from the source; page headers included.
        bytes_decompressed: Bytes of pages after decompression.
        open_seconds: Time spent on opening files, with their footers, and column chunks.
        read_seconds: Time spent on reads from the source.
        decompress_seconds: Time spent in the codec.
        decode_seconds: Time of all other work of decode threads: headers, checksums, levels,
            values, and copies to their places.
    """

    bytes_read: int = 0
    bytes_decompressed: int = 0
    open_seconds: float = 0.0
    read_seconds: float = 0.0
    decompress_seconds: float = 0.0
    decode_seconds: float = 0.0


@dataclass(frozen=True)
class ColumnMetrics(CodecMetrics):
    """The costs of one column of the files; see `CodecMetrics` for the other attributes.

    Attributes:
        bytes_produced: Bytes of the column in delivered batches.
    """

    bytes_produced: int = 0


@dataclass(frozen=True)
class Ring:
    """The present batches between decode threads and the loop.

    Attributes:
        num_threads: Decode threads.
        batches_ready: Complete batches that wait to be taken.
        batches_in_flight: Complete batches and batches under way.
        max_batches_in_flight: Limit of batches in flight.
        memory_bytes: Memory of batches in flight and of column readers.
        max_memory_bytes: `max_memory`, or the part of this process.
    """

    num_threads: int = 0
    batches_ready: int = 0
    batches_in_flight: int = 0
    max_batches_in_flight: int = 0
    memory_bytes: int = 0
    max_memory_bytes: int = 0


@dataclass(frozen=True)
class SlowestRank:
    """The rank whose loop spent the most time within `next` since all ranks were last compared.

    Attributes:
        rank: Its number in the world of torch.distributed.
        host: The name of its machine.
        next_seconds: That time.
        max_wait_seconds: Its longest wait for a batch in that time.
        origin: The batch of that wait, with its file or URL; "" if no wait was counted.
    """

    rank: int
    host: str
    next_seconds: float
    max_wait_seconds: float
    origin: str

    def __str__(self) -> str:
        """Return a sentence."""
        told = f"; its longest wait, {self.max_wait_seconds:.3g} s, was for {self.origin}"
        return (
            f"rank {self.rank} on {self.host} is the slowest: its loop spent "
            f"{self.next_seconds:.3g} s within next(){told if self.origin else ''}"
        )


@dataclass(frozen=True, repr=False)
class Metrics:
    """The reading and the waits of a data set in this process; see `metrics()`.

    Counts cover tasks that have ended; a task is usually one column of one row group. Waits include
    those under way. Seconds of decode threads are sums over all threads.

    Attributes:
        elapsed_seconds: Time since the loop asked for its first batch, up to the end or to now.
        wait_seconds: Part of it in which the loop waited for batches.
        first_wait_seconds: Part of `wait_seconds` for the first batch.
        function_seconds: Time in which the loop ran `processors` and `transform`, or waited for
            those that run them ahead; not part of `wait_seconds`.
        next_seconds: Time within the `next` calls that returned a batch.
        batches: Delivered batches.
        rows: Delivered rows, before the user's functions.
        bytes_read: Stored bytes read from the source, without footers.
        bytes_produced: Bytes of the tensors in delivered batches.
        num_reads: Requests to the source.
        open_seconds: Time of decode threads for opening files and column chunks.
        read_seconds: Time of decode threads for reads.
        decompress_seconds: Time of decode threads in codecs.
        decode_seconds: Time of decode threads for all other decoding.
        threads_waited_for_loop_seconds: Time in which decode threads were ahead of the loop.
        threads_waited_for_memory_seconds: Time in which decode threads had no room for further
            batches while the loop waited too.
        threads_waited_for_bytes_seconds: Time in which decode threads had no task whose bytes had
            come from a store.
        threads_idle_at_end_seconds: Time in which decode threads had no further work, until the
            last one of the epoch ended.
        threads_waited_for_lock_seconds: Time in which decode threads waited for the lock of the
            task queue. More threads do not help if it is much of their time.
        threads_held_lock_seconds: Time in which one of them held it.
        http_requests: Requests to a store by the native HTTP client. This and the following counts
            are of the process, while this data set was read.
        broker_requests: Ranges that the store's own library read, since its files have no address.
        retries: Requests that were made again.
        hedges: Second requests where the first byte was slow to come.
        hedges_won: Those whose answer came first.
        bytes_received: Bytes that came from the store.
        bytes_wasted: Those that came twice, or that nobody wanted any more.
        bytes_from_cache: Bytes that came from `cache_dir` instead.
        files_excluded: Files that `rows=Excluding(...)` leaves out as a whole. These three are
            facts of the data set, not of an iteration.
        row_groups_excluded: Row groups that it leaves out of other files.
        rows_excluded: Rows of these row groups.
        ring: The present batches in flight, a `Ring`.
        waits: How long the single waits for batches were, a `Waits`; counted when they end.
        slowest: The rank that data held up most, in metrics of all ranks; else None.
        columns: `ColumnMetrics` by name in the files; `row.id` and `row.valid` included.
        codecs: `CodecMetrics` by name of the codec, such as "zstd" or "uncompressed".
        sources: The metrics of each data set of a mix; None for a data set without metrics.
    """

    elapsed_seconds: float = 0.0
    wait_seconds: float = 0.0
    first_wait_seconds: float = 0.0
    function_seconds: float = 0.0
    next_seconds: float = 0.0
    batches: int = 0
    rows: int = 0
    bytes_read: int = 0
    bytes_produced: int = 0
    num_reads: int = 0
    open_seconds: float = 0.0
    read_seconds: float = 0.0
    decompress_seconds: float = 0.0
    decode_seconds: float = 0.0
    threads_waited_for_loop_seconds: float = 0.0
    threads_waited_for_memory_seconds: float = 0.0
    threads_waited_for_bytes_seconds: float = 0.0
    threads_idle_at_end_seconds: float = 0.0
    threads_waited_for_lock_seconds: float = 0.0
    threads_held_lock_seconds: float = 0.0
    http_requests: int = 0
    broker_requests: int = 0
    retries: int = 0
    hedges: int = 0
    hedges_won: int = 0
    bytes_received: int = 0
    bytes_wasted: int = 0
    bytes_from_cache: int = 0
    files_excluded: int = 0
    row_groups_excluded: int = 0
    rows_excluded: int = 0
    ring: Ring = field(default_factory=Ring)
    waits: Waits = field(default_factory=Waits)
    slowest: SlowestRank | None = None
    columns: Mapping[str, ColumnMetrics] = field(default_factory=dict)
    codecs: Mapping[str, CodecMetrics] = field(default_factory=dict)
    sources: tuple[Metrics | None, ...] = ()

    @property
    def rows_per_second(self) -> float:
        """Rows delivered per second of `elapsed_seconds`; 0 before the first batch."""
        return self.rows / self.elapsed_seconds if self.elapsed_seconds else 0.0

    @property
    def wait_fraction(self) -> float:
        """The part of `elapsed_seconds` that the loop waited, from 0 to 1."""
        return self.wait_seconds / self.elapsed_seconds if self.elapsed_seconds else 0.0

    @property
    def python_seconds(self) -> float:
        """The time of torchparquet's own Python: `next`, without waits and your functions."""
        return max(0.0, self.next_seconds - self.wait_seconds - self.function_seconds)

    @property
    def bottleneck(self) -> str:
        """One sentence: the slower side, the figures that say so, and one option to change."""
        worker = get_worker_info()
        processors = max(1, num_own_processors() // (worker.num_workers if worker else 1))
        return describe(self, processors, in_worker=worker is not None)

    def report(self) -> str:
        """Return lines for people: the shares of the loop's time, and the slower side."""
        within = self.wait_seconds + self.function_seconds + self.python_seconds
        parts = {
            "reader": self.wait_seconds,
            "torchparquet's own Python": self.python_seconds,
            "your functions": self.function_seconds,
            "your loop": max(0.0, self.elapsed_seconds - within),
        }
        total = max(self.elapsed_seconds, within) or 1.0
        rate = f"{self.rows_per_second:,.0f} rows/s"
        lines = [
            f"{self.batches:,} batches, {self.rows:,} rows in {self.elapsed_seconds:.3g} s, {rate}"
        ]
        lines += [f"{name:<26}{s:>9.3g} s {s / total:>5.0%}" for name, s in parts.items()]
        waits = self.waits
        lines.append(
            f"waits: half up to {waits.p50_seconds:.3g} s, 95 % up to {waits.p95_seconds:.3g} s, "
            f"99 % up to {waits.p99_seconds:.3g} s, the longest {waits.max_seconds:.3g} s"
        )
        lines += [] if self.slowest is None else [str(self.slowest)]
        return "\n".join([*lines, self.bottleneck])

    __repr__ = report

    def as_dict(self, *, columns: bool = True) -> dict[str, float]:
        """Return all numbers by name, flat, for loggers, with rates and the numbers of the ring.

        Args:
            columns: Also those of columns and codecs, as `column/x/decode_seconds`, and those of
                the data sets of a mix, as `source/0/rows`.
        """
        numbers = _numbers(self) | _numbers(self.ring)
        for name in ("rows_per_second", "wait_fraction", "python_seconds"):
            numbers[name] = getattr(self, name)
        for name in LENGTHS:
            numbers[f"wait_{name}"] = getattr(self.waits, name)
        if self.slowest is not None:
            numbers["slowest_rank"] = self.slowest.rank
            numbers["slowest_next_seconds"] = self.slowest.next_seconds
        if not columns:
            return numbers
        parts = {f"column/{name}": _numbers(one) for name, one in self.columns.items()}
        parts |= {f"codec/{name}": _numbers(one) for name, one in self.codecs.items()}
        sources = {f"source/{n}": one for n, one in enumerate(self.sources) if one is not None}
        parts |= {name: source.as_dict() for name, source in sources.items()}
        return numbers | {f"{of}/{name}": n for of, one in parts.items() for name, n in one.items()}

    def since(self, earlier: Metrics) -> Metrics:
        """Return what came after `earlier`, of the same data set and iterations; the ring is now's.

        Raises:
            ValueError: `earlier` counts more than this.
        """
        if earlier.batches > self.batches or len(earlier.sources) > len(self.sources):
            raise ValueError(
                "earlier must be metrics of the same iterations, taken before: got "
                f"{earlier.batches} batches, here {self.batches}"
            )
        before = earlier.sources or (None,) * len(self.sources)
        sources = tuple(
            one if one is None or was is None else one.since(was)
            for one, was in zip(self.sources, before, strict=True)
        )
        difference: Metrics = added(self, earlier, -1)
        excluded = {name: getattr(self, name) for name in OF_DATA}
        return replace(difference, ring=self.ring, sources=sources, **excluded)


def added(one: Any, other: Any, sign: int = 1) -> Any:
    """Return the sum of two records, number by number, with the sources of the first."""
    if isinstance(one, int | float):
        return one + sign * other
    if isinstance(one, Waits):
        return one.added(other, sign)
    if one is None or isinstance(one, tuple | SlowestRank):
        return one
    if isinstance(one, Mapping):
        zeros = {name: type(value)() for name, value in {**one, **other}.items()}
        return {n: added(one.get(n, zero), other.get(n, zero), sign) for n, zero in zeros.items()}
    names = [of.name for of in fields(one)]
    sums = {name: added(getattr(one, name), getattr(other, name), sign) for name in names}
    return replace(one, **sums)


def side_by_side(sources: Sequence[Metrics | None]) -> Metrics:
    """Return the metrics of a mix, whose data sets one loop reads side by side."""
    known = [source for source in sources if source is not None]
    elapsed = max((source.elapsed_seconds for source in known), default=0.0)
    total: Metrics = functools.reduce(added, known, Metrics())
    own_work = elapsed - total.next_seconds
    own = tuple(
        source and replace(source, elapsed_seconds=own_work + source.next_seconds)
        for source in sources
    )
    return replace(total, elapsed_seconds=elapsed, sources=own)


def _numbers(of: Any) -> dict[str, Any]:
    numbers = {one.name: getattr(of, one.name) for one in fields(of)}
    return {name: number for name, number in numbers.items() if isinstance(number, int | float)}
