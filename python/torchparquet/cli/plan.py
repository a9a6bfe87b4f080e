"""`torchparquet plan`: the part of an epoch that each rank reads, and how well rows are mixed."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet._impl.plan.plan_options import ANY_CHUNKS
from torchparquet.cli.arguments import (
    Order,
    batch_size_option,
    column_option,
    num_workers_option,
    order_options,
    paths_argument,
    plot_option,
    report_command,
    world_size_option,
)
from torchparquet.tools.plan import plan_report
from torchparquet.tools.screen import Panel, counted, draw, make_table, several, size

_MAX_TABLE_RANKS = 32


def _show(console: Console, report: dict[str, Any]) -> None:
    files = counted(report["files"], "file")
    groups = counted(report["row_groups"], "row group")
    packed, unit = report.get("packed"), _unit_of(report)
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
        for worker in rank["workers"] if report["num_workers"] > 1 else ():
            _add(table, f"{rank['rank']}, worker {worker['worker']}", worker)
    console.print(table)
    if len(report["ranks"]) > _MAX_TABLE_RANKS:
        more = len(report["ranks"]) - _MAX_TABLE_RANKS
        console.print(f"and {counted(more, 'more rank')}, which --json lists")
    mixing = report["mixing"]
    noun = "rows" if unit == "batch" else units
    console.print(
        f"\nmixing: a batch has {noun} of {mixing['row_groups_per_batch']:.1f} row groups; half "
        f"of the {units} move {mixing['rows_travelled']:,} places or more from the order of files "
        f"(first {mixing['rows_looked_at']:,} {units} of rank 0)"
    )


def _unit_of(report: dict[str, Any]) -> str:
    """Return what a report counts as rows: "row", "sequence" or "batch"."""
    unit: str = report["packed"]["unit"] if "packed" in report else "row"
    return unit


def _add(table: Any, name: str, amounts: dict[str, int]) -> None:
    table.add_row(
        name,
        f"{amounts['row_groups']:,}",
        f"{amounts['rows']:,}",
        size(amounts["bytes"]),
        f"{amounts['steps']:,}",
        *([f"{amounts['tokens']:,}"] if "tokens" in amounts else []),
    )


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


@report_command(_show)
@paths_argument
@batch_size_option
@world_size_option()
@num_workers_option
@column_option
@order_options
@plot_option
def command(
    paths: tuple[str, ...],
    storage: StorageArguments,
    world_size: int,
    num_workers: int,
    columns: tuple[str, ...],
    plot: str | None,
    **order: Any,
) -> dict[str, Any]:
    """Show the part of an epoch that each rank reads.

    The command also shows how well rows are mixed. It reads footers only, and the lengths of lists
    that are packed or batched by length.
    """
    options = Order(**order)
    chosen = options.columns(columns, paths, storage)
    dataset = options.dataset(
        list(paths), world_size, columns=chosen, storage_options=storage.options
    )
    report = plan_report(dataset, dataset.plan(options.epoch, num_workers))
    if plot is not None:
        ranks, units = report["ranks"], several(_unit_of(report))
        draw(
            plot,
            f"Epoch {options.epoch}: {report['rows']:,} {units}",
            [
                Panel(units.capitalize(), "rank", [rank["rows"] for rank in ranks]),
                Panel("MiB", "rank", [rank["bytes"] / 2**20 for rank in ranks]),
                Panel("Steps", "rank", [rank["steps"] for rank in ranks]),
            ],
        )
    return report
