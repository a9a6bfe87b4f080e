"""Hugging Face's Trainer: two processes on their shares, and going on from a checkpoint."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader

from tests.frameworks.jobs.recorded import (
    Noting,
    check_killed_and_resumed,
    dataset_of,
    ids_of,
)
from tests.frameworks.jobs.running import run, torchrun

pytest.importorskip("transformers")
from transformers import Trainer, TrainingArguments

from torchparquet import mix
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


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("is_of_rows", [False, True])
def test_a_resumed_run_reads_nothing_before_its_checkpoint(
    tmp_path: Path, data: Any, is_of_rows: bool, num_workers: int
) -> None:
    """Stopped 3 batches before the end of the second epoch; the third one is whole again."""
    noting = Noting(tmp_path / "read.jsonl")
    trained: list[list[int]] = []

    class Noted(Mean):
        def forward(self, x: torch.Tensor, **others: Any) -> dict[str, torch.Tensor]:
            trained.append(others["row.id"].tolist())
            return super().forward(x)

    def dataset() -> Any:
        if not is_of_rows:
            return dataset_of(data, transform=noting)
        parts = [dataset_of(data, transform=noting, seed=seed) for seed in range(2)]
        return mix(parts, within_batch=True, batch_size=16)

    def train(max_steps: int, checkpoint: Path | None) -> None:
        arguments = TrainingArguments(
            str(tmp_path),
            use_cpu=True,
            max_steps=max_steps,
            report_to=[],
            disable_tqdm=True,
            dataloader_num_workers=num_workers,
        )
        Own(Noted(), arguments, train_dataset=dataset()).train(resume_from_checkpoint=checkpoint)

    whole = DataLoader(dataset(), batch_size=None, num_workers=num_workers)
    wanted = [ids_of(whole) for _ in range(3)]
    num_read_whole = len(noting.take()) // 3
    num_steps = len(wanted[0])
    train(2 * num_steps - 3, None)
    assert trained == wanted[0] + wanted[1][:-3]
    trained.clear()
    noting.take()
    train(3 * num_steps, tmp_path / f"checkpoint-{2 * num_steps - 3}")
    assert trained == wanted[1][-3:] + wanted[2]
    read = noting.take()
    if is_of_rows:
        assert len(read) < num_read_whole * 4 / 3
    else:
        assert sorted(read) == sorted(trained)
