"""Sums up the reading of all streams of an iteration, or of a data set."""

from __future__ import annotations

import functools
import os
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import fields, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

from torchparquet._impl.metrics.read_metrics import (
    OF_DATA,
    CodecMetrics,
    ColumnMetrics,
    Metrics,
    Ring,
    added,
)

if TYPE_CHECKING:
    from torchparquet._impl.native import ReaderStats
    from torchparquet._impl.reading.stream import Stream

_OF_COLUMN = tuple(quantity.name for quantity in fields(CodecMetrics))
_OF_ALL = (*(name for name in _OF_COLUMN if name != "bytes_decompressed"), "num_reads")

# Adding up ended streams takes about as long as opening a stream, so it waits for so many.
_MAX_READINGS = 16


class Reading:
    """The counts of one stream since the loop first asked it. The stream holds this object."""

    def __init__(self, stream: Stream, begin: float, waited: float | None, is_first: bool) -> None:
        """Begin to count; see `ReadTotals.add`."""
        self._owner_pid = os.getpid()
        self._stream = weakref.ref(stream)
        reader = stream.reader
        self._begin = begin
        self._final: Metrics | None = None
        self._waits, self._gathered = reader.waits, reader.gathered
        self._other_wait = self._other_first_wait = 0.0
        if waited is not None:
            self._other_wait = waited - reader.stats.wait_seconds
            first = waited if is_first else 0.0
            self._other_first_wait = first - reader.stats.first_wait_seconds
        self.capacity = Ring(
            num_threads=reader.num_threads,
            max_batches_in_flight=reader.max_batches,
            max_memory_bytes=reader.max_memory_bytes,
        )
        reader.reading = self

    @property
    def has_ended(self) -> bool:
        """True if the counts are final."""
        return self._final is not None

    def end(self, stats: ReaderStats, names: Sequence[str]) -> None:
        """Take the final counts of the stream."""
        self._final = self._metrics_of(stats, names)

    def metrics(self) -> Metrics:
        """Return what was read so far, with the present ring, which is empty at the end."""
        stream = self._stream()
        if self._final is not None or stream is None:
            final = self._final or Metrics()
            # A stage may close the stream before its last batch is counted.
            return replace(final, ring=self.capacity, waits=self._waits.waits(final.batches))
        stats = stream.reader.stats
        ring = replace(
            self.capacity,
            batches_ready=stats.num_complete,
            batches_in_flight=stats.num_in_flight,
            memory_bytes=stats.held_bytes,
        )
        return replace(self._metrics_of(stats, stream.reader.task_names), ring=ring)

    def _metrics_of(self, stats: ReaderStats, names: Sequence[str]) -> Metrics:
        if self._owner_pid != os.getpid():
            return Metrics()  # a fork's copy of the stream reads nothing
        stream = self._stream()
        columns: dict[str, ColumnMetrics] = {}
        for name, column, delivered in zip(
            names, stats.columns, stats.delivered_bytes, strict=True
        ):
            made = ColumnMetrics(**_quantities(column, _OF_COLUMN), bytes_produced=delivered)
            columns[name] = added(columns[name], made) if name in columns else made
        own: dict[str, Any] = {of: sum(getattr(one, of) for one in stats.columns) for of in _OF_ALL}
        own["http_requests" if stats.is_http else "broker_requests"] = stats.num_requests
        batches = stats.batches if stream is None else stream.num_taken
        return Metrics(
            **own,
            batches=batches,
            waits=self._waits.waits(batches),
            rows=stats.rows + self._gathered.rows,
            wait_seconds=stats.wait_seconds + self._other_wait + self._gathered.seconds,
            first_wait_seconds=stats.first_wait_seconds + self._other_first_wait,
            threads_waited_for_loop_seconds=stats.wait_for_loop_seconds,
            threads_waited_for_memory_seconds=stats.wait_for_memory_seconds,
            threads_waited_for_bytes_seconds=stats.wait_for_bytes_seconds,
            retries=stats.num_retries,
            hedges=stats.num_hedges,
            hedges_won=stats.num_hedges_won,
            bytes_received=stats.bytes_received,
            bytes_wasted=stats.bytes_wasted,
            bytes_from_cache=stats.bytes_from_cache,
            threads_idle_at_end_seconds=stats.idle_at_end_seconds,
            threads_waited_for_lock_seconds=stats.wait_for_lock_seconds,
            threads_held_lock_seconds=stats.held_lock_seconds,
            elapsed_seconds=time.perf_counter() - self._begin,
            bytes_produced=sum(stats.delivered_bytes),
            columns=columns,
            codecs={
                name: CodecMetrics(**_quantities(codec, _OF_COLUMN))
                for name, codec in stats.codecs.items()
            },
        )

    def take_longest_wait(self) -> tuple[float, Any]:
        """Return the longest wait since the last call, and the place of what it was for."""
        return self._waits.take_longest()


