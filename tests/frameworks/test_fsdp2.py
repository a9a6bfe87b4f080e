"""FSDP2 on a device mesh: even steps; resuming, also on a mesh of another shape."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.jobs.example_records import (
    Record,
    assert_even_steps,
    assert_goes_on,
    assert_no_row_is_missing,
    assert_same_steps,
    documented_record,
    read_record,
    rows_of_epoch,
    upto,
)
from tests.frameworks.jobs.running import run, torchrun

PROGRAM = "examples/fsdp2.py"


def train(clicks: Path, root: Path, num_ranks: int, replicas: int, *more: object) -> Record:
    arguments = ("--replicas", replicas, "--record", "record", *more)
    run(torchrun(num_ranks, PROGRAM, clicks, "checkpoints", *arguments), root)
    return read_record(root / "record")


@pytest.fixture(scope="module")
def stopped(clicks: Any, tmp_path_factory: Any) -> tuple[Path, Record]:
    """Four ranks, two replicas of two shards; ended at step 14 of 40, with one of step 10 saved."""
    root = tmp_path_factory.mktemp("stopped")
    return root, train(clicks, root, 4, 2, "--stop-after", 14)


def test_a_run_goes_on_bit_for_bit(
    stopped: tuple[Path, Record], clicks: Any, tmp_path: Path
) -> None:
    whole = documented_record("fsdp.md", clicks, tmp_path)
    assert_even_steps(whole, 4)
    for epoch in range(2):
        assert_no_row_is_missing(rows_of_epoch(whole, epoch), 4)
    root, before = stopped
    assert_same_steps(before, whole)
    shutil.copytree(root / "checkpoints", tmp_path / "rest" / "checkpoints")
    rest = train(clicks, tmp_path / "rest", 4, 2)
    assert [line["step"] for line in rest[0]] == list(range(11, 41))
    assert_same_steps(rest, whole)


def test_a_run_goes_on_on_another_mesh(
    stopped: tuple[Path, Record], clicks: Any, tmp_path: Path
) -> None:
    root, before = stopped
    shutil.copytree(root / "checkpoints", tmp_path / "checkpoints")
    rest = train(clicks, tmp_path, 2, 1)
    assert_goes_on(upto(before, 10), rest, 2)
