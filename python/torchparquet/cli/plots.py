"""Plots of reports: PNG and SVG by matplotlib, HTML by plotly, if they are installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from torchparquet.tools.plan.plan_report import unit_of
from torchparquet.tools.screen import several

_LIBRARY_OF = {".png": "matplotlib", ".svg": "matplotlib", ".html": "plotly"}

plot_option = click.option(
    "--plot", metavar="FILE", help="Draw the report too: FILE.png, FILE.svg or FILE.html."
)


@dataclass(frozen=True)
class Line:
    """A line of a chart."""

    name: str
    x: list[float]
    y: list[float]
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """One chart of a figure, of bars, lines or a heat map."""

    title: str
    x_label: str
    y_label: str
    bars: list[float] | None = None
    lines: tuple[Line, ...] = ()
    cells: list[list[float]] | None = None
    line_names: tuple[str, ...] = ()


Draw = Callable[[str, list[Panel]], None]


def checked_plot(path: str | None) -> Draw | None:
    """Make drawings of a report: paths that end in `.html` by plotly, others by matplotlib."""
    if path is None:
        return None
    library = _LIBRARY_OF.get(Path(path).suffix.lower())
    if library is None:
        raise click.UsageError(f"--plot must end in .png, .svg or .html, got {path!r}")
    if find_spec(library) is None:
        raise RuntimeError(
            f"--plot needs {library}, which is not installed (pip install {library}): {path}"
        )
    if not Path(path).absolute().parent.is_dir():
        raise FileNotFoundError(f"no such directory: {str(Path(path).absolute().parent)!r}")
    by = _draw_by_plotly if library == "plotly" else _draw_by_matplotlib
    return lambda title, panels: by(path, title, panels)


def plot_plan(report: dict[str, Any], draw: Draw) -> None:
    """Draw the rows of each rank."""
    ranks = report["ranks"]
    num_lines = len(report["heat_map"])
    num_shares = report["world_size"] * report["num_workers"]
    of = "ranks" if report["num_workers"] == 1 else "ranks and workers"
    names = tuple(str(-(-line * num_shares // num_lines)) for line in range(num_lines))
    units = several(unit_of(report))
    draw(
        f"Epoch {report['epoch']}: {report['rows']:,} {units} for {report['world_size']:,} ranks",
        [
            Panel(
                "Part of the data that each rank reads",
                "row groups in the order of files",
                of,
                cells=report["heat_map"],
                line_names=names,
            ),
            Panel(units.capitalize(), "rank", units, bars=[rank["rows"] for rank in ranks]),
            Panel("Bytes", "rank", "MiB", bars=[rank["bytes"] / 2**20 for rank in ranks]),
            Panel("Steps", "rank", "steps", bars=[rank["steps"] for rank in ranks]),
        ],
    )


def _draw_by_matplotlib(path: str, title: str, panels: list[Panel]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2 * len(panels)), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    for index, panel in enumerate(panels):
        axes = figure.add_subplot(len(panels), 1, index + 1)
        axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
        if panel.cells is not None:
            image = axes.imshow(panel.cells, aspect="auto", interpolation="nearest", vmin=0)
            shown = range(0, len(panel.line_names), -(-len(panel.line_names) // 16))
            axes.set_yticks(list(shown), [panel.line_names[line] for line in shown])
            figure.colorbar(image, ax=axes, label="part of the rows")
        if panel.bars is not None:
            axes.bar(range(len(panel.bars)), panel.bars)
        for line in panel.lines:
            style = "--" if line.dashed else "-"
            axes.plot(line.x, line.y, style, marker="o", label=line.name)
        if panel.lines:
            axes.set_xscale("log", base=2)
            axes.set_ylim(bottom=0)
            axes.legend()
    figure.savefig(path, dpi=120)


def _draw_by_plotly(path: str, title: str, panels: list[Panel]) -> None:
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=len(panels), cols=1, subplot_titles=[p.title for p in panels])
    for row, panel in enumerate(panels, 1):
        if panel.cells is not None:
            cells = go.Heatmap(z=panel.cells, zmin=0, showscale=False)
            figure.add_trace(cells, row=row, col=1)
            lines = list(range(len(panel.line_names)))
            figure.update_yaxes(
                autorange="reversed", tickvals=lines, ticktext=panel.line_names, row=row, col=1
            )
        if panel.bars is not None:
            figure.add_trace(go.Bar(y=panel.bars, showlegend=False), row=row, col=1)
        for line in panel.lines:
            style = {"dash": "dash"} if line.dashed else {}
            figure.add_trace(
                go.Scatter(x=line.x, y=line.y, name=line.name, line=style), row=row, col=1
            )
        if panel.lines:
            figure.update_xaxes(type="log", row=row, col=1)
            figure.update_yaxes(rangemode="tozero", row=row, col=1)
        figure.update_xaxes(title_text=panel.x_label, row=row, col=1)
        figure.update_yaxes(title_text=panel.y_label, row=row, col=1)
    figure.update_layout(title_text=title, height=360 * len(panels))
    # The page holds its script, so that it opens without a network.
    figure.write_html(path, include_plotlyjs=True)
