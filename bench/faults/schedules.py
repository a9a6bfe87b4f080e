"""Each C++ test case of threads, under many seeded schedules, under ThreadSanitizer.

    cmake --preset tsan && cmake --build --preset tsan
    python bench/faults/schedules.py --runs 1000

A seed draws which threads are held up, at which locks and before which notifications, and which
part of its settings and trials the case tries. A run fails if the case does, if ThreadSanitizer
reports, or if it does not end. A case that holds up fewer than two threads runs once and is not
counted. Exits with 1 if one fails; the last column repeats it.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from report.machine import described, environment
from report.tables import markdown

_BUILD = Path(__file__).resolve().parents[2] / "build" / "tsan" / "cpp" / "tests"
_VARIABLE = "TORCHPARQUET_SCHEDULE"
_TIMEOUT_SECONDS = 300


class Case(NamedTuple):
    """A test case of a program."""

    program: Path
    name: str

    def command(self) -> list[str]:
        """Return the command that runs it alone."""
        # A comma would end the name; a question mark stands for any character.
        return [os.path.relpath(self.program), f"--test-case={self.name.replace(',', '?')}"]


class Run(NamedTuple):
    """A case under one seed."""

    case: Case
    seed: int
    seconds: float
    num_threads: int
    failure: str  # empty if there is none

    def repeated_by(self) -> str:
        """Return the command that runs it again."""
        return f"{_VARIABLE}={self.seed} {shlex.join(self.case.command())}"


def _programs(names: list[str]) -> list[Path]:
    found = [path for path in sorted(_BUILD.glob("*_test")) if os.access(path, os.X_OK)]
    return [path for path in found if not names or path.name in names]


def _cases(program: Path) -> list[Case]:
    listed = subprocess.run(
        [program, "--list-test-cases", "--no-version"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    # Between two rules, after a line that names the filter.
    rules = [number for number, line in enumerate(listed) if line.startswith("=====")]
    return [Case(program, name) for name in listed[rules[0] + 1 : rules[1]]]


def _run(case: Case, seed: int) -> Run:
    # As the preset's ctest does: Arrow's other pools are not compiled for the sanitizer.
    arrow = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
    # A process need not wait at its end for threads that might still be reported.
    sanitizer = {"TSAN_OPTIONS": "halt_on_error=1:atexit_sleep_ms=0"}
    began = time.monotonic()
    try:
        done = subprocess.run(
            [*case.command(), "--no-version"],
            env=os.environ | arrow | sanitizer | {_VARIABLE: str(seed)},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        return Run(case, seed, _TIMEOUT_SECONDS, 0, f"did not end: {expired.stdout!r}")
    seconds = time.monotonic() - began
    threads = re.search(r"threads held up: (\d+)", done.stderr)
    ran = re.search(r"test cases: +1 ", done.stdout)
    failed = done.returncode != 0 or threads is None or ran is None
    # One that is killed writes nothing.
    failure = f"exit code {done.returncode}\n{done.stdout}{done.stderr}" if failed else ""
    return Run(case, seed, seconds, int(threads[1]) if threads else 0, failure)


def _runs(cases: list[Case], seeds: range) -> Iterator[list[Run]]:
    """Yield the runs of each case that holds up several threads."""
    # Threads that are held up, or wait for a network, leave their processors to others.
    with ThreadPoolExecutor(3 * len(os.sched_getaffinity(0))) as pool:
        for first in pool.map(lambda case: _run(case, seeds[0]), cases):
            if first.num_threads > 1 or first.failure:
                yield [first, *pool.map(partial(_run, first.case), seeds[1:])]


def main() -> int:
    """Run the cases and print a table of programs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100, help="schedules of each case")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--tests", nargs="+", default=[], help="programs; all without it")
    parser.add_argument("--cases", default="", help="a part of the names of cases")
    arguments = parser.parse_args()
    programs = _programs(arguments.tests)
    if not programs:
        parser.error(f"no such test in {_BUILD}: build the preset tsan first")
    began = time.monotonic()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.runs)
    rows, num_runs, num_cases, num_failed = [], 0, 0, 0
    for program in programs:
        chosen = [case for case in _cases(program) if arguments.cases in case.name]
        of_cases = list(_runs(chosen, seeds))
        failed = [run for runs in of_cases for run in runs if run.failure]
        num_cases += len(of_cases)
        num_runs += sum(map(len, of_cases))
        num_failed += len(failed)
        if of_cases:
            seconds = sum(statistics.median(run.seconds for run in runs) for runs in of_cases)
            repeated_by = failed[0].repeated_by() if failed else ""
            row = [program.name, len(of_cases), len(failed), f"{seconds:.2f}", repeated_by]
            rows.append([str(cell) for cell in row])
            print(*row, file=sys.stderr, flush=True)  # a thousand runs take hours
        if failed:
            print(failed[0].failure[-6000:], file=sys.stderr, flush=True)
    print(described(environment(2)))
    print(markdown(["test", "cases", "failed", "seconds for one of each", "repeated by"], rows))
    print(
        f"{num_cases} cases, {num_runs} runs, {num_failed} failed, {time.monotonic() - began:.0f} s"
    )
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
