"""`torchparquet plan`: the part of an epoch that each rank reads, and how well rows are mixed."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from torchparquet._impl.files.manifest_reading import read_manifest
from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet._impl.plan.plan_options import ANY_CHUNKS
from torchparquet.cli.arguments import (
    OrderOptions,
    batch_size_option,
    column_option,
    debug_option,
    json_option,
    num_workers_option,
    order_options,
    paths_argument,
    readable_columns,
    world_size_option,
)
from torchparquet.cli.plots import checked_plot, plot_option, plot_plan
from torchparquet.tools.plan.plan_report import plan_report, unit_of
from torchparquet.tools.screen import counted, make_console, make_table, print_json, several, size

_SHADES = " ░▒▓█"
_ASCII_SHADES = " .:*#"
_MAX_TABLE_RANKS = 32
_LABEL_WIDTH = 14


@click.command()
@paths_argument
@batch_size_option
@world_size_option()
@num_workers_option
@column_option
@order_options
@click.option("--workers", "show_workers", is_flag=True, help="List the workers of each rank.")
@plot_option
@json_option
@debug_option
def command(
    paths: tuple[str, ...],
    storage: StorageArguments,
    world_size: int,
    num_workers: int,
    columns: tuple[str, ...],
    show_workers: bool,
    plot: str | None,
    as_json: bool,
    **order: Any,
) -> None:
    """Show the part of an epoch that each rank reads.

    The command also shows how well rows are mixed. It reads footers only, and the lengths of lists
    that are packed or batched by length. Each line of the heat map is a rank, or several ranks if
    there are many. It goes through the data in the order of files. A darker cell means that the
    rank reads more of these rows.
    """
    draw, options = checked_plot(plot), OrderOptions(**order)
    console = make_console()
    chosen: list[str] | None = list(columns)
    if options.pack:
        chosen = None
    elif not chosen:
        chosen = readable_columns(read_manifest(list(paths), storage=storage))
    dataset = options.dataset(
        list(paths), world_size, columns=chosen, storage_options=storage.options
    )
    width = max(8, min(100, console.width - _LABEL_WIDTH - 2))
    report = plan_report(
        dataset, dataset.plan(options.epoch, num_workers), map_shape=(_MAX_TABLE_RANKS, width)
    )
    if draw is not None:
        plot_plan(report, draw)
    if as_json:
        print_json(report)
    else:
        _show(console, report, show_workers=show_workers)


def _show(console: Console, report: dict[str, Any], *, show_workers: bool) -> None:
    files = counted(report["files"], "file")
    groups = counted(report["row_groups"], "row group")
    packed, unit = report.get("packed"), unit_of(report)
    console.print(f"{files}, {groups}, {counted(report['rows'], unit)}")
    if packed is not None:
        padding = 1 - packed["tokens"] / packed["places"]
        what, of = ("packed", "document") if unit == "sequence" else ("by length", "row")
        console.print(
            f"{what}: {counted(packed['documents'], of)}, "
            f"{counted(packed['tokens'], 'token')}, {padding:.2%} padding"
        )
    ranks = counted(report["world_size"], "rank")
    console.print(f"epoch {report['epoch']}, {ranks}, {_readers(report)}, {_windows(report)}\n")
    units = several(unit)
    names: tuple[str, ...] = ("rank", "row groups", units, "size", "steps")
    if packed is not None:
        names += ("tokens",)
    table = make_table("What each rank reads", names)
    for rank in report["ranks"][:_MAX_TABLE_RANKS]:
        _add(table, str(rank["rank"]), rank)
        for worker in rank["workers"] if show_workers else ():
            _add(table, f"{rank['rank']}, worker {worker['worker']}", worker)
    console.print(table)
    if len(report["ranks"]) > _MAX_TABLE_RANKS:
        more = len(report["ranks"]) - _MAX_TABLE_RANKS
        console.print(f"and {counted(more, 'more rank')}, which --json lists")
    _show_heat_map(console, report)
    mixing = report["mixing"]
    noun = "rows" if unit == "batch" else units
    console.print(
        f"\nmixing: a batch has {noun} of {mixing['row_groups_per_batch']:.1f} row groups; half "
        f"of the {units} move {mixing['rows_travelled']:,} places or more from the order of files "
        f"(first {mixing['rows_looked_at']:,} {units} of rank 0)"
    )


def _add(table: Any, name: str, amounts: dict[str, int]) -> None:
    table.add_row(
        name,
        f"{amounts['row_groups']:,}",
        f"{amounts['rows']:,}",
        size(amounts["bytes"]),
        f"{amounts['steps']:,}",
        *([f"{amounts['tokens']:,}"] if "tokens" in amounts else []),
    )


def _show_heat_map(console: Console, report: dict[str, Any]) -> None:
    lines = report["heat_map"]
    num_shares = report["world_size"] * report["num_workers"]
    console.print("\n[bold]Part of the data that each rank reads[/]")
    darkest = max(max(line) for line in lines) or 1.0
    shades = _ASCII_SHADES if console.options.ascii_only else _SHADES
    for index, line in enumerate(lines):
        first, end = (-(-at * num_shares // len(lines)) for at in (index, index + 1))
        label = share_label(report, first, end - 1)
        cells = "".join(_shade(shades, value / darkest) for value in line)
        console.print(f"{label:>{_LABEL_WIDTH}} {cells}", soft_wrap=True)
    left_out = sum(1 for column in zip(*lines, strict=True) if not any(column))
    if left_out:
        console.print(f"{'':>{_LABEL_WIDTH}} {counted(left_out, 'column')} that no rank reads")


def _shade(shades: str, value: float) -> str:
    # A share that reads a little differs from one that reads nothing.
    return shades[0] if value <= 0 else shades[min(4, 1 + int(value * 3.999))]


def share_label(report: dict[str, Any], first: int, last: int) -> str:
    """Return the name of the shares from `first` to `last`."""
    world_size = report["world_size"]
    if report["num_workers"] == 1:
        return f"rank {first}" if first == last else f"ranks {first}-{last}"
    # A share's number is worker * world_size + rank.
    names = [f"{share % world_size}/{share // world_size}" for share in (first, last)]
    return f"rank/w {names[0]}" if first == last else f"{names[0]}-{names[1]}"


def _readers(report: dict[str, Any]) -> str:
    num_workers = report["num_workers"]
    return f"{num_workers} workers each" if num_workers > 1 else "one reader each"


def _windows(report: dict[str, Any]) -> str:
    window = report["shuffle_window"]
    if not window:
        return "no shuffle windows"
    if window == ANY_CHUNKS:
        return f"windows of at most {report['window_rows']:,} rows"
    bound = f", at most {report['window_rows']:,} rows" if report["window_rows"] else ""
    return f"windows of {counted(window, 'row group')}{bound}"
