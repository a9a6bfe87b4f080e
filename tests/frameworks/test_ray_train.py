"""Ray Train: even steps, workers that are killed, more workers by one number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.tree import ROOT
from tests.frameworks.jobs.example_records import (
    Record,
    assert_begun_anew,
    assert_each_share_in_even_steps,
    assert_even_steps,
    assert_goes_on,
    assert_same_steps,
    documented_record,
    read_record,
    upto,
)
from tests.frameworks.jobs.running import KILLED_ONCE, python, run

pytest.importorskip("ray.train", reason="Ray Train is not installed")

PROGRAM = "examples/ray_train.py"


@pytest.fixture(scope="module")
def whole(clicks: Any, tmp_path_factory: Any) -> Record:
    """The records of two workers that nobody stops, as documented."""
    return documented_record("ray.md", clicks, tmp_path_factory.mktemp("whole"))


def test_every_row_in_even_steps(whole: Record, shares: Any) -> None:
    assert_each_share_in_even_steps(whole, shares)


def test_ray_begins_workers_anew(whole: Record, clicks: Any, tmp_path: Path) -> None:
    """A worker is killed in the middle; all of them go on after the latest checkpoint."""
    arguments = (clicks, "checkpoints", "--workers", 2, "--record", "record")
    run(python(KILLED_ONCE, tmp_path / "tried", ROOT / PROGRAM, *arguments), tmp_path)
    record = read_record(tmp_path / "record")
    assert_begun_anew(record, 80)
    assert_same_steps(record, whole)


def test_more_workers_go_on(clicks: Any, tmp_path: Path) -> None:
    command = python(PROGRAM, clicks, "checkpoints", "--workers")
    run([*command, "1", "--record", "one", "--stop-after", "25"], tmp_path)
    run([*command, "2", "--record", "two"], tmp_path)
    one, two = read_record(tmp_path / "one"), read_record(tmp_path / "two")
    assert_even_steps(one, 1)
    assert_goes_on(upto(one, 20), two, 2)
