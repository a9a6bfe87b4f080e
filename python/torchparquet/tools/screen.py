"""Output for the terminal: tables, JSON, and progress on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from torchparquet.errors import printable

_PLAIN_WIDTH = 120

Advance = Callable[[int], None]


def make_console(*, stderr: bool = False) -> Console:
    """Return the console of standard output; its width is fixed if that is no terminal."""
    if stderr:
        console = Console(stderr=True, highlight=False)
        console.quiet = not console.is_terminal
        return console
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


def print_json(report: Any) -> None:
    """Print a report as JSON."""
    text = json.dumps(report, indent=2, allow_nan=False)  # an error prints nothing
    sys.stdout.write(text + "\n")


def plain(text: str) -> str:
    """Return text that a terminal can show and that rich takes literally."""
    return escape(printable(text, keep="\n"))


def make_table(title: str, columns: Sequence[str], left: int = 1) -> Table:
    """Return a table whose first `left` columns are texts and the others numbers."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for index, heading in enumerate(columns):
        is_text = index < left
        table.add_column(
            heading,
            justify="left" if is_text else "right",
            overflow="fold",
            no_wrap=not is_text,
        )
    return table


def size(num_bytes: float) -> str:
    """Return a number of bytes as text with a unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if num_bytes < 1024:
            return f"{num_bytes:,.0f} {unit}" if unit == "B" else f"{num_bytes:,.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:,.1f} TiB"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, such as "2 files"."""
    return f"{count:,} {noun if count == 1 else several(noun)}"


def several(noun: str) -> str:
    """Return the plural of a noun."""
    return noun + ("es" if noun.endswith("ch") else "s")


@contextmanager
def progress(description: str, total: int | None) -> Iterator[Advance]:
    """Show how much of `total` is done, on standard error if that is a terminal."""
    console = Console(stderr=True, highlight=False)
    # With FORCE_COLOR, rich treats a file as a terminal.
    if not (console.is_terminal and console.file.isatty()):
        yield lambda _: None
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task(plain(description), total=total)
        yield lambda more: bar.advance(task, more)
