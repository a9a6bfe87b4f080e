"""The model of how threads meet has no error, and finds the faults that are planted in it."""

from __future__ import annotations

import shutil

import pytest

from tests.fixtures.tree import ROOT, completed


@pytest.mark.long
@pytest.mark.skipif(shutil.which("spin") is None, reason="spin is not installed")
def test_every_interleaving_is_right() -> None:
    program = ROOT / "bench" / "faults" / "models.py"
    done = completed(program, "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all as it must be" in done.stdout
