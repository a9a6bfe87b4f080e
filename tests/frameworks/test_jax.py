"""JAX: the same losses on one process and on two, also after a stop in mid-epoch."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.jobs.running import documented, finish, python, run, start

pytest.importorskip("jax")

PROGRAM = "examples/jax_loop.py"
STEPS = 40  # of an epoch: 20,000 rows in global batches of 500


def losses(output: str) -> dict[int, float]:
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {line["step"]: line["loss"] for line in lines}


def of_two(root: Path, checkpoint: str, *options: object) -> dict[int, float]:
    """Run two processes, and return what the first has printed."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        coordinator = f"localhost:{free.getsockname()[1]}"
    place = ("clicks", checkpoint, "--coordinator", coordinator, "--process")
    jobs = [start(python(PROGRAM, *place, rank, 2, *options), root) for rank in range(2)]
    first, _ = map(finish, jobs)
    return losses(first)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any, clicks: Any) -> Any:
    root = tmp_path_factory.mktemp("jax")
    (root / "clicks").symlink_to(clicks)
    return root


@pytest.fixture(scope="module")
def whole(folder: Path) -> dict[int, float]:
    """The losses of one process that nobody stops, as the page has it."""
    _, train = documented("jax.md")
    return losses(run(train, folder))


def test_it_learns(whole: dict[int, float]) -> None:
    assert list(whole) == list(range(1, 2 * STEPS + 1))
    assert whole[2 * STEPS] < 0.6 * whole[1]


def test_two_processes_have_the_losses_of_one(folder: Path, whole: dict[int, float]) -> None:
    assert of_two(folder, "two.json") == pytest.approx(whole, rel=1e-4)


def test_its_loss_goes_on_after_a_stop(folder: Path, whole: dict[int, float]) -> None:
    """Two processes stop within the second epoch, and one goes on."""
    of_two(folder, "stopped.json", "--stop-after", 53)
    rest = losses(run(python(PROGRAM, "clicks", "stopped.json"), folder))
    assert rest == pytest.approx({step: whole[step] for step in range(51, 81)}, rel=1e-4)
