"""`torchparquet verify`: decode everything, and check that every row is dealt exactly once."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click
from rich.console import Console

from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet._impl.reading.read_options import ReadOptions
from torchparquet.cli.arguments import (
    batch_size_option,
    column_option,
    num_workers_option,
    number_option,
    open_dataset,
    order_options,
    paths_argument,
    report_command,
)
from torchparquet.errors import SchemaMismatchError, UnsupportedColumnError, one_line
from torchparquet.tools.screen import counted, plain, progress, several
from torchparquet.tools.tensors import tensor_of
from torchparquet.tools.verify import (
    Findings,
    audit_world,
    failure_of,
    open_files,
    paths_of,
    verify_file,
)

_NO_TENSORS = "no column can be read as a tensor, so no rank reads rows"


def _show(console: Console, report: dict[str, Any]) -> None:
    if report["decoded"]:
        nouns = {"files": "file", "row_groups": "row group", "rows": "row", "columns": "column"}
        counts = ", ".join(counted(report[name], noun) for name, noun in nouns.items())
        console.print(f"{counts} decoded")
        pages = counted(report["pages"], "page")
        console.print(f"{report['pages_with_checksum']:,} of {pages} have a checksum")
        if report["columns_by_pyarrow"]:
            names = ", ".join(report["columns_by_pyarrow"])
            console.print(f"decoded by pyarrow, since no tensor can hold them: {plain(names)}")
    if report["files_without_rows"]:
        console.print(f"{counted(len(report['files_without_rows']), 'file')} without rows")
    for failure in report["failures"]:
        where = [plain(failure["path"])]
        if failure["row_group"] is not None:
            where.append(f"row group {failure['row_group']}")
        if failure["column"] is not None:
            where.append(f"column {plain(failure['column'])}")
        console.print(f"[red]FAIL[/]  {', '.join(where)}: {plain(failure['error'])}")
    if report["audits_left_out"]:
        console.print(report["audits_left_out"])
    for audit in report["audits"]:
        _show_audit(console, audit)
    failed = len(report["failures"]) + sum(len(audit["faults"]) for audit in report["audits"])
    found = ["every value decodes"] if report["decoded"] else []
    found += ["every row is read as planned"] if report["audits"] else []
    console.print(
        f"[bold red]Verification failed: {counted(failed, 'fault')}.[/]"
        if failed
        else f"[bold green]Verified: {' and '.join(found) or 'nothing was checked'}.[/]"
    )


def _show_audit(console: Console, audit: dict[str, Any]) -> None:
    who = counted(audit["world_size"], "rank")
    if audit["num_workers"] > 1:
        who += f" of {audit['num_workers']} workers"
    for fault in audit["faults"]:
        console.print(f"[red]FAIL[/]  {who}, epoch {audit['epoch']}: {fault}")
    if audit["faults"]:
        return
    steps = f"{audit['most_steps']:,}"
    if audit["least_steps"] != audit["most_steps"]:
        steps = f"{audit['least_steps']:,} to {steps}"
    units = several(audit["unit"])
    told = f"{audit['num_distinct']:,} of {audit['num_rows']:,} {units} exactly once"
    if audit["num_tokens"] is not None:
        told += f" ({counted(audit['num_tokens'], 'token')} in all)"
    if audit["planned_repeats"]:
        told += f", {counted(audit['planned_repeats'], 'planned repeat')}"
    if audit["planned_left_out"]:
        told += f", {audit['planned_left_out']:,} left out by plan"
    console.print(f"[green]ok[/]    {who}, epoch {audit['epoch']}: {told}; {steps} steps each")


@report_command(_show)
@paths_argument
@batch_size_option
@number_option(
    "--world-size",
    "world_sizes",
    default=(1,),
    multiple=True,
    help="Ranks; may be repeated.",
)
@num_workers_option
@column_option
@order_options
@number_option("--num-threads", most=1024, help="Decode threads.")
@click.option("--no-decode", is_flag=True, help="Check only which rows each rank reads.")
@click.option("--no-audit", is_flag=True, help="Only decode.")
def command(
    paths: tuple[str, ...],
    storage: StorageArguments,
    world_sizes: tuple[int, ...],
    num_workers: int,
    columns: tuple[str, ...],
    num_threads: int | None,
    no_decode: bool,
    no_audit: bool,
    **order: Any,
) -> dict[str, Any]:
    """Decode everything, and audit that rows are read once.

    The command compares page checksums, the rows of every column, and the nulls that footers count.
    It names each failure by file, row group and column, and goes on with the rest. Then the native
    reader deals an epoch among the ranks and workers of each --world-size, and the command counts
    the rows that each gets. Exit code 1 if anything is wrong.
    """
    options = ReadOptions(num_threads, order["max_memory"], pin_memory=False)
    with progress("footers", None) as advance:
        manifests, without_rows, failures = open_files(paths, advance, storage)
    found = Findings(failures=failures)
    num_files = len(manifests) + len(without_rows) + len(failures)
    num_rows = sum(manifest.num_rows for manifest in manifests)
    audits: list[dict[str, Any]] = []
    left_out = None
    # First, so that wrong options fail before everything is decoded.
    if manifests and not no_audit:
        files, reach = paths_of(manifests)
        try:
            with progress("dealing", num_rows * len(world_sizes)) as advance:
                for world_size in world_sizes:
                    dataset = open_dataset(files, columns, reach, world_size, **order)
                    plan = dataset.plan(order["epoch"], num_workers)
                    audits.append(audit_world(dataset, plan, options, advance))
        except SchemaMismatchError as error:
            # Files that disagree are no data set.
            failures.append(failure_of(manifests[0].files[0], error))
        except UnsupportedColumnError as error:
            if columns or order["pack"]:
                raise
            text = f"files have no columns in common: {one_line(error)}"
            if _is_readable(manifests):
                failures.append(failure_of(manifests[0].files[0], text))
            else:
                left_out = _NO_TENSORS
    with progress("decoding", num_rows) as advance:
        for manifest in () if no_decode else manifests:
            verify_file(manifest, options, found, advance)
    return {
        "files": num_files,
        "files_without_rows": without_rows,
        "row_groups": sum(manifest.num_row_groups for manifest in manifests),
        **asdict(found),
        "decoded": not no_decode,
        "audits": audits,
        "audits_left_out": left_out,
        "holds": not failures and not any(audit["faults"] for audit in audits),
    }


def _is_readable(manifests: list[Manifest]) -> bool:
    """Return whether a column of a file can be read as a tensor."""
    leaves = ((leaf, one) for one in manifests for leaf in one.schemas[0])
    return any(tensor_of(leaf.path, one)[1] is not None for leaf, one in leaves)
