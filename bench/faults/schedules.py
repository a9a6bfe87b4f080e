"""The C++ tests of threads, each under many seeded schedules, under ThreadSanitizer.

    cmake --preset tsan && cmake --build --preset tsan
    python bench/faults/schedules.py --runs 100

A seed draws which threads are held up, at which locks and before which notifications. A run fails
if the test does, if ThreadSanitizer reports, or if it does not end. Exits with 1 if one fails; the
last column repeats it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from report.machine import described, environment
from report.tables import markdown

_BUILD = Path(__file__).resolve().parents[2] / "build" / "tsan" / "cpp" / "tests"
_VARIABLE = "TORCHPARQUET_SCHEDULE"
_TIMEOUT_SECONDS = 300


class Run(NamedTuple):
    """A test under one seed."""

    test: Path
    seed: int
    seconds: float
    said: str  # of a failed one

    def repeated_by(self) -> str:
        """Return the command that runs it again."""
        return f"{_VARIABLE}={self.seed} {os.path.relpath(self.test)}"


def _tests(names: list[str]) -> list[Path]:
    found = [path for path in sorted(_BUILD.glob("*_test")) if os.access(path, os.X_OK)]
    return [path for path in found if not names or path.name in names]


def _run(test: Path, seed: int) -> Run:
    # As the preset's ctest does: Arrow's other pools are not compiled for the sanitizer.
    arrow = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
    settings = os.environ | arrow | {_VARIABLE: str(seed), "TSAN_OPTIONS": "halt_on_error=1"}
    began = time.monotonic()
    try:
        done = subprocess.run(
            [test, "--no-version"],
            env=settings,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        return Run(test, seed, _TIMEOUT_SECONDS, f"did not end: {expired.stdout!r}")
    said = "" if done.returncode == 0 else done.stdout + done.stderr
    return Run(test, seed, time.monotonic() - began, said)


def _runs(tests: list[Path], seeds: range) -> Iterator[Run]:
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for test in tests:
            yield from pool.map(partial(_run, test), seeds)


def main() -> int:
    """Run the tests and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100, help="schedules of each test")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--tests", nargs="+", default=[], help="names; all without it")
    arguments = parser.parse_args()
    tests = _tests(arguments.tests)
    if not tests:
        parser.error(f"no such test in {_BUILD}: build the preset tsan first")
    began = time.monotonic()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.runs)
    rows, num_failed = [], 0
    for test, runs in groupby(_runs(tests, seeds), key=lambda run: run.test):
        all_runs = list(runs)
        failed = [run for run in all_runs if run.said]
        num_failed += len(failed)
        rows.append(
            [
                test.name,
                str(len(all_runs)),
                str(len(failed)),
                f"{statistics.median(run.seconds for run in all_runs):.2f}",
                failed[0].repeated_by() if failed else "",
            ]
        )
        if failed:
            print(failed[0].said[-6000:], file=sys.stderr, flush=True)
    print(described(environment(2)))
    print(markdown(["test", "runs", "failed", "seconds a run", "repeated by"], rows))
    print(f"{len(rows) * len(seeds)} runs, {num_failed} failed, {time.monotonic() - began:.0f} s")
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
