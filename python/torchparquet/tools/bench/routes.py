"""The routes that are compared: torchparquet's, and pyarrow's usual ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

from torchparquet._impl.batches.fields import Field
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.opening import source_of
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.reading.read_options import ReadOptions
from torchparquet._impl.reading.streams import StreamOpener
from torchparquet._impl.reading.window_limits import window_in_effect, window_memory
from torchparquet.tools.bench.consumption import PassTotals, bytes_of_array, bytes_of_tensors

OURS = "torchparquet"


class Setting(NamedTuple):
    """One setting of the sweep."""

    num_threads: int
    batch_size: int


@dataclass(frozen=True)
class Data:
    """The data to read.

    Attributes:
        shuffle: True if torchparquet is to shuffle; pyarrow's routes cannot.
    """

    manifest: Manifest
    fields: tuple[Field, ...]
    columns: tuple[str, ...]
    shuffle: bool
    max_memory: int

    def by_file(self) -> Iterator[tuple[str, list[int]]]:
        """Yield each file with the numbers of its row groups."""
        manifest = self.manifest
        places = zip(
            manifest.row_group_file.tolist(), manifest.row_group_in_file.tolist(), strict=True
        )
        for file, groups in groupby(places, key=lambda place: place[0]):
            yield manifest.files[file], [group for _, group in groups]


Pass = Callable[[], PassTotals]


def torchparquet_pass(data: Data, setting: Setting) -> Pass:
    """Return a function that reads the data once; it reuses memory between passes."""
    options = ReadOptions(setting.num_threads, data.max_memory, pin_memory=False)
    source = StreamOpener(data.manifest, data.fields, options, False, False)
    plan = EpochPlan(data.manifest.row_group_num_rows, _plan_options(data, setting.batch_size))

    def once() -> PassTotals:
        totals = PassTotals()
        stream = source.open([plan.share(0)], 1)
        try:
            for batch in stream:
                parts = (part for values in batch.values() for part in bytes_of_tensors(values))
                totals.add(len(next(iter(batch.values()))), parts)
        finally:
            stream.close()
        return totals

    return once


def _plan_options(data: Data, batch_size: int) -> PlanOptions:
    if not data.shuffle:
        return PlanOptions(batch_size)
    window, window_rows = window_in_effect(
        None,
        data.manifest.row_group_num_rows,
        share_batch_size=batch_size,
        memory=window_memory(
            data.fields, batch_size, data.max_memory, row_ids=False, row_valid=False
        ),
        num_sharers=1,
    )
    return PlanOptions(batch_size, shuffle=True, shuffle_window=window, window_rows=window_rows)


def iter_batches_pass(data: Data, setting: Setting) -> Pass:
    """Return a function that reads the data once by `ParquetFile.iter_batches`."""

    def batches() -> Iterator[Any]:
        for path, groups in data.by_file():
            with pq.ParquetFile(source_of(path, data.manifest.remote)) as file:
                yield from file.iter_batches(setting.batch_size, groups, list(data.columns))

    return lambda: _consumed(batches(), setting.num_threads)


def row_group_pass(data: Data, setting: Setting) -> Pass:
    """Return a function that reads the data once by `read_row_group`, prefetching on a thread."""

    def read(path: str, group: int) -> Any:
        remote = data.manifest.remote
        source = source_of(path, remote)
        with pq.ParquetFile(source, memory_map=remote is None, pre_buffer=False) as file:
            return file.read_row_group(group, list(data.columns))

    def batches() -> Iterator[Any]:
        places = [(path, group) for path, groups in data.by_file() for group in groups]
        with ThreadPoolExecutor(1) as thread:
            pending = thread.submit(read, *places[0])
            for following in [*places[1:], None]:
                table = pending.result()
                if following is not None:
                    pending = thread.submit(read, *following)
                yield from table.to_batches(max_chunksize=setting.batch_size)

    return lambda: _consumed(batches(), setting.num_threads)


PYARROW_ROUTES: tuple[tuple[str, Callable[[Data, Setting], Pass]], ...] = (
    ("pyarrow iter_batches", iter_batches_pass),
    ("pyarrow row groups, prefetched", row_group_pass),
)


def _consumed(batches: Iterator[Any], num_threads: int) -> PassTotals:
    totals = PassTotals()
    with _arrow_threads(num_threads):
        for batch in batches:
            parts = (part for array in batch.columns for part in bytes_of_array(array))
            totals.add(batch.num_rows, parts)
    return totals


@contextmanager
def _arrow_threads(num_threads: int) -> Iterator[None]:
    before = pa.cpu_count()
    pa.set_cpu_count(num_threads)
    try:
        yield
    finally:
        pa.set_cpu_count(before)


def routes(*, pyarrow: bool) -> Sequence[tuple[str, Callable[[Data, Setting], Pass]]]:
    """Return all routes by name, ours first."""
    return ((OURS, torchparquet_pass), *(PYARROW_ROUTES if pyarrow else ()))