def _quantities(of: object, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


class ReadTotals:
    """Adds up the counts of streams, per process."""

    def __init__(
        self, of_all: ReadTotals | None = None, excluded: tuple[int, int, int] = (0, 0, 0)
    ) -> None:
        """Begin at zero; counts are added to `of_all` too. `excluded` is that of the manifest."""
        self._of_all = of_all
        self._excluded: dict[str, Any] = dict(zip(OF_DATA, excluded, strict=True))
        self._reset()

    def _reset(self) -> None:
        self._owner_pid = os.getpid()
        self._ended = Metrics()
        self._seconds: dict[str, Any] = {"function_seconds": 0.0, "next_seconds": 0.0}
        self._readings: list[Reading] = []
        self._lock = threading.Lock()  # of the readings: other threads may ask for metrics
        self._capacity = Ring()
        self._is_first = True
        self._longest_wait: tuple[float, Any] = (0.0, None)  # of ended streams, since it was asked

    def _own(self) -> None:
        if self._owner_pid != os.getpid():
            self._reset()  # a fork has read nothing yet

    def add(self, stream: Stream, begin: float, waited: float | None = None) -> None:
        """Count the reading of a stream, whose first batch the loop has `waited` for already."""
        self._own()
        self._count(Reading(stream, begin, waited, self._is_first))

    def add_seconds(self, quantity: Literal["function_seconds", "next_seconds"], by: float) -> None:
        """Count time that the loop spent on the user's functions, or within `next`."""
        self._own()
        self._seconds[quantity] += by
        if self._of_all is not None:
            self._of_all.add_seconds(quantity, by)

    def _count(self, reading: Reading) -> None:
        self._own()
        with self._lock:
            self._is_first = False
            if len(self._readings) >= _MAX_READINGS:
                self._forget_ended()
            self._readings.append(reading)
            self._capacity = reading.capacity
        if self._of_all is not None:
            self._of_all._count(reading)

    def _forget_ended(self) -> None:
        ended = [reading for reading in self._readings if reading.has_ended]
        sums = functools.reduce(added, [reading.metrics() for reading in ended], self._ended)
        self._ended = replace(sums, ring=Ring())
        if self._of_all is None:
            self._longest_wait = self._longest_of(ended)
        self._readings = [reading for reading in self._readings if reading not in ended]

    def _longest_of(self, readings: Sequence[Reading]) -> tuple[float, Any]:
        found = [reading.take_longest_wait() for reading in readings]
        return max([self._longest_wait, *found], key=itemgetter(0))

    def take_longest_wait(self) -> tuple[float, Any]:
        """Return the longest wait since the last call, in seconds, and what it was for.

        Only of sums that no others are added to.
        """
        self._own()
        with self._lock:
            found, self._longest_wait = self._longest_of(self._readings), (0.0, None)
        return found

    def metrics(self) -> Metrics:
        """Return what was read so far."""
        self._own()
        with self._lock:
            self._forget_ended()
            reading = [reading.metrics() for reading in self._readings]
            total: Metrics = functools.reduce(added, reading, self._ended)
            ring = total.ring if reading else self._capacity
        return replace(total, ring=ring, **self._seconds, **self._excluded)
