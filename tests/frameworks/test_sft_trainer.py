"""Fine-tuning on packed conversations: losses are of answers alone, on any number of ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from torch.nn import functional

from tests.frameworks.jobs.running import documented, run, torchrun

transformers = pytest.importorskip("transformers")

PROGRAM = "examples/sft_trainer.py"


def history(checkpoints: Path) -> tuple[dict[int, float], float]:
    """Return the loss of each step, and that of the evaluation after the last one."""
    lines = json.loads((checkpoints / "trainer_state.json").read_text())["log_history"]
    losses = {line["step"]: line["loss"] for line in lines if "loss" in line}
    return losses, [line["eval_loss"] for line in lines if "eval_loss" in line][-1]


def loss_of_answers(model: Any, path: Path) -> float:
    """The mean loss of a file's answers, read by pyarrow, one conversation after the other."""
    total, count = torch.zeros((), dtype=torch.float64), 0
    for row in pq.read_table(path).to_pylist():
        tokens, has_loss = torch.tensor(row["tokens"]), torch.tensor(row["has_loss"])
        with torch.no_grad():
            logits = model(input_ids=tokens[None]).logits[0]
        losses = functional.cross_entropy(logits[:-1], tokens[1:], reduction="none")
        total += losses[has_loss[1:]].sum()
        count += int(has_loss[1:].sum())
    return float(total / count)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the conversations, and what two ranks made of them that nobody stopped."""
    root = tmp_path_factory.mktemp("sft")
    write, train = documented("accelerate.md", 2)
    run(write, root)
    run(train, root)
    return root


def test_it_learns_to_answer(folder: Path) -> None:
    """Its evaluation is that of conversations by themselves, which no rank counts twice."""
    losses, evaluated = history(folder / "checkpoints")
    assert list(losses) == list(range(1, len(losses) + 1))
    assert losses[len(losses)] < 0.2 * losses[1]
    model = transformers.LlamaForCausalLM.from_pretrained(folder / "checkpoints").eval()
    alone = loss_of_answers(model, folder / "conversations" / "validation" / "0.parquet")
    assert evaluated == pytest.approx(alone, rel=1e-4)


@pytest.mark.parametrize("num_ranks", [1, 4])
def test_its_loss_goes_on_with_other_ranks(folder: Path, num_ranks: int) -> None:
    """Two ranks stop after step 13; so does their checkpoint."""
    name = f"stopped_{num_ranks}"
    run(torchrun(2, PROGRAM, "conversations", name, "--stop-after", 13), folder)
    run(torchrun(num_ranks, PROGRAM, "conversations", name), folder)
    assert (folder / name / "checkpoint-13").exists()
    for found, wanted in zip(history(folder / name), history(folder / "checkpoints"), strict=True):
        # Sums of gradients are rounded in another order.
        assert found == pytest.approx(wanted, rel=1e-3)
