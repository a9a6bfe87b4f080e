"""How long it takes from `iter` to the first batch."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from generated.generated_files import click_logs
from passes.consumption import PassTotals
from passes.sides import ForkedSide
from report.verdicts import Outcome, Row, Setting, Target, Verdict

MILLISECONDS = 30.0


def _first_batch_seconds(path: Path, setting: Setting) -> float:
    """Of a data set that was never iterated; its threads and memory are made meanwhile."""
    from torchparquet import ParquetDataset

    dataset = ParquetDataset(path, batch_size=setting.batch_size, num_threads=setting.num_threads)
    begin = time.perf_counter()
    batches = iter(dataset)
    next(batches)
    seconds = time.perf_counter() - begin
    del batches
    dataset.close()
    return seconds


def measure(setting: Setting) -> Outcome:
    """In a process that has imported everything; the first data set of it does not count."""
    outcome = Outcome()
    for codec, path in click_logs(setting).items():

        def once(path: Path = path) -> float:
            return _first_batch_seconds(path, setting)

        process = ForkedSide(codec, PassTotals, {"first batch": once})
        process.ask("first batch")
        rounds = [1e3 * process.ask("first batch") for _ in range(3 * setting.repeats)]
        process.close()
        found = statistics.median(rounds)
        outcome.verdicts.append(
            Verdict(
                codec,
                f"{found:.1f} ms",
                "-",
                found,
                (min(rounds), max(rounds)),
                Target(MILLISECONDS, " ms", at_most=True),
                " ms",
            )
        )
    return outcome


ROWS = (
    Row(
        "first-batch",
        "first batch after iter(), row groups of 250,000 rows of 40 columns",
        "a bound",
        measure,
    ),
)
