"""`bench/scale/ranks.py`: simulated ranks ask their stores for what real processes ask."""

from __future__ import annotations

import os

import pytest

from tests.bench.test_remote import MODULE
from tests.fixtures.tree import ROOT, completed

pytestmark = pytest.mark.timeout(600)


@pytest.mark.long
@pytest.mark.skipif(not MODULE.exists(), reason="nginx's module for Lua is not installed")
def test_simulated_ranks_ask_what_real_ranks_ask() -> None:
    pytest.importorskip("simpy")
    pytest.importorskip("greenlet")
    paths = os.pathsep.join([str(ROOT / "bench"), os.environ.get("PYTHONPATH", "")])
    options = ("--ranks", 2, 4, "--files", 12, "--latency-ms", 50)
    done = completed("bench/scale/ranks.py", "check", *options, cwd=ROOT, PYTHONPATH=paths)
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines()[2:]]
    assert [row[-2] for row in rows] == ["equal"] * 4
    # Each file and each page is asked for once, by one of the ranks.
    assert all("list 2 look 1 range 12" in row[-3] for row in rows[::2])
