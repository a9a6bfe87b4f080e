"""The models of how threads meet have no error, and find the faults that are planted in them."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.fixtures.tree import ROOT


@pytest.mark.long
@pytest.mark.skipif(shutil.which("spin") is None, reason="spin is not installed")
@pytest.mark.parametrize("model", ["cursor", "reader"])
def test_every_interleaving_is_right(model: str) -> None:
    program = ROOT / "bench" / "faults" / "models.py"
    command = [sys.executable, str(program), "--quick", "--only", model]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all as it must be" in done.stdout
