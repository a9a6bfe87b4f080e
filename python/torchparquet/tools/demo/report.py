"""What the demo prints: the data, the ranks, and whether the audit holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from textwrap import shorten
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from torchparquet.files.manifest import Manifest
from torchparquet.plan.epoch_plan import EpochPlan
from torchparquet.plan.plan_options import PlanOptions
from torchparquet.tools.demo.data import Task
from torchparquet.tools.demo.job import EpochResult
from torchparquet.tools.demo.totals import ColumnFacts, Totals
from torchparquet.tools.screen import counted

_MAX_CHARACTERS = 70
# Parts of an epoch.
_AT_FIRST, _AT_LAST = (0.0, 0.02), (0.9, 1.0)


def print_data(console: Console, manifest: Manifest, origin: str) -> None:
    """Print what the files hold."""
    rows = manifest.row_group_num_rows
    megabytes = int(manifest.file_num_bytes.sum()) / 1e6
    console.print(f"[bold]Data[/]    {escape(origin)}")
    console.print(
        f"        {manifest.num_rows:,} rows in {counted(len(manifest.files), 'file')}, "
        f"{megabytes:,.1f} MB; {counted(len(rows), 'row group')} of "
        f"{int(rows.min()):,} to {int(rows.max()):,} rows"
    )


def print_plan(
    console: Console, manifest: Manifest, task: Task, batch_size: int, num_ranks: int
) -> None:
    """Print what is predicted, and the steps with and without evening out."""
    features = shorten(", ".join(task.features), _MAX_CHARACTERS, placeholder=" ...")
    columns = counted(len(task.features), "column")
    console.print(f"[bold]Model[/]   predicts {escape(task.target)} from {columns}")
    console.print(f"        {escape(features)}")
    if task.remark:
        console.print(f"        {task.remark}")

    def steps(even: bool) -> list[int]:
        options = PlanOptions(
            batch_size, shuffle=True, world_size=num_ranks, even="split" if even else "none"
        )
        return [int(count) for count in EpochPlan(rows, options).share_steps]

    rows = manifest.row_group_num_rows
    console.print(
        f"[bold]Ranks[/]   {num_ranks} x {steps(True)[0]:,} steps of {batch_size:,} rows", end=""
    )
    uneven = steps(False)
    if len(set(uneven)) > 1:
        console.print(
            "\n        dealing out whole row groups would be "
            f"{min(uneven):,} to {max(uneven):,} steps: a job would hang"
        )
    else:
        console.print()
    console.print()


def print_ranks(console: Console, results: Sequence[EpochResult]) -> None:
    """Print what every rank did in every epoch."""
    table = Table(title="What each rank did", title_justify="left", title_style="bold")
    for heading in ("epoch", "rank", "rows", "row groups", "steps", "rows/s", "waited for data"):
        table.add_column(heading, justify="right")
    for number, result in enumerate(results, 1):
        for index, rank in enumerate(result.ranks):
            waited = f"{rank.wait_seconds:.2f} s  {rank.wait_seconds / rank.seconds:4.0%}"
            table.add_row(
                str(number),
                str(index),
                f"{rank.num_rows:,}",
                f"{rank.num_row_groups:,}",
                f"{rank.num_steps:,}",
                f"{rank.num_rows / rank.seconds:,.0f}",
                waited,
                end_section=index == len(result.ranks) - 1,
            )
    console.print()
    console.print(table)


def as_json(manifest: Manifest, task: Task, results: Sequence[EpochResult]) -> dict[str, Any]:
    """Return what every rank did in every epoch, and the audits."""
    return {
        "files": len(manifest.files),
        "row_groups": manifest.num_row_groups,
        "rows": manifest.num_rows,
        "target": task.target,
        "features": list(task.features),
        "unit": task.unit,
        "first_error": results[0].error(*_AT_FIRST),
        "last_error": results[-1].error(*_AT_LAST),
        "epochs": [
            {
                "epoch": result.audit.epoch,
                "audit": {**asdict(result.audit), "faults": result.audit.faults()},
                "planned_steps": result.planned_steps,
                "ranks": [
                    {
                        "rank": index,
                        "rows": rank.num_rows,
                        "row_groups": rank.num_row_groups,
                        "steps": rank.num_steps,
                        "seconds": rank.seconds,
                        "wait_seconds": rank.wait_seconds,
                    }
                    for index, rank in enumerate(result.ranks)
                ],
            }
            for result in results
        ],
    }


def print_errors(console: Console, task: Task, results: Sequence[EpochResult]) -> None:
    """Print how the model's error fell."""
    first, last = results[0].error(*_AT_FIRST), results[-1].error(*_AT_LAST)
    unit = f" {task.unit}" if task.unit else ""
    console.print(
        f"\n[bold]Error[/]   root mean square, of {escape(task.target)}"
        f"\n        {first:,.4g}{unit} at first, {last:,.4g}{unit} at last"
    )


