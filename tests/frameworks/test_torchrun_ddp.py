"""DistributedDataParallel under torchrun: even steps, resuming, ranks that are killed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.tree import ROOT
from tests.frameworks.jobs.example_records import (
    Record,
    assert_begun_anew,
    assert_each_share_in_even_steps,
    assert_goes_on,
    assert_same_steps,
    batches_of_epoch,
    documented_record,
    read_record,
    upto,
)
from tests.frameworks.jobs.running import KILLED_ONCE, run, torchrun

PROGRAM = "examples/torchrun_ddp.py"


@pytest.fixture(scope="module")
def whole(clicks: Any, tmp_path_factory: Any) -> Record:
    """The records of two ranks that nobody stops, as documented."""
    return documented_record("torchrun.md", clicks, tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def stopped(clicks: Any, tmp_path_factory: Any) -> Any:
    """A run of two ranks that ended at step 17 of 80, with a checkpoint of step 10."""
    root = tmp_path_factory.mktemp("stopped")
    arguments = ("--record", "record", "--stop-after", 17)
    run(torchrun(2, PROGRAM, clicks, "checkpoints", *arguments), root)
    return root


def resumed(stopped: Path, clicks: Path, root: Path, num_ranks: int) -> Record:
    """The records of a run that resumes at a copy of the checkpoint."""
    shutil.copytree(stopped / "checkpoints", root / "checkpoints")
    run(torchrun(num_ranks, PROGRAM, clicks, "checkpoints", "--record", "record"), root)
    return read_record(root / "record")


def test_every_row_in_even_steps(whole: Record, shares: Any) -> None:
    assert_each_share_in_even_steps(whole, shares)
    assert batches_of_epoch(whole[0], 0) != batches_of_epoch(whole[0], 1)


def test_a_run_goes_on_bit_for_bit(
    whole: Record, stopped: Path, clicks: Any, tmp_path: Path
) -> None:
    assert_same_steps(read_record(stopped / "record"), whole)
    rest = resumed(stopped, clicks, tmp_path, 2)
    assert [line["step"] for line in rest[0]] == list(range(11, 81))
    assert_same_steps(rest, whole)


def test_a_run_goes_on_with_more_ranks(stopped: Path, clicks: Any, tmp_path: Path) -> None:
    rest = resumed(stopped, clicks, tmp_path, 3)
    assert_goes_on(upto(read_record(stopped / "record"), 10), rest, 3)


def test_torchrun_begins_ranks_anew(whole: Record, clicks: Any, tmp_path: Path) -> None:
    """A rank is killed in the middle; all of them go on after the latest checkpoint."""
    arguments = (tmp_path / "tried", ROOT / PROGRAM, clicks, "checkpoints", "--record", "record")
    command = torchrun(2, KILLED_ONCE, *arguments, max_restarts=1)
    # As the page says: without it ranks may meet the addresses of those that are gone.
    run(["env", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1", *command], tmp_path)
    record = read_record(tmp_path / "record")
    assert_begun_anew(record, 80)
    assert_same_steps(record, whole)
