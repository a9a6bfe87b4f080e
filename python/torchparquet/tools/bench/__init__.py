"""`torchparquet bench`: time the reading of this data on this machine, by setting.

`consumption` reads every byte of batches. `routes` holds the ways to read that are compared.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from torchparquet._impl.batches.columns import resolve_columns
from torchparquet._impl.batches.fields import Field
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.processors import num_processors
from torchparquet.tools.bench.consumption import PassTotals
from torchparquet.tools.bench.routes import OURS, Data, Setting, routes
from torchparquet.tools.inspect.column_chunks import FooterFacts, read_facts, read_footer
from torchparquet.tools.inspect.tensors import tensor_of

# Fewer threads are chosen if they reach this part of the best speed.
_AS_GOOD = 0.95


@dataclass
class Timing:
    """The times of one route at one setting."""

    route: str
    setting: Setting
    totals: PassTotals = field(default_factory=PassTotals)
    seconds: list[float] = field(default_factory=list)

    @property
    def rows_per_second(self) -> float:
        """Rows per second of the median pass."""
        return self.totals.rows / statistics.median(self.seconds)

    def as_json(self) -> dict[str, Any]:
        """Return the times as JSON values."""
        median = statistics.median(self.seconds)
        return {
            "route": self.route,
            "num_threads": self.setting.num_threads,
            "batch_size": self.setting.batch_size,
            "seconds": [round(seconds, 6) for seconds in self.seconds],
            "median_seconds": round(median, 6),
            "rows_per_second": self.rows_per_second,
            "bytes_per_second": self.totals.num_bytes / median,
            "batches": self.totals.batches,
        }


def make_data(
    manifest: Manifest, columns: Sequence[str], *, sample_bytes: int, shuffle: bool, max_memory: int
) -> Data:
    """Choose the data to read: whole row groups from the start, up to a number of bytes."""
    with_rows = manifest.row_group_num_rows > 0
    sizes = manifest.row_group_num_bytes * with_rows
    before = np.cumsum(sizes) - sizes
    kept = manifest.keep(((before < sample_bytes) | (before == 0)) & with_rows)
    footers = read_facts(manifest, set(), lambda _: None)
    file = int(kept.row_group_file[0])
    leaves = [leaf.path for leaf in kept.schemas[int(kept.file_schema[file])]]
    stored = read_footer(kept.files[file], kept.remote).schema
    return Data(
        kept,
        tuple(_field(name, kept, footers) for name in columns),
        tuple(stored.column(leaves.index(name)).path for name in columns),
        shuffle,
        max_memory,
    )


def _field(name: str, manifest: Manifest, footers: FooterFacts) -> Field:
    """Return a column's default field, or one with a mask if the default could fail at nulls."""
    facts, masked = tensor_of(name, manifest)
    if masked is None:
        raise ValueError(f"column {name!r}: {facts.reason}")
    if footers.columns[name].null_count == 0 or masked.dtype.startswith("float"):
        return resolve_columns([name], manifest)[0]
    return masked


def settings(num_threads: Sequence[int], batch_sizes: Sequence[int]) -> list[Setting]:
    """Return all settings to try; by default powers of two up to the processors."""
    processors = num_processors()
    powers = [2**power for power in range(processors.bit_length()) if 2**power <= processors]
    threads = num_threads or sorted({*powers, processors})
    return [Setting(count, size) for size in batch_sizes for count in threads]


def sweep(
    data: Data,
    tried: Sequence[Setting],
    *,
    repeats: int,
    pyarrow: bool,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Timing]:
    """Time all routes at all settings, each after a pass that does not count.

    Every byte of every batch is read. The page cache is warm.
    """
    timings = []
    for setting in tried:
        for name, route in routes(pyarrow=pyarrow):
            timing = Timing(name, setting)
            once = route(data, setting)
            for repeat in range(repeats + 1):
                begin = time.perf_counter()
                timing.totals = once()
                seconds = time.perf_counter() - begin
                if timing.totals.rows != data.manifest.num_rows:
                    raise RuntimeError(
                        f"{name} delivered {timing.totals.rows} rows, footers claim "
                        f"{data.manifest.num_rows}"
                    )
                if repeat:
                    timing.seconds.append(seconds)
                advance(1)
            timings.append(timing)
    return timings


def choose(timings: Sequence[Timing]) -> dict[str, Any]:
    """Return the fastest setting, with the fewest threads that are nearly as fast.

    Training decides the batch size. The fastest one is in the report for comparison.
    """
    own = [timing for timing in timings if timing.route == OURS]
    others = [timing for timing in timings if timing.route != OURS]
    best = max(own, key=lambda timing: timing.rows_per_second)
    as_good = [
        timing
        for timing in own
        if timing.setting.batch_size == best.setting.batch_size
        and timing.rows_per_second >= _AS_GOOD * best.rows_per_second
    ]
    chosen = min(as_good, key=lambda timing: timing.setting.num_threads)
    fastest = max((timing.rows_per_second for timing in others), default=None)
    return {
        **chosen.setting._asdict(),
        "rows_per_second": chosen.rows_per_second,
        "times_pyarrow": None if fastest is None else chosen.rows_per_second / fastest,
    }
