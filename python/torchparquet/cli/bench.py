"""`torchparquet bench`: time the reading of this data on this machine, beside pyarrow."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import chain, product
from typing import Any, NamedTuple

import click
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]
from numpy.typing import NDArray
from rich.console import Console

from torchparquet._impl.batches.columns import resolve_columns
from torchparquet._impl.batches.fields import Field
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.processors import num_processors
from torchparquet._impl.reading.read_options import ReadOptions
from torchparquet._impl.reading.streams import StreamOpener
from torchparquet.cli import arguments
from torchparquet.cli.arguments import Data
from torchparquet.cli.columns import readable_columns, tensor_of, window_of
from torchparquet.cli.preparing.footer_facts import read_facts, read_footer
from torchparquet.cli.preparing.input_rows import prefetched
from torchparquet.cli.screen import Advance, Panel, counted, draw, progress, show_table, size
from torchparquet.jagged import Jagged

OURS = "torchparquet"
# Fewer threads are chosen if they reach this part of the best speed.
_AS_GOOD = 0.95
# The spread of shorter passes is as large as what threads and batch sizes change.
_SHORT_PASS_SECONDS = 0.1

# Reads once, and yields the rows and the columns of each batch.
Pass = Callable[[], Iterator[tuple[int, Iterable[Any]]]]


def _show(console: Console, report: dict[str, Any]) -> None:
    part = "" if report["rows"] == report["rows_of_all"] else f" of {report['rows_of_all']:,}"
    console.print(
        f"{report['rows']:,}{part} rows in {counted(report['row_groups'], 'row group')}, "
        f"{counted(report['columns'], 'column')}, {size(report['compressed_bytes'])} compressed; "
        f"median of {report['repeats']}, page cache warm"
    )
    rows: list[list[object]] = []
    for timing in report["timings"]:
        if timing["route"] == OURS and rows:
            rows.append([])
        rows.append(
            [
                *(timing["route"], timing["batch_size"], timing["num_threads"]),
                f"{timing['median_seconds']:.4f}",
                *(f"{of(timing['seconds']):.4f}" for of in (min, max)),
                f"{timing['rows_per_second']:,.0f}",
                f"{timing['bytes_per_second'] / 1e6:,.0f}",
            ]
        )
    headings = ("route", "batch size", "threads", "seconds", "from", "to", "rows/s", "MB/s")
    show_table(console, "\nOne pass over the data", headings, rows)
    choice = report["choice"]
    times = choice["times_pyarrow"]
    beside = "" if times is None else f", {times:.2f} times pyarrow's fastest"
    console.print(
        f"\nFastest with the fewest threads: num_threads={choice['num_threads']}, "
        f"batch_size={choice['batch_size']}: {choice['rows_per_second']:,.0f} rows/s{beside}"
    )
    shortest = min(timing["median_seconds"] for timing in report["timings"])
    if shortest < _SHORT_PASS_SECONDS:
        console.print(
            f"Passes of {shortest:.3f} s are too short to tell settings apart: time more data"
        )


@arguments.report_command(_show)
@arguments.column_option
@arguments.number_option(
    "--num-threads",
    most=1024,
    multiple=True,
    help="Try this many; may be repeated.  [default: powers of two up to the processors]",
)
@arguments.number_option(
    *("--batch-size", "batch_sizes"),
    multiple=True,
    default=(1024, 8192, 65536),
    help="Try this one; may be repeated.",
)
@arguments.number_option("--repeats", default=5, help="Passes; the median counts.")
@arguments.size_option(
    "--sample", "512MiB", "Read the first row groups, up to these compressed bytes."
)
@click.option("--shuffle", is_flag=True, help="Shuffle rows in windows; pyarrow cannot.")
@arguments.size_option("--max-memory", "1GiB", "Bound of torchparquet's batches in flight.")
@click.option("--no-pyarrow", is_flag=True, help="Do not time pyarrow.")
@arguments.plot_option
def command(
    data: Data,
    num_threads: tuple[int, ...],
    batch_sizes: tuple[int, ...],
    repeats: int,
    no_pyarrow: bool,
    plot: str | None,
    **limits: Any,
) -> dict[str, Any]:
    """Time this data on this machine, and compare with pyarrow.

    The command tries numbers of threads and batch sizes, and recommends one of each. It reads every
    byte of every batch, with a warm page cache. pyarrow's routes deliver record batches instead of
    tensors, cut at the ends of row groups.
    """
    manifest = data.manifest()
    columns = list(data.columns) or readable_columns(manifest)
    sample = make_sample(manifest, columns, **limits)
    processors = num_processors()
    powers = {2**power for power in range(processors.bit_length())}
    threads = num_threads or sorted({*powers, processors})
    routes = [OURS] if no_pyarrow else list(ROUTES)
    tried = list(product(batch_sizes, threads, routes))
    with progress("passes", len(tried) * (repeats + 1)) as advance:
        timings = [_timed(sample, *setting, repeats, advance) for setting in tried]
    rows = sample.manifest.num_rows
    if plot is not None:
        lines: dict[str, list[tuple[float, float]]] = {}
        for timing in timings:
            name = f"{timing['route']}, {counted(timing['num_threads'], 'thread')}"
            point = (timing["batch_size"], timing["rows_per_second"])
            lines.setdefault(name, []).append(point)
        title = f"{rows:,} rows, median of {repeats}"
        draw(plot, title, [Panel("Rows per second", "batch size", lines=lines)])
    return {
        "files": len(manifest.files),
        "rows": rows,
        "rows_of_all": manifest.num_rows,
        "row_groups": sample.manifest.num_row_groups,
        "compressed_bytes": int(sample.manifest.row_group_num_bytes.sum()),
        "columns": len(columns),
        "shuffle": sample.shuffle,
        "repeats": repeats,
        "timings": timings,
        "choice": choose(timings),
    }


class Sample(NamedTuple):
    """The rows to read; torchparquet alone can shuffle them."""

    manifest: Manifest
    fields: tuple[Field, ...]
    columns: list[str]
    shuffle: bool
    max_memory: int


def make_sample(
    manifest: Manifest, columns: Sequence[str], *, sample: int, shuffle: bool, max_memory: int
) -> Sample:
    """Choose the rows to read: whole row groups from the start, up to `sample` bytes."""
    with_rows = manifest.row_group_num_rows > 0
    sizes = manifest.row_group_num_bytes * with_rows
    before = np.cumsum(sizes) - sizes
    kept = manifest.keep(((before < sample) | (before == 0)) & with_rows)
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
    names = [stored.column(leaves.index(name)).path for name in columns]
    return Sample(kept, tuple(fields), names, shuffle, max_memory)


def _timed(
    sample: Sample, batch_size: int, num_threads: int, route: str, repeats: int, advance: Advance
) -> dict[str, Any]:
    """Return the times of passes, after one to warm up, as JSON values."""
    once, seconds = ROUTES[route](sample, batch_size, num_threads), []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        rows, num_bytes, batches, _ = consumed(once())
        seconds.append(time.perf_counter() - begin)
        if rows != sample.manifest.num_rows:
            claimed = sample.manifest.num_rows
            raise RuntimeError(f"{route} delivered {rows} rows, footers claim {claimed}")
        advance(1)
    median = statistics.median(seconds[1:])
    return {
        "route": route,
        "num_threads": num_threads,
        "batch_size": batch_size,
        "seconds": [round(each, 6) for each in seconds[1:]],
        "median_seconds": round(median, 6),
        "rows_per_second": rows / median,
        "bytes_per_second": num_bytes / median,
        "batches": batches,
    }


def choose(timings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the fastest setting, with the fewest threads that are nearly as fast."""
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


