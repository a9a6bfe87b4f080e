"""Kills lose nothing, and what is lost would be noticed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.tree import ROOT

KILLS = str(ROOT / "bench" / "faults" / "kills.py")

pytestmark = pytest.mark.long


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("count", [6, pytest.param(1000, marks=pytest.mark.soak)])
def test_kills_lose_nothing(count: int) -> None:
    done = run(KILLS, "--count", str(count), "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) == 5
    for row in rows[1:]:
        assert int(row[1]) >= count, done.stdout
        assert {int(cell) for cell in row[3:]} == {0}, done.stdout


@pytest.mark.long
def test_each_planted_fault_is_found() -> None:
    done = run(str(Path(__file__).parent / "planted_kills.py"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "rows twice" in found["forget the state"]
    assert "rows lost" in found["pass over a batch"]
    assert "files not whole" in found["write in place"]
    assert "files not whole" in found["write by halves"]
