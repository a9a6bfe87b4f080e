"""The tables of speed in README.md, from the outcomes of a run."""

from __future__ import annotations

from collections.abc import Sequence

from report.results import Measured
from report.tables import markdown
from report.verdicts import Verdict

_OTHERS = ("pyarrow, batches", "pyarrow, row groups")


def _figures(verdict: Verdict) -> list[str]:
    """Returns our rate, the other side's, and their ratio, in the order of the header."""
    rates = (side.removesuffix(" GB/s").split(": ")[-1] for side in (verdict.ours, verdict.against))
    return [*rates, verdict.cells()[3]]


def tables(rows: Sequence[Measured]) -> str:
    """Returns those of README.md's tables whose rows were measured, as they stand there."""
    found = {one.row.name: one.outcome.verdicts for one in rows if one.outcome is not None}
    made = []
    if "batches" in found and "any-shape" in found:
        pairs = zip(found["batches"], found["any-shape"], strict=True)
        cells = [[one.case, *_figures(one), *_figures(whole)] for one, whole in pairs]
        halves = [name for other in _OTHERS for name in ("torchparquet", other, "ratio")]
        made.append(markdown(["codec", *halves], cells))
    if "by-hand" in found:
        header = ["kind of data", "codec", "torchparquet", "by hand", "ratio"]
        cells = [[*v.case.rsplit(", ", 1), *_figures(v)] for v in found["by-hand"]]
        made.append(markdown(header, cells))
    return "\n\n".join(made)
