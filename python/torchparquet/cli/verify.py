"""`torchparquet verify`: decode everything, and check that every row is dealt exactly once."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_reading import read_manifest
from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet._impl.reading.read_options import ReadOptions
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
from torchparquet.errors import SchemaMismatchError, UnsupportedColumnError, one_line
from torchparquet.tools.inspect.tensors import tensor_of
from torchparquet.tools.screen import counted, make_console, plain, print_json, progress, several
from torchparquet.tools.verify import open_files, paths_of, summary, verify_file
from torchparquet.tools.verify.decoding import Failure
from torchparquet.tools.verify.exactly_once import audit_world

_NO_TENSORS = "no column can be read as a tensor, so no rank reads rows"


@click.command()
@paths_argument
@batch_size_option
@world_size_option(multiple=True)
@num_workers_option
@column_option
@order_options
@click.option("--num-threads", type=click.IntRange(1, 1024), metavar="N", help="Decode threads.")
@click.option("--no-decode", is_flag=True, help="Check only which rows each rank reads.")
@click.option("--no-audit", is_flag=True, help="Only decode.")
@json_option
@debug_option
def command(
    paths: tuple[str, ...],
    storage: StorageArguments,
    world_sizes: tuple[int, ...],
    num_workers: int,
    columns: tuple[str, ...],
    num_threads: int | None,
    no_decode: bool,
    no_audit: bool,
    as_json: bool,
    **order: Any,
) -> int:
    """Decode everything, and audit that rows are read once.

    The command compares page checksums, the rows of every column, and the nulls that footers count.
    It names each failure by file, row group and column, and goes on with the rest. Then the native
    reader deals an epoch among the ranks and workers of each --world-size, and the command counts
    the rows that each gets. Exit code 1 if anything is wrong.
    """
    dealt = OrderOptions(**order)
    options = ReadOptions(num_threads, dealt.max_memory, pin_memory=False)
    with progress("footers", None) as advance:
        manifests, without_rows, unreadable = open_files(paths, advance, storage)
    num_rows = sum(manifest.num_rows for manifest in manifests)
    audits: list[dict[str, Any]] = []
    disagreements: list[Failure] = []
    # First, so that wrong options fail before everything is decoded.
    if manifests and not no_audit:
        try:
            audits = _audits(manifests, columns, world_sizes, num_workers, options, dealt)
        except SchemaMismatchError as error:
            # Files that disagree are no data set.
            disagreements.append(Failure(manifests[0].files[0], None, None, one_line(error)))
    checks = []
    with progress("decoding", num_rows) as advance:
        for manifest in () if no_decode else manifests:
            checks.append(verify_file(manifest, options, advance))
    report = summary(manifests, without_rows, [*unreadable, *disagreements], checks)
    report["files"] -= len(disagreements)
    holds = not report["failures"] and not any(audit["faults"] for audit in audits)
    no_tensors = bool(manifests) and not (no_audit or audits or disagreements)
    report |= {
        "decoded": not no_decode,
        "audits": audits,
        "audits_left_out": _NO_TENSORS if no_tensors else None,
        "holds": holds,
    }
    if as_json:
        print_json(report)
    else:
        _show(make_console(), report)
    return 0 if holds else 1


def _audits(
    manifests: list[Manifest],
    columns: tuple[str, ...],
    world_sizes: tuple[int, ...],
    num_workers: int,
    options: ReadOptions,
    order: OrderOptions,
) -> list[dict[str, Any]]:
    files, reach = paths_of(manifests)
    try:
        chosen: list[str] | None = list(columns)
        if order.pack:
            chosen = None
        elif not chosen:
            chosen = readable_columns(read_manifest(files, storage=reach))
    except UnsupportedColumnError as error:
        leaves = ((leaf, one) for one in manifests for leaf in one.schemas[0])
        if any(tensor_of(leaf.path, one)[1] is not None for leaf, one in leaves):
            raise SchemaMismatchError(
                f"files have no columns in common: {one_line(error)}"
            ) from None
        return []  # No data set can read such files.
    num_rows = sum(manifest.num_rows for manifest in manifests)
    audits = []
    with progress("dealing", num_rows * len(world_sizes)) as advance:
        for world_size in world_sizes:
            dataset = order.dataset(files, world_size, columns=chosen, filesystem=reach.filesystem)
            plan = dataset.plan(order.epoch, num_workers)
            audits.append(audit_world(dataset, plan, options, advance))
    return audits


def _show(console: Console, report: dict[str, Any]) -> None:
    files = counted(report["files"], "file")
    if report["decoded"]:
        groups = counted(report["row_groups"], "row group")
        columns = counted(report["columns"], "column")
        console.print(f"{files}, {groups}, {counted(report['rows'], 'row')}, {columns} decoded")
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
    console.print(_verdict(report))


def _verdict(report: dict[str, Any]) -> str:
    failed = len(report["failures"]) + sum(len(audit["faults"]) for audit in report["audits"])
    if failed:
        return f"[bold red]Verification failed: {counted(failed, 'fault')}.[/]"
    found = ["every value decodes"] if report["decoded"] else []
    found += ["every row is read as planned"] if report["audits"] else []
    return f"[bold green]Verified: {' and '.join(found) or 'nothing was checked'}.[/]"


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