def print_totals(
    console: Console,
    reader: str,
    facts: Mapping[str, ColumnFacts],
    repeated: Sequence[Mapping[str, Totals]],
    results: Sequence[EpochResult],
) -> bool:
    """Print the sums of the columns beside another reader's, and return whether all agree.

    Args:
        console: To print on.
        reader: Which other reader it was.
        facts: Its facts, by column.
        repeated: Of each epoch, the totals of the rows delivered once more, by column.
        results: Of each epoch.
    """
    table = Table(title="Column sums", title_justify="left", title_style="bold")
    table.add_column("column")
    table.add_column(f"sum by {reader}", justify="right")
    table.add_column("delivered", justify="right")
    table.add_column("nulls", justify="right")
    table.add_column("equal")
    all_agree = True
    for name, fact in facts.items():
        delivered = [
            _without(result.totals(name), extra[name])
            for result, extra in zip(results, repeated, strict=True)
        ]
        wrong = [
            total for total in delivered if not total.agrees(fact.totals, fact.sum_of_absolutes)
        ]
        num_nulls = results[0].audit.num_rows - fact.totals.count
        table.add_row(
            escape(name),
            _number(fact.totals.total),
            _number((wrong or delivered)[0].total),
            f"{num_nulls:,}",
            "[red]NO[/]" if wrong else f"[green]{_all_of('epoch', len(results))}[/]",
        )
        all_agree &= not wrong
    console.print()
    console.print(table)
    return all_agree


def _without(totals: Totals, repeated: Totals) -> Totals:
    return Totals(
        totals.count - repeated.count,
        totals.not_finite - repeated.not_finite,
        totals.total - repeated.total,
    )


def print_audit(
    console: Console, results: Sequence[EpochResult], reader: str, *, sums_agree: bool
) -> bool:
    """Print whether everything holds, and return it."""
    console.print("\n[bold]Audit[/]")
    holds = sums_agree
    for number, result in enumerate(results, 1):
        audit = result.audit
        faults = audit.faults()
        if faults:
            _print_check(console, False, f"epoch {number}: {'; '.join(faults)}")
        else:
            again = f" (+{counted(audit.num_repeats, 'planned repeat')})" * bool(audit.num_repeats)
            rows = f"every one of {audit.num_rows:,} rows exactly once{again}"
            _print_check(console, True, f"epoch {number}: {rows}")
        steps = [rank.num_steps for rank in result.ranks]
        if not result.steps_agree:
            took = f"ranks took {steps} steps, {result.planned_steps} were planned"
            _print_check(console, False, f"epoch {number}: {took}")
        holds = holds and not faults and result.steps_agree
    if all(result.steps_agree for result in results):
        ranks = len(results[0].ranks)
        steps_of_all = sum(result.planned_steps for result in results)
        _print_check(console, True, f"{_all_of('rank', ranks)} took {steps_of_all:,} steps")
    equal = "equal those" if sums_agree else "differ from those"
    _print_check(console, sums_agree, f"column sums {equal} by {reader}")
    verdict = "[bold green]The audit holds.[/]" if holds else "[bold red]The audit FAILS.[/]"
    console.print(verdict)
    return holds


def _print_check(console: Console, holds: bool, text: str) -> None:
    mark = "[green]ok[/]  " if holds else "[red]FAIL[/]"
    console.print(f"  {mark}  {text}")


def _number(value: int | float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _all_of(noun: str, count: int) -> str:
    return {1: f"the one {noun}", 2: f"both {noun}s"}.get(count, f"all {count} {noun}s")
