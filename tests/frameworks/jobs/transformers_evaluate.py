"""Run by torchrun: Trainers that evaluate rows of which some ranks repeat one or more."""

from __future__ import annotations

import sys
from typing import Any

import torch
from transformers import Trainer, TrainingArguments

from torchparquet import ParquetDataset
from torchparquet.frameworks.transformers import ParquetTrainerMixin
from torchparquet.reading.interpreter_exit import end_rank


class Model(torch.nn.Module):
    """Predicts its input, and takes the mean of it for its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x: Any, labels: Any) -> dict[str, torch.Tensor]:
        return {"loss": labels.mean(), "logits": x}


class Own(ParquetTrainerMixin, Trainer):
    pass


def main() -> None:
    data, num_rows = sys.argv[1], int(sys.argv[2])
    arguments = TrainingArguments(
        "unused", use_cpu=True, report_to=[], disable_tqdm=True, include_for_metrics=["inputs"]
    )
    for even in ("split", "pad"):
        for shuffle in (False, True):
            dataset = ParquetDataset(
                data, batch_size=16, columns={"x": ["x"], "labels": "x"}, even=even, shuffle=shuffle
            )
            found: list[Any] = []
            trainer = Own(
                Model(), arguments, eval_dataset=dataset,
                compute_metrics=lambda made, found=found: found.append(made) or {"seen": 1.0},
            )  # fmt: skip
            trainer.model.main_input_name = "x"
            metrics = trainer.evaluate()
            rows = list(range(num_rows))
            assert sorted(found[0].predictions.flatten().tolist()) == rows
            assert sorted(found[0].label_ids.tolist()) == rows
            assert sorted(found[0].inputs.flatten().tolist()) == rows
            assert sorted(trainer.predict(dataset).predictions.flatten().tolist()) == rows
            if even == "pad" and not shuffle:
                # Of all batches alike, one of which is of repeats alone, it would be 54.6.
                mean = sum(rows) / num_rows
                assert abs(metrics["eval_loss"] - mean) < 2, metrics
            # The data set itself is as it was.
            assert ("row.valid" in next(iter(dataset))) == (even == "pad")


if __name__ == "__main__":
    main()
    end_rank()
