"""How fast a data set is read, and what it costs: plain numbers of one moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from torchparquet.metrics.bottleneck import Sides, describe

# What was counted: (of what, its name, quantity) to a number that only grows.
Sums = dict[tuple[str, str, str], float]


@dataclass(frozen=True)
class CodecMetrics:
    """What column chunks of one codec have cost.

    Attributes:
        bytes_read: From the source, as they are stored; page headers included.
        bytes_decompressed: What compressed pages became.
        open_seconds: Spent on opening files, with their footers, and column chunks.
        read_seconds: Spent on reads from the source.
        decompress_seconds: Spent in the codec.
        decode_seconds: All other work of decode threads: headers, checksums, levels, values, and
            bringing them to their places.
    """

    bytes_read: int = 0
    bytes_decompressed: int = 0
    open_seconds: float = 0.0
    read_seconds: float = 0.0
    decompress_seconds: float = 0.0
    decode_seconds: float = 0.0


@dataclass(frozen=True)
class ColumnMetrics(CodecMetrics):
    """What one column of the files has cost, as `CodecMetrics` says it.

    Attributes:
        bytes_produced: Its part of the tensors of the batches that were delivered.
    """

    bytes_produced: int = 0


@dataclass(frozen=True)
class Ring:
    """How things stand: batches between decode threads and the loop.

    Attributes:
        num_threads: Decode threads.
        batches_ready: Complete, and waiting to be taken.
        batches_in_flight: Those, and the ones that are being decoded.
        max_batches_in_flight: How many there is room for.
        memory_bytes: Taken by batches in flight and what is kept beside them.
        max_memory_bytes: `max_memory`, or this process's part of it.
    """

    num_threads: int = 0
    batches_ready: int = 0
    batches_in_flight: int = 0
    max_batches_in_flight: int = 0
    memory_bytes: int = 0
    max_memory_bytes: int = 0


@dataclass(frozen=True)
class Metrics:
    """What a data set has read and who has waited for whom, of this process; see `metrics()`.

    Counts are of tasks that have ended (one column of one row group, as a rule), waits are up to
    this moment. Seconds of decode threads are those of all threads together.

    Attributes:
        elapsed_seconds: From the first batch that was asked for to the end, or to now.
        wait_seconds: Thereof, the loop waited for batches; the rest is its own work.
        first_wait_seconds: Thereof, for the first batch, when nothing is ready yet.
        batches: Delivered.
        rows: Delivered, before functions of the user's.
        bytes_read: From the source, compressed as it is; footers aside.
        bytes_produced: Of the tensors of the batches that were delivered.
        num_reads: Requests to the source.
        open_seconds: Decode threads spent on opening files and column chunks.
        read_seconds: On reads.
        decompress_seconds: In codecs.
        decode_seconds: On all the rest of decoding.
        threads_waited_for_loop_seconds: Decode threads were ahead of the loop.
        threads_waited_for_memory_seconds: Decode threads found no room for further batches while
            the loop waited too.
        ring: How things stand.
        columns: By name in the files, `row.id` and `row.valid` included.
        codecs: By name, such as "zstd" or "uncompressed".
        sources: Of a mix, the metrics of each data set; None for those that have none.
    """

    elapsed_seconds: float = 0.0
    wait_seconds: float = 0.0
    first_wait_seconds: float = 0.0
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
    ring: Ring = field(default_factory=Ring)
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
    def bottleneck(self) -> str:
        """One sentence: which side is slower, the figures that say so, and what to change."""
        sides = Sides(
            batches=self.batches,
            elapsed=self.elapsed_seconds,
            wait=self.wait_seconds,
            first_wait=self.first_wait_seconds,
            num_threads=self.ring.num_threads,
            reading=self.open_seconds + self.read_seconds,
            decompressing=self.decompress_seconds,
            decoding=self.decode_seconds,
            for_loop=self.threads_waited_for_loop_seconds,
            for_memory=self.threads_waited_for_memory_seconds,
            max_batches=self.ring.max_batches_in_flight,
            of_codec={name: one.decompress_seconds for name, one in self.codecs.items()},
            of_column={
                name: one.decompress_seconds + one.decode_seconds
                for name, one in self.columns.items()
            },
        )
        return describe(sides)

    def as_dict(self, *, columns: bool = True) -> dict[str, float]:
        """Return all numbers by name, flat, for loggers; rates and those of the ring included.

        Args:
            columns: Also those of columns and codecs, as `column/x/decode_seconds`, and those of
                the data sets of a mix, as `source/0/rows`.
        """
        numbers = _numbers(self) | _numbers(self.ring)
        numbers["rows_per_second"] = self.rows_per_second
        numbers["wait_fraction"] = self.wait_fraction
        if not columns:
            return numbers
        for kind, named in (("column", self.columns), ("codec", self.codecs)):
            for name, one in named.items():
                numbers |= _prefixed(f"{kind}/{name}/", _numbers(one))
        for number, source in enumerate(self.sources):
            if source is not None:
                numbers |= _prefixed(f"source/{number}/", source.as_dict())
        return numbers

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
        sums = summed([(self.sums(), 1), (earlier.sums(), -1)])
        before = earlier.sources or (None,) * len(self.sources)
        sources = [
            one if one is None or was is None else one.since(was)
            for one, was in zip(self.sources, before, strict=True)
        ]
        return metrics_of(sums, self.ring, sources)

    def sums(self) -> Sums:
        """Return what was counted, to be added and subtracted."""
        sums: Sums = {}
        for quantity, number in _numbers(self).items():
            sums["all", "", quantity] = number
        for kind, named in (("column", self.columns), ("codec", self.codecs)):
            for name, one in named.items():
                for quantity, number in _numbers(one).items():
                    sums[kind, name, quantity] = number
        return sums


def summed(parts: Iterable[tuple[Sums, int]]) -> Sums:
    """Return the sum of counts, each times its factor."""
    total: defaultdict[tuple[str, str, str], float] = defaultdict(int)
    for sums, factor in parts:
        for key, number in sums.items():
            total[key] += factor * number
    return dict(total)


def metrics_of(sums: Sums, ring: Ring, sources: Iterable[Metrics | None] = ()) -> Metrics:
    """Return what was counted as metrics."""
    own: dict[str, Any] = {}
    columns: dict[str, dict[str, Any]] = {}
    codecs: dict[str, dict[str, Any]] = {}
    for (kind, name, quantity), number in sums.items():
        if kind == "all":
            own[quantity] = number
        else:
            of = columns if kind == "column" else codecs
            of.setdefault(name, {})[quantity] = number
    return Metrics(
        **own,
        ring=ring,
        columns={name: ColumnMetrics(**numbers) for name, numbers in columns.items()},
        codecs={name: CodecMetrics(**numbers) for name, numbers in codecs.items()},
        sources=tuple(sources),
    )


def side_by_side(sources: Iterable[Metrics | None]) -> Metrics:
    """Return the metrics of a mix, whose data sets are read side by side by one loop.

    While the loop waits for one it waits for all: the time of each is that of the mix without
    what the loop waited for others.
    """
    known = [source for source in sources if source is not None]
    elapsed = max((source.elapsed_seconds for source in known), default=0.0)
    total = summed([(source.sums(), 1) for source in known])
    total["all", "", "elapsed_seconds"] = elapsed
    wait = total.get(("all", "", "wait_seconds"), 0.0)
    own: list[Metrics | None] = []
    for source in sources:
        if source is None:
            own.append(None)
            continue
        sums = source.sums()
        sums["all", "", "elapsed_seconds"] = elapsed - (wait - source.wait_seconds)
        own.append(metrics_of(sums, source.ring, source.sources))
    return metrics_of(total, rings([source.ring for source in known]), own)


def rings(all_rings: Iterable[Ring]) -> Ring:
    """Return how several things stand together."""
    sums: defaultdict[str, int] = defaultdict(int)
    for ring in all_rings:
        for name, number in _numbers(ring).items():
            sums[name] += number
    return Ring(**sums)


def _numbers(of: Any) -> dict[str, Any]:
    numbers = {one.name: getattr(of, one.name) for one in fields(of)}
    return {name: number for name, number in numbers.items() if isinstance(number, int | float)}


def _prefixed(prefix: str, numbers: Mapping[str, float]) -> dict[str, float]:
    return {prefix + name: number for name, number in numbers.items()}
