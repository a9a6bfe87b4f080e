"""Reports for people: text and tables on the terminal, JSON, progress, plots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from torchparquet.errors import printable

_PLAIN_WIDTH = 120

Advance = Callable[[int], None]


def make_console(*, stderr: bool = False) -> Console:
    """Return a console. If it is no terminal, its width is fixed, and standard error is silent."""
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.quiet, console.width = stderr, _PLAIN_WIDTH
    return console


def plain(text: str) -> str:
    """Return text that a terminal can show and that rich takes literally."""
    return escape(printable(text, keep="\n"))


def show_table(
    console: Console,
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    left: int = 1,
) -> None:
    """Print a table whose first `left` columns are texts; a row without cells draws a line."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for index, heading in enumerate(headings):
        justify: Literal["left", "right"] = "left" if index < left else "right"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=index >= left)
    for row in rows:
        if row:
            table.add_row(*(f"{of:,}" if isinstance(of, int) else plain(str(of)) for of in row))
        else:
            table.add_section()
    console.print(table)


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
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(plain(description), total=total)
        yield lambda more: bar.advance(task, more)


class Panel(NamedTuple):
    """One chart of a figure: a bar for each of `bars`, or lines through points `(x, y)`."""

    title: str
    x_label: str
    bars: Sequence[float] = ()
    lines: Mapping[str, Sequence[tuple[float, float]]] = {}


def checked_plot(path: str) -> str:
    """Return the path; raise if no plot can be drawn there."""
    if Path(path).suffix.lower() not in (".png", ".svg"):
        raise ValueError(f"it must end in .png or .svg, got {path!r}")
    if find_spec("matplotlib") is None:
        raise RuntimeError(
            "--plot needs matplotlib, which is not installed: pip install 'torchparquet[plot]'"
        )
    directory = Path(path).absolute().parent
    if not directory.is_dir():
        raise FileNotFoundError(f"no such directory: {str(directory)!r}")
    return path


def draw(path: str, title: str, panels: Sequence[Panel]) -> None:
    """Draw charts, one below the other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2 * len(panels)), layout="constrained")
    figure.suptitle(title)
    charts = figure.subplots(len(panels), squeeze=False).flat
    for axes, panel in zip(charts, panels, strict=True):
        axes.set(title=panel.title, xlabel=panel.x_label)
        axes.bar(range(len(panel.bars)), panel.bars)
        for name, points in panel.lines.items():
            axes.plot(*zip(*points, strict=True), marker="o", label=name)
        if panel.lines:
            axes.set_xscale("log", base=2)
            axes.set_ylim(bottom=0)
            axes.legend()
    figure.savefig(path, dpi=120)
