"""Ends of processes that read are clean."""

from __future__ import annotations

import pytest

from tests.fixtures.tree import ROOT, completed

ENDS = str(ROOT / "bench" / "faults" / "ends.py")

pytestmark = pytest.mark.long


def run(*command: str) -> tuple[int, dict[str, list[int]], str]:
    """Return the exit code, the numbers of each row by its kind, and all that was written."""
    done = completed(*command)
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("| ")]
    numbers = {
        row[0].strip(): [int(cell) for cell in row[2:]] for row in rows if row[2] != " ends "
    }
    return done.returncode, numbers, done.stdout + done.stderr


@pytest.mark.parametrize("setting", ["alone", "2 ranks", "2 ranks, DDP", "fork"])
def test_every_end_is_clean(setting: str) -> None:
    code, rows, output = run(ENDS, "--count", "2", "--settings", setting)
    assert code == 0, output
    assert len(rows) == 9
    for numbers in rows.values():
        # Two ends, both in mid-iteration, and nothing was wrong with them.
        assert numbers == [2, 2, 0, 0, 0, 0, 0, 0], output


@pytest.mark.soak
def test_many_ends_are_clean() -> None:
    code, _, output = run(ENDS, "--count", "200", "--slow-count", "4")
    assert code == 0, output
