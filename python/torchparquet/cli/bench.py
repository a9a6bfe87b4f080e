"""`torchparquet bench`: time the reading of this data on this machine, by setting."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from torchparquet._impl.files.manifest_reading import read_manifest
from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet.cli.arguments import (
    column_option,
    number_option,
    paths_argument,
    plot_option,
    report_command,
    size_option,
)
from torchparquet.tools.bench import OURS, ROUTES, choose, make_data, settings, sweep
from torchparquet.tools.screen import Panel, counted, draw, make_table, progress, size
from torchparquet.tools.tensors import readable_columns

# The spread of shorter passes is as large as what threads and batch sizes change.
_SHORT_PASS_SECONDS = 0.1


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


@report_command(_show)
@paths_argument
@column_option
@number_option(
    "--num-threads",
    most=1024,
    multiple=True,
    help="Try this many; may be repeated.  [default: powers of two up to the processors]",
)
@number_option(
    "--batch-size",
    "batch_sizes",
    multiple=True,
    default=(1024, 8192, 65536),
    help="Try this one; may be repeated.",
)
@number_option("--repeats", default=5, help="Passes; the median counts.")
@size_option("--sample", "512MiB", "Read the first row groups, up to these compressed bytes.")
@click.option("--shuffle", is_flag=True, help="Shuffle rows in windows; pyarrow cannot.")
@size_option("--max-memory", "1GiB", "Bound of torchparquet's batches in flight.")
@click.option("--no-pyarrow", is_flag=True, help="Do not time pyarrow.")
@plot_option
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
) -> dict[str, Any]:
    """Time this data on this machine, and compare with pyarrow.

    The command tries numbers of threads and batch sizes, and recommends one of each. It reads every
    byte of every batch, with a warm page cache. pyarrow's routes deliver record batches instead of
    tensors, cut at the ends of row groups.
    """
    manifest = read_manifest(list(paths), storage=storage)
    chosen = list(columns) or readable_columns(manifest)
    data = make_data(manifest, chosen, sample_bytes=sample, shuffle=shuffle, max_memory=max_memory)
    tried = settings(num_threads, batch_sizes)
    names = [OURS] if no_pyarrow else list(ROUTES)
    with progress("passes", len(tried) * len(names) * (repeats + 1)) as advance:
        timings = sweep(data, tried, names, repeats=repeats, advance=advance)
    if plot is not None:
        lines: dict[str, list[tuple[float, float]]] = {}
        for timing in timings:
            name = f"{timing['route']}, {counted(timing['num_threads'], 'thread')}"
            point = (timing["batch_size"], timing["rows_per_second"])
            lines.setdefault(name, []).append(point)
        title = f"{data.manifest.num_rows:,} rows, median of {repeats}"
        draw(plot, title, [Panel("Rows per second", "batch size", lines=lines)])
    return {
        "files": len(manifest.files),
        "rows": data.manifest.num_rows,
        "rows_of_all": manifest.num_rows,
        "row_groups": data.manifest.num_row_groups,
        "compressed_bytes": int(data.manifest.row_group_num_bytes.sum()),
        "columns": len(chosen),
        "shuffle": shuffle,
        "repeats": repeats,
        "timings": timings,
        "choice": choose(timings),
    }
