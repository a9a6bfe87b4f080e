"""`torchparquet bench`: time the reading of this data on this machine, beside pyarrow."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]
from numpy.typing import NDArray

from torchparquet._impl.batches.columns import resolve_columns
from torchparquet._impl.batches.fields import Field
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.processors import num_processors
from torchparquet._impl.reading.read_options import ReadOptions
from torchparquet._impl.reading.streams import StreamOpener
from torchparquet.jagged import Jagged
from torchparquet.tools.footers import read_facts, read_footer
from torchparquet.tools.tensors import tensor_of, window_of

OURS = "torchparquet"
# Fewer threads are chosen if they reach this part of the best speed.
_AS_GOOD = 0.95

Bytes = NDArray[np.uint8]


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

    def places(self) -> list[tuple[str, int]]:
        """Return the file of each row group, and its number there."""
        files = (self.manifest.files[file] for file in self.manifest.row_group_file.tolist())
        return list(zip(files, self.manifest.row_group_in_file.tolist(), strict=True))


def make_data(
    manifest: Manifest, columns: Sequence[str], *, sample_bytes: int, shuffle: bool, max_memory: int
) -> Data:
    """Choose the data to read: whole row groups from the start, up to a number of bytes."""
    with_rows = manifest.row_group_num_rows > 0
    sizes = manifest.row_group_num_bytes * with_rows
    before = np.cumsum(sizes) - sizes
    kept = manifest.keep(((before < sample_bytes) | (before == 0)) & with_rows)
    facts = read_facts(kept, ()).columns
    fields = []
    for name in columns:
        tensor, field = tensor_of(name, kept)
        if field is None:
            raise ValueError(f"column {name!r}: {tensor['reason']}")
        # A mask only where the default could fail at nulls.
        has_nulls = facts[name].null_count != 0 and not field.dtype.startswith("float")
        fields.append(field if has_nulls else resolve_columns([name], kept)[0])
    file = int(kept.row_group_file[0])
    leaves = [leaf.path for leaf in kept.schemas[int(kept.file_schema[file])]]
    stored = read_footer(kept.files[file], kept.listing).schema
    names = tuple(stored.column(leaves.index(name)).path for name in columns)
    return Data(kept, tuple(fields), names, shuffle, max_memory)


class PassTotals(NamedTuple):
    """The totals of one pass over the data.

    Attributes:
        checksum: Sum of all bytes as 64-bit words; it only proves that they were read.
    """

    rows: int
    num_bytes: int
    batches: int
    checksum: int


def _consumed(batches: Iterable[tuple[int, Iterator[Bytes]]]) -> PassTotals:
    """Read the bytes of batches, each of which has a number of rows."""
    num_rows = num_bytes = num_batches = checksum = 0
    for rows, parts in batches:
        num_rows += rows
        num_batches += 1
        for part in parts:
            words = len(part) // 8 * 8
            checksum += int(part[:words].view(np.uint64).sum()) + int(part[words:].sum())
            num_bytes += len(part)
    return PassTotals(num_rows, num_bytes, num_batches, checksum % 2**64)


def _bytes_of_tensors(values: Any) -> Iterator[Bytes]:
    if isinstance(values, Jagged):
        yield from _bytes_of_tensors(values.offsets)
        yield from _bytes_of_tensors(values.values)
    else:
        yield np.ascontiguousarray(values.numpy()).reshape(-1).view(np.uint8)


def _bytes_of_array(array: Any) -> Iterator[Bytes]:
    """Yield the memory of a pyarrow array; of one cut in slices, all of it with the first slice."""
    if array.offset == 0:
        for buffer in array.buffers():
            if buffer is not None:
                yield np.frombuffer(buffer, np.uint8)
        if pa.types.is_dictionary(array.type):
            yield from _bytes_of_array(array.dictionary)


Pass = Callable[[], PassTotals]


def torchparquet_pass(data: Data, setting: Setting) -> Pass:
    """Return a function that reads the data once; it reuses memory between passes."""
    rows, batch_size = data.manifest.row_group_num_rows, setting.batch_size
    options = PlanOptions(batch_size)
    if data.shuffle:
        window, window_rows = window_of(rows, data.fields, batch_size, data.max_memory)
        options = PlanOptions(
            batch_size, shuffle=True, shuffle_window=window, window_rows=window_rows
        )
    share = EpochPlan(rows, options).share(0)
    read = ReadOptions(setting.num_threads, data.max_memory, pin_memory=False)
    source = StreamOpener(data.manifest, data.fields, read, False, False)

    def once() -> PassTotals:
        with closing(source.open([share], 1)) as stream:
            columns = (list(batch.values()) for batch in stream)
            return _consumed(
                (len(of[0]), chain.from_iterable(map(_bytes_of_tensors, of))) for of in columns
            )

    return once


def _iter_batches(data: Data, batch_size: int) -> Iterator[Any]:
    """Yield batches of `ParquetFile.iter_batches`."""
    for path, places in groupby(data.places(), key=lambda place: place[0]):
        groups = [group for _, group in places]
        with pq.ParquetFile(data.manifest.listing.source(path)) as file:
            yield from file.iter_batches(batch_size, groups, list(data.columns))


def _row_groups(data: Data, batch_size: int) -> Iterator[Any]:
    """Yield batches of `read_row_group`, which a thread calls for the next one meanwhile."""
    listing = data.manifest.listing

    def read(path: str, group: int) -> Any:
        source = listing.source(path)
        with pq.ParquetFile(source, memory_map=listing.store is None, pre_buffer=False) as file:
            return file.read_row_group(group, list(data.columns))

    places = data.places()
    with ThreadPoolExecutor(1) as thread:
        pending = thread.submit(read, *places[0])
        for following in [*places[1:], None]:
            table = pending.result()
            if following is not None:
                pending = thread.submit(read, *following)
            yield from table.to_batches(max_chunksize=batch_size)


def _pyarrow_pass(
    batches: Callable[[Data, int], Iterator[Any]], data: Data, setting: Setting
) -> Pass:
    def once() -> PassTotals:
        before = pa.cpu_count()
        pa.set_cpu_count(setting.num_threads)
        try:
            return _consumed(
                (batch.num_rows, chain.from_iterable(map(_bytes_of_array, batch.columns)))
                for batch in batches(data, setting.batch_size)
            )
        finally:
            pa.set_cpu_count(before)

    return once


ROUTES: dict[str, Callable[[Data, Setting], Pass]] = {
    OURS: torchparquet_pass,
    "pyarrow iter_batches": partial(_pyarrow_pass, _iter_batches),
    "pyarrow row groups, prefetched": partial(_pyarrow_pass, _row_groups),
}


def settings(num_threads: Sequence[int], batch_sizes: Sequence[int]) -> list[Setting]:
    """Return all settings to try; by default powers of two up to the processors."""
    processors = num_processors()
    powers = {2**power for power in range(processors.bit_length())}
    threads = num_threads or sorted({*powers, processors})
    return [Setting(count, size) for size in batch_sizes for count in threads]


def sweep(
    data: Data,
    tried: Sequence[Setting],
    names: Sequence[str],
    *,
    repeats: int,
    advance: Callable[[int], None],
) -> list[dict[str, Any]]:
    """Return the times of routes at all settings as JSON values, each after a pass to warm up."""
    timings = []
    for setting in tried:
        for name in names:
            once, seconds = ROUTES[name](data, setting), []
            for _ in range(repeats + 1):
                begin = time.perf_counter()
                totals = once()
                seconds.append(time.perf_counter() - begin)
                if totals.rows != data.manifest.num_rows:
                    raise RuntimeError(
                        f"{name} delivered {totals.rows} rows, footers claim "
                        f"{data.manifest.num_rows}"
                    )
                advance(1)
            median = statistics.median(seconds[1:])
            timings.append(
                {
                    "route": name,
                    **setting._asdict(),
                    "seconds": [round(each, 6) for each in seconds[1:]],
                    "median_seconds": round(median, 6),
                    "rows_per_second": totals.rows / median,
                    "bytes_per_second": totals.num_bytes / median,
                    "batches": totals.batches,
                }
            )
    return timings


def choose(timings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the fastest setting, with the fewest threads that are nearly as fast.

    Training decides the batch size. The fastest one is in the report for comparison.
    """
    own = [timing for timing in timings if timing["route"] == OURS]
    best = max(own, key=lambda timing: timing["rows_per_second"])
    as_good = [
        timing
        for timing in own
        if timing["batch_size"] == best["batch_size"]
        and timing["rows_per_second"] >= _AS_GOOD * best["rows_per_second"]
    ]
    chosen = min(as_good, key=lambda timing: timing["num_threads"])
    others = [timing["rows_per_second"] for timing in timings if timing["route"] != OURS]
    return {
        **{name: chosen[name] for name in ("num_threads", "batch_size", "rows_per_second")},
        "times_pyarrow": chosen["rows_per_second"] / max(others) if others else None,
    }
