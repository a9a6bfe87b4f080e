"""`torchparquet bench`: time the reading of this data on this machine, by setting."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from torchparquet._impl.files.manifest_reading import read_manifest
from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet.cli.arguments import (
    byte_size,
    column_option,
    debug_option,
    json_option,
    max_memory_option,
    paths_argument,
    readable_columns,
)
from torchparquet.cli.plots import Draw, Line, Panel, checked_plot, plot_option
from torchparquet.tools.bench import choose, make_data, settings, sweep
from torchparquet.tools.bench.routes import OURS, routes
from torchparquet.tools.screen import counted, make_console, make_table, print_json, progress, size

_THREADS = click.IntRange(1, 1024)
# The spread of shorter passes is as large as what threads and batch sizes change.
_SHORT_PASS_SECONDS = 0.1


@click.command()
@paths_argument
@column_option
@click.option(
    "--num-threads",
    type=_THREADS,
    multiple=True,
    metavar="N",
    help="Try this many; may be repeated.  [default: powers of two up to the processors]",
)
@click.option(
    "--batch-size",
    "batch_sizes",
    type=click.IntRange(min=1),
    multiple=True,
    default=(1024, 8192, 65536),
    show_default=True,
    metavar="N",
    help="Try this one; may be repeated.",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    metavar="N",
    help="Passes; the median counts.",
)
@click.option(
    "--sample",
    type=byte_size,
    default="512MiB",
    show_default=True,
    metavar="SIZE",
    help="Read the first row groups, up to these compressed bytes.",
)
@click.option("--shuffle", is_flag=True, help="Shuffle rows in windows; pyarrow cannot.")
@max_memory_option("1GiB", "Bound of torchparquet's batches in flight.")
@click.option("--no-pyarrow", is_flag=True, help="Do not time pyarrow.")
@plot_option
@json_option
@debug_option
def command(
    paths: tuple[str, ...],
    storage: StorageArguments,
    columns: tuple[str, ...],
    num_threads: tuple[int, ...],
    batch_sizes: tuple[int, ...],
    repeats: int,
    sample: int,
    shuffle: bool,
    max_memory: int,
    no_pyarrow: bool,
    plot: str | None,
    as_json: bool,
) -> None:
    """Time this data on this machine, and compare with pyarrow.

    The command tries numbers of threads and batch sizes, and recommends one of each. It reads every
    byte of every batch, with a warm page cache. pyarrow's routes deliver record batches instead of
    tensors, cut at the ends of row groups.
    """
    draw = checked_plot(plot)
    manifest = read_manifest(list(paths), storage=storage)
    chosen = list(columns) or readable_columns(manifest)
    data = make_data(manifest, chosen, sample_bytes=sample, shuffle=shuffle, max_memory=max_memory)
    tried = settings(num_threads, batch_sizes)
    with_pyarrow = not no_pyarrow
    num_passes = len(tried) * len(routes(pyarrow=with_pyarrow)) * (repeats + 1)
    with progress("passes", num_passes) as advance:
        timings = sweep(data, tried, repeats=repeats, pyarrow=with_pyarrow, advance=advance)
    report = {
        "files": len(manifest.files),
        "rows": data.manifest.num_rows,
        "rows_of_all": manifest.num_rows,
        "row_groups": data.manifest.num_row_groups,
        "compressed_bytes": int(data.manifest.row_group_num_bytes.sum()),
        "columns": len(chosen),
        "shuffle": shuffle,
        "repeats": repeats,
        "timings": [timing.as_json() for timing in timings],
        "choice": choose(timings),
    }
    if draw is not None:
        _plot(report, draw)
    if as_json:
        print_json(report)
    else:
        _show(make_console(), report)


def _show(console: Console, report: dict[str, Any]) -> None:
    part = "" if report["rows"] == report["rows_of_all"] else f" of {report['rows_of_all']:,}"
    console.print(
        f"{report['rows']:,}{part} rows in {counted(report['row_groups'], 'row group')}, "
        f"{counted(report['columns'], 'column')}, {size(report['compressed_bytes'])} compressed; "
        f"median of {report['repeats']}, page cache warm"
    )
    headings = ("route", "batch size", "threads", "seconds", "from", "to", "rows/s", "MB/s")
    table = make_table("\nOne pass over the data", headings)
    before = None
    for timing in report["timings"]:
        setting = (timing["batch_size"], timing["num_threads"])
        if before is not None and before != setting:
            table.add_section()
        before = setting
        table.add_row(
            timing["route"],
            f"{timing['batch_size']:,}",
            str(timing["num_threads"]),
            f"{timing['median_seconds']:.4f}",
            f"{min(timing['seconds']):.4f}",
            f"{max(timing['seconds']):.4f}",
            f"{timing['rows_per_second']:,.0f}",
            f"{timing['bytes_per_second'] / 1e6:,.0f}",
        )
    console.print(table)
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


def _plot(report: dict[str, Any], draw: Draw) -> None:
    lines = []
    for route, num_threads in dict.fromkeys(
        (timing["route"], timing["num_threads"]) for timing in report["timings"]
    ):
        own = [
            timing
            for timing in report["timings"]
            if (timing["route"], timing["num_threads"]) == (route, num_threads)
        ]
        lines.append(
            Line(
                f"{route}, {counted(num_threads, 'thread')}",
                [timing["batch_size"] for timing in own],
                [timing["rows_per_second"] for timing in own],
                dashed=route != OURS,
            )
        )
    panel = Panel("Rows per second", "batch size", "rows/s", lines=tuple(lines))
    draw(f"{report['rows']:,} rows, median of {report['repeats']}", [panel])
