"""The screen output of the demo: the data, the ranks, and whether the audit holds."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten
from typing import Any

from rich.console import Console
from rich.markup import escape

from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import Even, PlanOptions
from torchparquet.tools.demo.data import Task
from torchparquet.tools.screen import counted, make_table

_MAX_CHARACTERS = 70


def print_data(console: Console, manifest: Manifest, task: Task) -> None:
    """Print the files, and the columns to train on."""
    rows = manifest.row_group_num_rows
    megabytes = int(manifest.file_num_bytes.sum()) / 1e6
    features = shorten(", ".join(task.features), _MAX_CHARACTERS, placeholder=" ...")
    console.print(f"[bold]Data[/]    {escape(task.origin)}")
    console.print(
        f"        {manifest.num_rows:,} rows in {counted(len(manifest.files), 'file')}, "
        f"{megabytes:,.1f} MB; {counted(len(rows), 'row group')} of "
        f"{int(rows.min()):,} to {int(rows.max()):,} rows"
    )
    columns = counted(len(task.features), "column")
    console.print(f"[bold]Model[/]   predicts {escape(task.target)} from {columns}")
    console.print(f"        {escape(features)}")
    if task.remark:
        console.print(f"        {task.remark}")


def print_plan(console: Console, manifest: Manifest, batch_size: int, num_ranks: int) -> None:
    """Print the steps of each rank, and those that whole row groups would give."""

    def steps(even: Even) -> list[int]:
        options = PlanOptions(batch_size, shuffle=True, world_size=num_ranks, even=even)
        plan = EpochPlan(manifest.row_group_num_rows, options)
        return [int(count) for count in plan.share_steps]

    uneven = steps("none")
    console.print(
        f"[bold]Ranks[/]   {num_ranks} x {steps('split')[0]:,} steps of {batch_size:,} rows"
    )
    if len(set(uneven)) > 1:
        console.print(
            f"        Whole row groups would give {min(uneven):,} to {max(uneven):,} steps, "
            "and the job would hang."
        )
    console.print()


def print_audit(console: Console, task: Task, epochs: Sequence[dict[str, Any]]) -> bool:
    """Print what each rank did and what was found, and return whether all is well."""
    table = make_table("What each rank did", ("epoch", "rank", "rows", "row groups", "steps",
                                              "rows/s", "waited for data"), left=0)  # fmt: skip
    for report in epochs:
        for rank in report["ranks"]:
            table.add_row(
                str(report["epoch"] + 1),
                str(rank["rank"]),
                f"{rank['rows']:,}",
                f"{rank['row_groups']:,}",
                f"{rank['steps']:,}",
                f"{rank['rows'] / rank['seconds']:,.0f}",
                f"{rank['wait_seconds']:.2f} s",
            )
    console.print()
    console.print(table)
    first, last = epochs[0]["ranks"][0]["first_error"], epochs[-1]["ranks"][0]["last_error"]
    console.print(f"\nError of {escape(task.target)}: {first:,.4g} at first, {last:,.4g} at last")
    console.print("\n[bold]Audit[/]")
    found = [finding for report in epochs for finding in _findings(report)]
    for is_well, finding in found:
        console.print(f"{'[green]ok[/]   ' if is_well else '[red]FAIL[/] '} {escape(finding)}")
    holds = all(is_well for is_well, _ in found)
    console.print("[bold]The audit holds.[/]" if holds else "[bold red]The audit FAILS.[/]")
    return holds


def _findings(report: dict[str, Any]) -> list[tuple[bool, str]]:
    """Return what was found about one epoch: whether it is well, and a sentence."""
    epoch, audit = f"epoch {report['epoch'] + 1}", report["audit"]
    rows = [(False, f"{epoch}: {fault}") for fault in audit["faults"]]
    if not rows:
        repeats = audit["planned_repeats"]
        planned = f" (+{counted(repeats, 'planned repeat')})" if repeats else ""
        text = f"{epoch}: the ranks read every one of {audit['num_rows']:,} rows exactly once"
        rows = [(True, text + planned)]
    steps = [rank["steps"] for rank in report["ranks"]]
    planned_steps = report["planned_steps"]
    agree = all(count == planned_steps for count in steps)
    taken = f"{planned_steps:,} steps" if agree else f"{steps} steps, {planned_steps:,} planned"
    wrong = sum(rank["wrong_targets"] for rank in report["ranks"])
    values = f"{wrong:,} targets differ from" if wrong else "every target equals"
    return [
        *rows,
        (agree, f"{epoch}: each of {counted(len(steps), 'rank')} took {taken}"),
        (not wrong, f"{epoch}: {values} pyarrow's"),
    ]
