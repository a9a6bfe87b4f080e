"""Hugging Face's Trainer, on any number of processes.

    python examples/clicks.py clicks
    torchrun --standalone --nproc-per-node 2 examples/transformers_trainer.py clicks checkpoints

A run that was stopped goes on after its latest checkpoint when the same command is given again.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from clicks import ClickModel, loss_of, open_clicks
from job import StepRecord, ending_process_group, job_arguments
from torchparquet.frameworks.transformers import ParquetTrainerMixin


class Clicks(nn.Module):
    """A model as a Trainer takes them: the columns of a batch as arguments, a dict with a loss."""

    def __init__(self) -> None:
        """Make the model."""
        super().__init__()
        self.model = ClickModel()

    def forward(self, **batch: Tensor) -> dict[str, Tensor]:
        """Return the loss of a batch."""
        return {"loss": loss_of(self.model, batch)}


class ClicksTrainer(ParquetTrainerMixin, Trainer):
    """A Trainer that takes batches as the data set makes them, and notes what it trains on."""

    record = StepRecord(None, 0)

    def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], **options: Any) -> Any:
        """Return the loss of a batch."""
        loss = super().compute_loss(model, inputs, **options)
        self.record.add(int(self.state.epoch), self.state.global_step + 1, inputs, loss)
        return loss


class Stop(TrainerCallback):
    """Stops after a step."""

    def __init__(self, step: int | None) -> None:
        """Keep the step; None for no stop."""
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Ask the Trainer to stop."""
        control.should_training_stop = state.global_step == self.step


def main() -> None:
    """Be one process of the job."""
    arguments = job_arguments().parse_args()
    with ending_process_group():
        train(arguments)


def train(arguments: Namespace) -> None:
    """Train the epochs that are left."""
    settings = TrainingArguments(
        arguments.checkpoints,
        use_cpu=True,
        num_train_epochs=arguments.epochs,
        per_device_train_batch_size=256,
        save_steps=arguments.save_every,
        report_to=[],
        disable_tqdm=True,
    )
    torch.manual_seed(0)
    dataset = open_clicks(arguments.data, batch_size=256)
    trainer = ClicksTrainer(
        Clicks(), settings, train_dataset=dataset, callbacks=[Stop(arguments.stop_after)]
    )
    trainer.record = StepRecord(arguments.record, settings.process_index)
    checkpoints = Path(arguments.checkpoints)
    last = get_last_checkpoint(arguments.checkpoints) if checkpoints.exists() else None
    trainer.train(resume_from_checkpoint=last)


if __name__ == "__main__":
    main()
