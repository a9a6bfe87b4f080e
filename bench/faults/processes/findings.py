"""Counts of kills and of their faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from faults.processes.children import Child

FAULTS = ("rows lost", "rows twice", "other batches", "files not whole", "failed repeats")


@dataclass
class Findings:
    """Kills of one kind, and what came of them.

    Attributes:
        kills: Processes that were ended by SIGKILL while they worked.
        rounds: Runs that came to their end, after any number of kills.
        faults: Numbers by fault.
        shown: A word on the first fault.
    """

    kills: int = 0
    rounds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    shown: str = ""

    def add_kills(self, children: Sequence[Child]) -> None:
        """Count the children that were killed."""
        self.kills += sum(child.code == -9 for child in children)

    def add(self, fault: str, number: int, words: str) -> None:
        """Count faults; none is fine."""
        self.faults[fault] += number
        if number and not self.shown:
            self.shown = f"{fault}: {words}"

    @property
    def holds(self) -> bool:
        """True if there were kills, runs that came to their end, and no fault."""
        return self.kills > 0 and self.rounds > 0 and not self.faults.total()
