"""`torchparquet plan`: the part of an epoch that each rank reads, and how well rows are mixed."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet._impl.plan.plan_options import ANY_CHUNKS
from torchparquet.cli.arguments import (
    batch_size_option,
    column_option,
    num_workers_option,
    open_dataset,
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
    packed, unit = report.get("packed"), _unit_of(report)
    console.print(
        f"{counted(report['files'], 'file')}, {counted(report['row_groups'], 'row group')}, "
        f"{counted(report['rows'], unit)}"
    )
    if packed is not None:
        padding = 1 - packed["tokens"] / packed["places"]
        what, of = ("packed", "document") if unit == "sequence" else ("by length", "row")
        console.print(
            f"{what}: {counted(packed['documents'], of)}, "
            f"{counted(packed['tokens'], 'token')}, {padding:.2%} padding"
        )
    num_workers = report["num_workers"]
    readers = f"{num_workers} workers each" if num_workers > 1 else "one reader each"
    ranks = counted(report["world_size"], "rank")
    console.print(f"epoch {report['epoch']}, {ranks}, {readers}, {_windows(report)}\n")
    units = several(unit)
    tokens = () if packed is None else ("tokens",)
    headings = ("rank", "row groups", units, "size", "steps", *tokens)
    table = make_table("What each rank reads", headings)
    for rank in report["ranks"][:_MAX_TABLE_RANKS]:
        workers = rank["workers"] if num_workers > 1 else []
        names = [f"{rank['rank']}", *(f"{rank['rank']}, worker {of['worker']}" for of in workers)]
        for name, of in zip(names, [rank, *workers], strict=True):
            counts = [f"{of[count]:,}" for count in ("row_groups", "rows", "steps", *tokens)]
            table.add_row(name, *counts[:2], size(of["bytes"]), *counts[2:])
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


def _windows(report: dict[str, Any]) -> str:
    window, rows = report["shuffle_window"], f"at most {report['window_rows']:,} rows"
    if not window:
        return "no shuffle windows"
    if window == ANY_CHUNKS:
        return f"windows of {rows}"
    bound = f", {rows}" if report["window_rows"] else ""
    return f"windows of {counted(window, 'row group')}{bound}"


@report_command(_show)
@paths_argument
@batch_size_option
@world_size_option
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
    dataset = open_dataset(paths, columns, storage, world_size, **order)
    report = plan_report(dataset, dataset.plan(order["epoch"], num_workers))
    if plot is not None:
        ranks, units = report["ranks"], several(_unit_of(report))
        panels = [
            Panel(units.capitalize(), "rank", [rank["rows"] for rank in ranks]),
            Panel("MiB", "rank", [rank["bytes"] / 2**20 for rank in ranks]),
            Panel("Steps", "rank", [rank["steps"] for rank in ranks]),
        ]
        draw(plot, f"Epoch {report['epoch']}: {report['rows']:,} {units}", panels)
    return report
