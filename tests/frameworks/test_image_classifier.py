"""The image classifier learns, and two runs of it are alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.frameworks.jobs.running import python, run

PROGRAM = "examples/image_classifier.py"


def test_it_learns_and_repeats(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    run(python(PROGRAM, "pictures", "--write"), tmp_path)
    first, second = (run(python(PROGRAM, "pictures", "--epochs", "4"), tmp_path) for _ in range(2))
    losses = [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", first)]
    assert len(losses) == 4
    assert losses[-1] < 0.5 * losses[0]
    assert first == second
