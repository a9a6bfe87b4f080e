"""The GPT on packed tokens and texts: its loss goes on in mid-epoch, on other numbers of ranks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.frameworks.jobs.running import python, run, torchrun


@pytest.fixture(scope="module", params=["packed_gpt", "text_gpt"])
def program(request: pytest.FixtureRequest) -> str:
    """The path of an example."""
    if request.param == "text_gpt":
        pytest.importorskip("tokenizers")
    return f"examples/{request.param}.py"


def losses(output: str) -> dict[int, float]:
    """Return the loss of each step that was printed."""
    told = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {line["step"]: line["loss"] for line in told}


@pytest.fixture(scope="module")
def folder(program: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the documents, and the checkpoint of step 20 of a run of two ranks."""
    root = tmp_path_factory.mktemp("gpt")
    run(python(program, "documents", "--write"), root)
    run(torchrun(2, program, "documents", "checkpoints", "--stop-after", 25), root)
    return root


@pytest.fixture(scope="module")
def whole(program: str, folder: Path) -> dict[int, float]:
    """The losses of two ranks that nobody stops."""
    return losses(run(torchrun(2, program, "documents", "whole"), folder))


def test_it_learns(whole: dict[int, float]) -> None:
    assert list(whole) == list(range(1, len(whole) + 1))
    last = list(whole.values())[-5:]
    assert sum(last) / len(last) < 0.8 * whole[1]


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_its_loss_goes_on_with_other_ranks(
    program: str, folder: Path, whole: dict[int, float], num_ranks: int
) -> None:
    name = f"resumed_{num_ranks}"
    shutil.copytree(folder / "checkpoints", folder / name)
    rest = losses(run(torchrun(num_ranks, program, "documents", name), folder))
    assert list(rest) == list(range(21, len(whole) + 1))
    # Sums of gradients are rounded in another order.
    assert rest == pytest.approx({step: whole[step] for step in rest}, rel=0.02)
