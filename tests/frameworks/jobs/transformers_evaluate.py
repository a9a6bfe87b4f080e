"""Run by torchrun: Trainers that evaluate rows of which some ranks repeat one or more."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import torch
from transformers import Trainer, TrainingArguments

from torchparquet import ByLength, ParquetDataset, mix
from torchparquet._impl.reading.interpreter_exit import end_rank
from torchparquet.frameworks.transformers import ParquetTrainerMixin


class Model(torch.nn.Module):
    """Predicts its input, and takes the mean of it for its loss."""

    main_input_name = "x"

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    # Not of any name: a Trainer would take it for a sum, to be divided by itself.
    def forward(self, x: Any, labels: Any, items: Any = None) -> dict[str, torch.Tensor]:
        return {"loss": labels.mean(), "logits": x}


class OfItems(Model):
    """Divides its loss by the number of labels that the Trainer counts, as language models do."""

    accepts_loss_kwargs = True

    def forward(self, x: Any, labels: Any, items: Any = None, **items_in_batch: Any) -> Any:
        (num_items,) = items_in_batch.values()
        return {"loss": labels[labels != -100].sum() / num_items, "logits": x}


class Own(ParquetTrainerMixin, Trainer):
    pass


def without_lengths(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in batch.items() if name != "items.length"}


def without_marks(batch: dict[str, Any]) -> dict[str, Any]:
    return {"x": batch["x"][:, None], "labels": batch["x"]}


def sources(data: str, even: Any, shuffle: bool) -> dict[str, Any]:
    """Return data sets of all kinds, and how often each has every row."""

    def of_files(batch_size: Any = 16, even: Any = even) -> ParquetDataset:
        columns: Any = {"x": ["x"], "labels": "x", "items": "items"}
        return ParquetDataset(
            data, batch_size=batch_size, columns=columns, even=even, shuffle=shuffle,
            transform=without_lengths,
        )  # fmt: skip

    two = [of_files(), of_files(7)]
    return {
        "rows": (of_files(), 1),
        "by length": (of_files(ByLength("items", max_tokens=40), even="split"), 1),
        "mix": (mix(two, stopping="all_exhausted"), 2),
        "mix of rows": (mix(two, stopping="all_exhausted", within_batch=True, batch_size=9), 2),
    }


def main() -> None:
    data, num_rows = sys.argv[1], int(sys.argv[2])
    arguments = TrainingArguments(
        "unused", use_cpu=True, report_to=[], disable_tqdm=True, include_for_metrics=["inputs"]
    )
    for even in ("split", "pad"):
        for shuffle in (False, True):
            for dataset, times in sources(data, even, shuffle).values():
                for model in (Model(), OfItems()):
                    check(arguments, model, dataset, sorted(list(range(num_rows)) * times))
            if int(os.environ["WORLD_SIZE"]) > 1:
                dataset = ParquetDataset(data, batch_size=16, even=even, transform=without_marks)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    Own(Model(), arguments, eval_dataset=dataset).evaluate()
                assert any("let transform keep it" in str(one.message) for one in caught)
            # The data set itself is as it was.
            (dataset, _), *_ = sources(data, even, shuffle).values()
            assert ("row.valid" in next(iter(dataset))) == (even == "pad")


def check(arguments: Any, model: Model, dataset: Any, rows: list[int]) -> None:
    """Evaluate and predict, and look for each row as often as it should come."""
    found: list[Any] = []

    def note(made: Any) -> dict[str, float]:
        found.append(made)
        return {"seen": 1.0}

    trainer = Own(model, arguments, eval_dataset=dataset, compute_metrics=note)
    for _ in range(3):
        metrics = trainer.evaluate()
        made = found[-1]
        for values in (made.predictions, made.label_ids, made.inputs):
            assert sorted(values.flatten().tolist()) == rows
        assert abs(metrics["eval_loss"] - sum(rows) / len(rows)) < 1e-3, metrics
        counted = metrics["eval_samples_per_second"] * metrics["eval_runtime"]
        assert abs(counted / len(rows) - 1) < 0.05, metrics
        # All evaluations read the same.
        assert (made.predictions == found[0].predictions).all()
    predicted = trainer.predict(dataset)
    assert sorted(predicted.predictions.flatten().tolist()) == rows
    assert trainer.get_test_dataloader(dataset) is trainer.get_eval_dataloader()


if __name__ == "__main__":
    main()
    end_rank()
