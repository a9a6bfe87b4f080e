"""Kills lose nothing."""

from __future__ import annotations

import pytest

from tests.fixtures.tree import ROOT, completed

KILLS = str(ROOT / "bench" / "faults" / "kills.py")

pytestmark = pytest.mark.long


@pytest.mark.parametrize("count", [6, pytest.param(1000, marks=pytest.mark.soak)])
def test_kills_lose_nothing(count: int) -> None:
    done = completed(KILLS, "--count", str(count), "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) == 5
    for row in rows[1:]:
        assert int(row[1]) >= count, done.stdout
        assert {int(cell) for cell in row[3:]} == {0}, done.stdout
