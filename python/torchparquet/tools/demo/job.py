"""What the demo gives its ranks to do, and what they give back."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from torchparquet.tools.demo.data import Task
from torchparquet.tools.demo.totals import ColumnFacts, Totals
from torchparquet.tools.verify.row_audit import RowAudit, Runs

_JOB, _RESULTS = "job", "results"


@dataclass(frozen=True)
class Job:
    """What all ranks do.

    Attributes:
        directory: For messages between the ranks and their parent; temporary.
        files: Of the data set, in order.
        task: What is predicted from what.
        facts: Of each column; their means and deviations scale the model's numbers.
        num_epochs: Epochs to train for.
        batch_size: Rows per rank and step.
        debug: Let errors show their tracebacks.
        as_json: Leave standard output alone, and show steps on a terminal only.
    """

    directory: Path
    files: tuple[str, ...]
    task: Task
    facts: dict[str, ColumnFacts]
    num_epochs: int
    batch_size: int
    debug: bool
    as_json: bool = False


@dataclass(frozen=True)
class RankEpoch:
    """What one rank did in one epoch.

    Attributes:
        num_rows: Rows delivered, repeats included.
        num_steps: Batches delivered.
        num_row_groups: Row groups that they came from.
        seconds: Of the epoch, training included.
        wait_seconds: Thereof, spent waiting for data.
        runs: The row ids delivered, int64 `[n, 2]` as in `SeenRows`.
        totals: Of the values delivered, by column.
        squared_errors: Sum over the rows of each step, float64 `[num_steps]`, target's unit.
        num_targets: Rows of each step with a target, int64 `[num_steps]`.
    """

    num_rows: int
    num_steps: int
    num_row_groups: int
    seconds: float
    wait_seconds: float
    runs: Runs
    totals: dict[str, Totals]
    squared_errors: NDArray[np.float64]
    num_targets: NDArray[np.int64]


@dataclass(frozen=True)
class EpochResult:
    """What all ranks did in one epoch.

    Attributes:
        audit: Of the rows delivered.
        planned_steps: Of every rank.
        ranks: By rank.
    """

    audit: RowAudit
    planned_steps: int
    ranks: tuple[RankEpoch, ...]

    @property
    def steps_agree(self) -> bool:
        """Whether all ranks took the planned number of steps."""
        return all(rank.num_steps == self.planned_steps for rank in self.ranks)

    def totals(self, column: str) -> Totals:
        """Return what all ranks delivered of a column."""
        total = Totals()
        for rank in self.ranks:
            total += rank.totals[column]
        return total

    def error(self, begin: float, end: float) -> float:
        """Return the root mean square error between two points of the epoch, 0 to 1."""
        steps = min(len(rank.squared_errors) for rank in self.ranks)
        first = min(int(begin * steps), steps - 1)
        part = slice(first, max(first + 1, round(end * steps)))
        squares = sum(float(rank.squared_errors[part].sum()) for rank in self.ranks)
        count = sum(int(rank.num_targets[part].sum()) for rank in self.ranks)
        return float((squares / max(1, count)) ** 0.5)


# Pickles are safe here: the directory is this user's alone, made for this run.


def save_job(job: Job) -> None:
    """Write the job into its directory."""
    (job.directory / _JOB).write_bytes(pickle.dumps(job))


def load_job(directory: str) -> Job:
    """Read the job from its directory."""
    job: Job = pickle.loads((Path(directory) / _JOB).read_bytes())  # noqa: S301
    return job


def save_results(job: Job, results: list[EpochResult]) -> None:
    """Write the results into the job's directory."""
    (job.directory / _RESULTS).write_bytes(pickle.dumps(results))


def load_results(job: Job) -> list[EpochResult]:
    """Read the results from the job's directory."""
    results: list[EpochResult] = pickle.loads((job.directory / _RESULTS).read_bytes())  # noqa: S301
    return results
