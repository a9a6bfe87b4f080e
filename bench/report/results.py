"""The results of a run as Markdown, with a drawing of the speeds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report.tables import markdown
from report.verdicts import HEADER, OURS, Outcome, Row

PLOT = "rows_per_second.svg"


@dataclass(frozen=True)
class Measured:
    """A row and what came of it.

    Attributes:
        row: Of the table.
        outcome: None where it was skipped or failed.
        reason: Why.
        other_cores: Cores that other processes used meanwhile, on average.
    """

    row: Row
    outcome: Outcome | None
    reason: str = ""
    other_cores: float = 0.0


def section(measured: Measured) -> str:
    """Returns what is printed of a row: its table and what else is to be known."""
    row = measured.row
    lines = [f"## {row.name}", "", f"{row.work}; against: {row.against}.", ""]
    if measured.outcome is None:
        return "\n".join([*lines, measured.reason, ""])
    cells = [verdict.cells() for verdict in measured.outcome.verdicts]
    lines += [markdown(HEADER, cells), ""]
    lines += [note + "\n" for note in measured.outcome.notes]
    lines += [f"Other processes used {measured.other_cores:.2f} cores meanwhile.", ""]
    return "\n".join(lines)


def summary(rows: list[Measured]) -> str:
    """Returns one line for each row: how many of its cases met their target."""
    cells = []
    for measured in rows:
        verdict = measured.reason
        if measured.outcome is not None:
            judged = [v.is_met for v in measured.outcome.verdicts if v.is_met is not None]
            verdict = "met" if all(judged) else f"not met: {judged.count(False)} of {len(judged)}"
        cells.append([measured.row.name, measured.row.work, measured.row.against, verdict])
    return markdown(["row", "work", "against", "verdict"], cells)


def draw(rates: dict[str, float], path: Path) -> None:
    """Draws rows per second of each side as bars, the fastest above."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = PLOT  # the same figures, the same file
    names = sorted(rates, key=lambda name: rates[name])
    figure = Figure(figsize=(8, 0.8 + 0.32 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    values = [rates[name] / 1e6 for name in names]
    colours = ["#2f5f80" if name == OURS else "#b9c4cc" for name in names]
    bars = axes.barh(names, values, color=colours)
    axes.bar_label(bars, [f"{value:.2f}" for value in values], padding=3, fontsize=8)
    axes.set_xlabel("million rows per second")
    axes.margins(x=0.1)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def write(path: Path, machine: dict[str, Any], rows: list[Measured], command: str) -> None:
    """Writes the results to ``path``, and the drawing beside it where there are rivals."""
    versions = dict(machine["versions"])
    rates: dict[str, float] = {}
    for measured in rows:
        if measured.outcome is not None:
            versions |= measured.outcome.versions
            rates |= measured.outcome.rates
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [
        "# Results",
        "",
        f"Printed by `{command}` on {machine['date']}. How each figure is taken is told in "
        "[docs/inside/performance.md](../../docs/inside/performance.md).",
        "",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB of memory, "
        f"Linux {machine['kernel']}, {machine['threads']} threads, page cache warm. {named}.",
        "",
        summary(rows),
        "",
    ]
    if rates:
        draw(rates, path.parent / PLOT)
        lines += [f"![Rows per second, end to end]({PLOT})", ""]
    lines += [section(measured) for measured in rows]
    path.write_text("\n".join(lines))