def consumed(batches: Iterable[tuple[int, Iterable[Any]]]) -> tuple[int, int, int, int]:
    """Return rows, bytes, batches and the sum of all words, which proves that they were read."""
    num_rows = num_bytes = num_batches = checksum = 0
    for rows, columns in batches:
        num_rows += rows
        num_batches += 1
        for part in chain.from_iterable(map(_bytes_of, columns)):
            words = len(part) // 8 * 8
            checksum += int(part[:words].view(np.uint64).sum()) + int(part[words:].sum())
            num_bytes += len(part)
    return num_rows, num_bytes, num_batches, checksum % 2**64


def _bytes_of(values: Any) -> Iterator[NDArray[np.uint8]]:
    """Yield the memory of a tensor or array; the first slice of an array yields all of it."""
    if isinstance(values, Jagged):
        yield from _bytes_of(values.offsets)
        yield from _bytes_of(values.values)
    elif not isinstance(values, pa.Array):
        yield np.ascontiguousarray(values.numpy()).reshape(-1).view(np.uint8)
    elif values.offset == 0:
        yield from (np.frombuffer(of, np.uint8) for of in values.buffers() if of is not None)
        if pa.types.is_dictionary(values.type):
            yield from _bytes_of(values.dictionary)


def _torchparquet(sample: Sample, batch_size: int, num_threads: int) -> Pass:
    """Return a function that reads the sample once; it reuses memory between passes."""
    rows = sample.manifest.row_group_num_rows
    options = PlanOptions(batch_size)
    if sample.shuffle:
        window, window_rows = window_of(rows, sample.fields, batch_size, sample.max_memory)
        options = PlanOptions(
            batch_size, shuffle=True, shuffle_window=window, window_rows=window_rows
        )
    share = EpochPlan(rows, options).share(0)
    read = ReadOptions(num_threads, sample.max_memory, pin_memory=False)
    source = StreamOpener(sample.manifest, sample.fields, read)

    def once() -> Iterator[tuple[int, Iterable[Any]]]:
        with closing(source.open([share], 1)) as stream:
            for batch in stream:
                columns = list(batch.values())
                yield len(columns[0]), columns

    return once


