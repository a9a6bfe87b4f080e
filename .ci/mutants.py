"""Applies random changes to the plan and the session, one by one, and counts what tests see.

`nox -s mutants` calls it. It works in a copy of the tracked files, on the installed extension. The
same seed and sources give the same changes, but none of annotations, which nothing evaluates.

The tests run once under coverage. Then each change costs the tests that reach its statement, the
fastest first, until one fails. A line that is not reached in this process costs the tests of its
module that start others.
"""

import argparse
import ast
import os
import random
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from math import inf
from operator import attrgetter
from pathlib import Path

import coverage
import pytest
from cosmic_ray.commands import init
from cosmic_ray.modules import find_modules
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome

PACKAGE = Path("python/torchparquet")
ROOMS = ("_impl/plan", "_impl/session")
# The tests of the plan, of states and of ranks.
TESTS = (
    *("tests/plan", "tests/session", "tests/mixing", "tests/ranks", "tests/sequences"),
    "tests/functions/test_transforms.py",  # tells the rows of a batch that failed
)
COPY = Path("build/mutants")
# An editable installation would be found before the copy.
NO_EDITABLE = """
import sys
sys.meta_path[:] = [one for one in sys.meta_path if "ScikitBuild" not in type(one).__name__]
"""
PYTEST = ("-q", "-n", "0", "--hypothesis-seed", "1")
# Which cases `mostly_long` leaves out depends on those that are given.
NAMED = ("-x", "-m", "", "--timeout", "60")
# These compare None, or something else that is equal to itself alone.
SAME = ("_Is_Eq", "_IsNot_NotEq")


class Reach:
    """A plugin of pytest: the tests that reach each line of some folders, and their seconds."""

    def __init__(self, folders: list[Path]) -> None:
        """Measure in this process."""
        self.coverage = coverage.Coverage(data_file=None, source=list(map(str, folders)))
        self.seconds: dict[str, float] = {}
        self.test = ""
        self.starting: set[str] = set()  # tests that start processes
        sys.addaudithook(self._audit)

    def _audit(self, event: str, _: object) -> None:
        if event in ("os.fork", "subprocess.Popen"):
            self.starting.add(self.test)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Count the lines from here on as reached by this test."""
        self.test = nodeid
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Sum up the phases of a test; one that fails without a change tells nothing."""
        taken = self.seconds.get(report.nodeid, 0.0) + report.duration
        self.seconds[report.nodeid] = inf if report.failed else taken

    def measure(self, arguments: list[str]) -> dict[str, dict[int, set[str]]]:
        """Run tests, and return those that passed by file and line."""
        self.coverage.start()
        pytest.main(arguments, plugins=[self])
        self.coverage.stop()
        data = self.coverage.get_data()
        passed = {name for name, taken in self.seconds.items() if taken < inf}
        return {
            path: {line: passed & {*names} for line, names in data.contexts_by_lineno(path).items()}
            for path in data.measured_files()
        }


def copied() -> None:
    """Copy the tracked files and the extension, and have them imported from there."""
    shutil.rmtree(COPY, ignore_errors=True)
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    for name in filter(None, listed.stdout.decode().split("\0")):
        (COPY / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(name, COPY / name)
    installed = find_spec("torchparquet")
    assert installed is not None
    for folder in installed.submodule_search_locations or ():
        for library in Path(folder).rglob("*.so"):
            shutil.copy2(library, COPY / PACKAGE / library.relative_to(folder))
    os.chdir(COPY)
    os.environ["PYTHONPATH"] = str(PACKAGE.parent.resolve())
    sys.path.insert(0, os.environ["PYTHONPATH"])
    (PACKAGE.parent / "sitecustomize.py").write_text(NO_EDITABLE)
    exec(NO_EDITABLE)


def statements(node: ast.AST, in_function: bool = False) -> dict[int, range]:
    """Return the lines of the innermost statement around each line of functions."""
    found: dict[int, range] = {}
    for child in ast.iter_child_nodes(node):
        if in_function and isinstance(child, ast.stmt | ast.excepthandler):
            body = getattr(child, "body", None)
            lines = range(child.lineno, child.end_lineno + 1)
            found |= dict.fromkeys(lines, range(child.lineno, body[0].lineno) if body else lines)
        found |= statements(child, in_function or isinstance(child, ast.FunctionDef))
    return found


def annotations(tree: ast.AST) -> set[tuple[int, int]]:
    """Return line and column of each character in annotations, where these have one line."""
    parts = [getattr(node, at, None) for node in ast.walk(tree) for at in ("annotation", "returns")]
    return {
        (part.lineno, column)
        for part in filter(None, parts)
        for column in range(part.col_offset, part.end_col_offset)
    }


def main() -> None:
    """Print what became of each change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", nargs="+", default=ROOMS)
    parser.add_argument("--tests", nargs="+", default=TESTS)
    options = parser.parse_args()
    copied()
    rooms = [PACKAGE / room for room in options.rooms]
    reach = Reach(rooms)
    reached = reach.measure([*PYTEST, *options.tests])
    trees = {path: ast.parse(path.read_bytes()) for path in find_modules(rooms)}
    unseen = {path: annotations(tree) for path, tree in trees.items()}
    with use_db("mutants.sqlite", WorkDB.Mode.create) as work:
        init(trees, work, {})
        changes = [change for item in work.work_items for change in item.mutations]
    changes = [
        change
        for change in changes
        if change.start_pos not in unseen[change.module_path]
        and not change.operator_name.endswith(SAME)
    ]
    changes.sort(key=attrgetter("module_path", "start_pos", "operator_name", "occurrence"))
    taken, counts = reach.seconds.__getitem__, Counter[str]()
    for change in random.Random(options.seed).sample(changes, options.count):
        path, line = change.module_path, change.start_pos[0]
        by_line = reached[str(path.resolve())]
        # Every test of the module depends on code that its import runs.
        lines = statements(trees[path]).get(line, by_line)
        tests = set().union(*(by_line.get(at, ()) for at in lines))
        outcome = "survived" if tests else "not reached"
        tests = tests or reach.starting & set().union(*by_line.values())
        if tests:
            names = sorted(tests, key=taken)
            command = [sys.executable, "-m", "pytest", *PYTEST, *NAMED, *names]
            limit = 60 + 5 * sum(map(taken, names))
            result = mutate_and_test([change], shlex.join(command), limit)
            outcome = outcome if result.test_outcome == TestOutcome.SURVIVED else "killed"
        counts[outcome] += 1
        print(f"{outcome}: {path}:{line} {change.operator_name}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))


if __name__ == "__main__":
    main()
