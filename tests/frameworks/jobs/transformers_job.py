"""Run by torchrun: a Hugging Face Trainer that writes down each batch; killed or resumed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainingArguments

from tests.frameworks.jobs.recorded import dataset_of, job_arguments, write_line
from torchparquet._impl.reading.interpreter_exit import end_rank
from torchparquet.frameworks.transformers import ParquetTrainerMixin


class Model(torch.nn.Module):
    """One linear layer, as a Trainer takes models: keyword arguments to a dict with a loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x: Any, **ids: Any) -> dict[str, torch.Tensor]:
        return {"loss": self.layer(x).square().mean(), "logits": ids["row.id"]}


class Recording(ParquetTrainerMixin, Trainer):
    out: Path
    kill: int | None = None

    def training_step(self, model: Any, inputs: Any, *args: Any) -> Any:
        if self.state.global_step == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        line = {"what": "train", "epoch": int(self.state.epoch), "ids": inputs["row.id"].tolist()}
        write_line(self.out, self.args.process_index, line)
        return super().training_step(model, inputs, *args)


def main() -> None:
    given = job_arguments(kill=int, resume=bool)
    arguments = TrainingArguments(
        str(given.out),
        use_cpu=True,
        num_train_epochs=3,
        per_device_train_batch_size=16,
        learning_rate=0.1,
        save_steps=4,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
    )
    dataset = dataset_of(given.data)
    validation = dataset_of(given.data, shuffle=False, shuffle_window=None)
    if not given.kill and not given.resume:
        plain = Trainer(Model(), arguments, train_dataset=dataset)
        with pytest.raises(ValueError, match=r"rank 0 only.*ParquetTrainerMixin"):
            plain.train()
    trainer = Recording(Model(), arguments, train_dataset=dataset, eval_dataset=validation)
    trainer.out, trainer.kill = given.out, given.kill
    assert len(trainer.get_train_dataloader()) == 13
    assert trainer.num_examples(trainer.get_train_dataloader()) == 400
    trainer.train(resume_from_checkpoint=str(given.out / "checkpoint-20") if given.resume else None)
    assert trainer.state.max_steps == trainer.state.global_step == 3 * 13
    torch.save(trainer.model.state_dict(), given.out / f"{arguments.process_index}.pt")
    if not given.resume:
        # Without labels the Trainer takes the loss for a prediction too.
        _, predictions = trainer.predict(validation).predictions
        assert sorted(predictions.tolist()) == list(range(400))


if __name__ == "__main__":
    main()
    end_rank()
