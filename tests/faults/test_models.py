"""The models of how threads meet have no error, and find the faults that are planted in them."""

from __future__ import annotations

import shutil

import pytest

from tests.fixtures.tree import ROOT, completed


@pytest.mark.long
@pytest.mark.skipif(shutil.which("spin") is None, reason="spin is not installed")
@pytest.mark.parametrize("model", ["cursor", "reader"])
def test_every_interleaving_is_right(model: str) -> None:
    program = ROOT / "bench" / "faults" / "models.py"
    done = completed(program, "--quick", "--only", model)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all as it must be" in done.stdout
