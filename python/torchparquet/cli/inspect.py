"""`torchparquet inspect`: the contents of files, their tensors, and advice."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from torchparquet._impl.files.manifest_reading import read_manifest
from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet.cli.arguments import (
    batch_size_option,
    num_workers_option,
    paths_argument,
    report_command,
    size_option,
    world_size_option,
)
from torchparquet.tools.inspect import Use, inspect_files
from torchparquet.tools.screen import counted, make_table, plain, progress, size
from torchparquet.tools.tensors import shown_tensor

_MAX_FILES = 20
_MAX_NAMES = 8


def _show(console: Console, report: dict[str, Any]) -> None:
    _show_files(console, report)
    _show_columns(console, report)
    _show_advice(console, report)


def _show_files(console: Console, report: dict[str, Any]) -> None:
    files, groups = report["files"], report["row_groups"]
    console.print(
        f"{counted(len(files), 'file')}, {size(report['bytes'])}, "
        f"{counted(groups['count'], 'row group')}, {counted(report['rows'], 'row')}"
    )
    for name, count in report["writers"].items():
        console.print(f"written by {plain(name)}" + (f": {count:,}" if count < len(files) else ""))
    table = make_table("\nRow groups", ("", "least", "median", "most"))
    rows = groups["rows"]
    table.add_row("rows", *(f"{rows[which]:,}" for which in ("min", "median", "max")))
    for label in ("compressed", "uncompressed"):
        sizes = groups[f"{label}_bytes"]
        table.add_row(label, *(size(sizes[which]) for which in ("min", "median", "max")))
    console.print(table)
    table = make_table("\nFiles", ("file", "row groups", "rows", "size"))
    for file in files[:_MAX_FILES]:
        table.add_row(
            plain(file["path"]), f"{file['row_groups']:,}", f"{file['rows']:,}", size(file["bytes"])
        )
    console.print(table)
    if len(files) > _MAX_FILES:
        console.print(f"and {len(files) - _MAX_FILES:,} more, which --json lists")


def _show_columns(console: Console, report: dict[str, Any]) -> None:
    headings = ("column", "kind", "becomes", "codec", "encodings", "nulls", "size", "after codec")
    table = make_table("\nColumns", headings, left=5)
    for column in report["columns"]:
        nulls = column["nulls"]
        encodings = ", ".join(column["encodings"])
        if column["dictionary_fallback"]:
            encodings += " (falls back)"
        table.add_row(
            plain(column["name"]),
            plain(" / ".join(column["kinds"])),
            shown_tensor(column["tensor"]),
            ", ".join(column["codecs"]).lower(),
            encodings.lower(),
            "?" if nulls is None else f"{nulls:,}",
            size(column["compressed_bytes"]),
            f"{column['compressed_bytes'] / max(1, column['uncompressed_bytes']):.0%}",
        )
    console.print(table)


def _show_advice(console: Console, report: dict[str, Any]) -> None:
    console.print("\n[bold]Advice[/]")
    if not report["advice"]:
        console.print("  none")
    num_columns = len(report["columns"])
    for advice in report["advice"]:
        names = advice["columns"]
        shown = ", ".join(names[:_MAX_NAMES])
        if len(names) > _MAX_NAMES:
            shown += f" and {len(names) - _MAX_NAMES:,} more"
        if names and len(names) == num_columns:
            shown = "all columns"
        about = f"{plain(shown)} " if names else ""
        console.print(f"  [yellow]{advice['rule']}[/]  {about}{plain(advice['text'])}")


@report_command(_show)
@paths_argument
@world_size_option
@num_workers_option
@batch_size_option
@size_option("--max-memory", "1GiB", "`max_memory` of the data set; for the advice.")
@click.option("--all-pages", is_flag=True, help="Look at every page instead of a sample.")
def command(
    paths: tuple[str, ...],
    storage: StorageArguments,
    world_size: int,
    num_workers: int,
    batch_size: int,
    max_memory: int,
    all_pages: bool,
) -> dict[str, Any]:
    """Show the contents of files, and what could be better.

    The command also shows the tensor of each column. It reads footers and headers of pages, but no
    values.
    """
    manifest = read_manifest(list(paths), storage=storage)
    use = Use(world_size, max(1, num_workers), batch_size, max_memory)
    with progress("footers", len(manifest.files)) as advance:
        return inspect_files(manifest, use, all_pages=all_pages, advance=advance)
