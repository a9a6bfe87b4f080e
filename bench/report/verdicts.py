"""The result of a row of the table: ratios, their spread, and the verdict on the target."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from passes.sides import Pass

HEADER = ("case", "torchparquet", "against", "figure", "spread", "target", "verdict")

# The side of torchparquet, in every comparison.
OURS = "torchparquet"


@dataclass(frozen=True)
class Setting:
    """How rows are measured.

    Attributes:
        data_dir: Folder of the generated files, which are kept.
        quick: Small files, to see that everything works; the figures say little.
        repeats: Rounds, of which the median counts.
        rivals_python: An interpreter that has what bench/requirements.txt names.
        num_threads: Of every side.
        batch_size: Rows, where nothing else is said.
    """

    data_dir: Path
    quick: bool
    repeats: int
    rivals_python: str | None = None
    num_threads: int = 2
    batch_size: int = 8192

    @property
    def codecs(self) -> tuple[str, ...]:
        """Of the files that are compared in each codec."""
        return ("none", "zstd") if self.quick else ("none", "lz4", "snappy", "zstd")


@dataclass(frozen=True)
class Target:
    """The target of a figure."""

    value: float
    unit: str = "x"
    at_most: bool = False

    def is_met(self, figure: float) -> bool:
        """True if ``figure`` is good enough."""
        return figure <= self.value if self.at_most else figure >= self.value

    def __str__(self) -> str:
        """Returns it as the table shows it."""
        return f"{'at most' if self.at_most else 'at least'} {self.value:g}{self.unit}"


@dataclass(frozen=True)
class Verdict:
    """One line of a row's table.

    Attributes:
        case: The case that was measured, such as the codec.
        ours: torchparquet's side of it, with its unit.
        against: The other side, by name and with its unit.
        figure: The figure to compare with the target; None if it could not be measured.
        spread: Least and most of the figure over rounds.
        target: None where the figure is only told.
        unit: Of the figure.
    """

    case: str
    ours: str
    against: str
    figure: float | None
    spread: tuple[float, float] | None = None
    target: Target | None = None
    unit: str = "x"

    @property
    def is_met(self) -> bool | None:
        """True if the target is met; None where there is none."""
        if self.target is None:
            return None
        return self.figure is not None and self.target.is_met(self.figure)

    def cells(self) -> list[str]:
        """Returns its cells under ``HEADER``."""
        figure = "-" if self.figure is None else f"{self.figure:.2f}{self.unit}"
        spread = "-" if self.spread is None else f"{self.spread[0]:.2f} to {self.spread[1]:.2f}"
        verdict = {True: "met", False: "not met", None: "-"}[self.is_met]
        target = "-" if self.target is None else str(self.target)
        return [self.case, self.ours, self.against, figure, spread, target, verdict]


@dataclass
class Outcome:
    """The measurements of a row.

    Attributes:
        verdicts: One for each case.
        notes: Further facts, such as the contenders that are not installed.
        rates: Rows per second of each side, for the plot.
        versions: Of packages that only rivals have.
    """

    verdicts: list[Verdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


class SkippedError(RuntimeError):
    """A row cannot be measured here; the message says what is missing."""


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes:
        name: For ``--only``.
        work: The work that is measured.
        against: Whom or what it is compared with.
        measure: Measures it.
    """

    name: str
    work: str
    against: str
    measure: Callable[[Setting], Outcome]


def median(passes: Sequence[Pass], of: Callable[[Pass], float]) -> float:
    """Returns the median of ``of`` over ``passes``."""
    return statistics.median(map(of, passes))


def _rate(passes: Sequence[Pass], in_bytes: bool) -> str:
    if in_bytes:
        return f"{median(passes, lambda one: one.gb_per_second):.2f} GB/s"
    return f"{median(passes, lambda one: one.rows_per_second) / 1e6:.2f} Mrows/s"


def seconds(one: Pass) -> float:
    """Returns how long ``one`` took, of the clock."""
    return one.seconds


def cpu_seconds(one: Pass) -> float:
    """Returns how much time of the processors ``one`` took."""
    return one.cpu_seconds


def ratio(
    case: str,
    ours: Sequence[Pass],
    other: tuple[str, Sequence[Pass]],
    target: float | None,
) -> Verdict:
    """Returns how many times as fast ours is: a ratio of medians, its spread over rounds."""
    name, theirs = other
    rounds = [b.seconds / a.seconds for a, b in zip(ours, theirs, strict=True)]
    # A contender that counts rows does not know their bytes.
    in_bytes = bool(ours[0].totals.num_bytes and theirs[0].totals.num_bytes)
    return Verdict(
        case,
        _rate(ours, in_bytes),
        f"{name}: {_rate(theirs, in_bytes)}",
        median(theirs, seconds) / median(ours, seconds),
        (min(rounds), max(rounds)),
        None if target is None else Target(target),
    )