def _iter_batches(sample: Sample, batch_size: int) -> Iterator[Any]:
    """Yield batches of `ParquetFile.iter_batches`."""
    manifest = sample.manifest
    for number in np.unique(manifest.row_group_file).tolist():
        groups = manifest.row_group_in_file[manifest.row_group_file == number].tolist()
        with pq.ParquetFile(manifest.listing.source(manifest.files[number])) as file:
            yield from file.iter_batches(batch_size, groups, sample.columns)


def _row_groups(sample: Sample, batch_size: int) -> Iterator[Any]:
    """Yield batches of `read_row_group`, which a thread calls for the next one meanwhile."""
    manifest = sample.manifest
    is_local = manifest.listing.store is None

    def read(number: int, group: int) -> Any:
        source = manifest.listing.source(manifest.files[number])
        with pq.ParquetFile(source, memory_map=is_local, pre_buffer=False) as file:
            return file.read_row_group(group, sample.columns)

    files, groups = manifest.row_group_file.tolist(), manifest.row_group_in_file.tolist()
    for table in prefetched(map(read, files, groups)):
        yield from table.to_batches(max_chunksize=batch_size)


def _pyarrow(
    batches: Callable[[Sample, int], Iterator[Any]], sample: Sample, batch_size: int, threads: int
) -> Pass:
    def once() -> Iterator[tuple[int, Iterable[Any]]]:
        before = pa.cpu_count()
        pa.set_cpu_count(threads)
        try:
            for batch in batches(sample, batch_size):
                yield batch.num_rows, batch.columns
        finally:
            pa.set_cpu_count(before)

    return once


ROUTES: dict[str, Callable[[Sample, int, int], Pass]] = {
    OURS: _torchparquet,
    "pyarrow iter_batches": partial(_pyarrow, _iter_batches),
    "pyarrow row groups, prefetched": partial(_pyarrow, _row_groups),
}
