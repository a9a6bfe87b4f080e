"""Hugging Face's Trainer: two processes on their shares, and going on from a checkpoint."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.frameworks.jobs.recorded import check_killed_and_resumed, dataset_of, stream_of
from tests.frameworks.jobs.running import run, torchrun

pytest.importorskip("transformers")
from transformers import Trainer, TrainingArguments

from torchparquet.frameworks.transformers import ParquetTrainerMixin

JOB = Path(__file__).parent / "jobs" / "transformers_job.py"


def test_two_processes_killed_and_resumed(tmp_path: Path, data: Any) -> None:
    check_killed_and_resumed(partial(torchrun, 2, JOB), data, tmp_path, saved=20, kill=22)


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_an_evaluation_counts_each_row_once(tmp_path: Path, num_ranks: int) -> None:
    """103 rows on 3 ranks: two ranks repeat a row with "split", and more with "pad"."""
    items = [[row] * (1 + row % 5) for row in range(103)]
    table = pa.table({"x": pa.array(range(103), pa.float32()), "items": items})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=20)
    program = JOB.parent / "transformers_evaluate.py"
    run(torchrun(num_ranks, program, tmp_path / "a.parquet", 103), tmp_path)


class Mean(torch.nn.Module):
    """The mean of a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x: torch.Tensor, **others: Any) -> dict[str, torch.Tensor]:
        return {"loss": self.layer(x).mean()}


class Own(ParquetTrainerMixin, Trainer):
    pass


def test_a_resumed_run_reads_nothing_before_its_checkpoint(tmp_path: Path, data: Any) -> None:
    """Stopped 5 batches into the second epoch, whose others are then all that is read."""
    read: list[list[int]] = []

    def note(batch: dict[str, Any]) -> dict[str, Any]:
        read.append(batch["row.id"].tolist())
        return batch

    def train(max_steps: int, checkpoint: Path | None) -> None:
        arguments = TrainingArguments(
            str(tmp_path), use_cpu=True, max_steps=max_steps, report_to=[], disable_tqdm=True
        )
        dataset = dataset_of(data, transform=note)
        Own(Mean(), arguments, train_dataset=dataset).train(resume_from_checkpoint=checkpoint)

    wanted = stream_of(data, 0, 1, range(2))
    train(30, None)
    assert read[:30] == wanted[0] + wanted[1][:5]
    read.clear()
    train(50, tmp_path / "checkpoint-30")
    assert read == wanted[1][5:]
