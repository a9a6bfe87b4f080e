"""A module that writes down what it is trained on, for either of Lightning's packages."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Record = Callable[[dict[str, Any]], None]


class FailedStepError(Exception):
    """The exception of a step that is to fail."""


def recording_module(pl: Any, record: Record, stop: tuple[str, int] | None = None) -> Any:
    """Return a module with one linear layer; `stop` is how it ends at which global step."""

    class Recording(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(2, 1)

        def write(self, what: str, number: int, batch: dict[str, Any] | None = None) -> None:
            line = {"what": what, "epoch": self.current_epoch, "number": number}
            line["ids"] = batch and batch["row.id"].tolist()
            record(line | {"step": self.global_step, "rank": self.global_rank})

        def on_train_epoch_start(self) -> None:
            self.write("length", self.trainer.num_training_batches)

        def training_step(self, batch: Any, batch_idx: Any) -> Any:
            if isinstance(batch, dict) and "a" in batch:
                batch, other = batch["a"], batch["b"][0]
                self.write("other", batch_idx, other)
            if stop is not None and self.global_step == stop[1]:
                _stop(stop[0])
            self.write("train", batch_idx, batch)
            return self.layer(batch["x"]).square().mean()

        def validation_step(self, batch: Any, batch_idx: Any) -> None:
            if not self.trainer.sanity_checking:
                self.write("validate", batch_idx, batch)

        def test_step(self, batch: Any, batch_idx: Any) -> None:
            self.write("test", batch_idx, batch)

        def predict_step(self, batch: Any, batch_idx: Any) -> None:
            self.write("predict", batch_idx, batch)

        def configure_optimizers(self) -> Any:
            self.num_steps = self.trainer.estimated_stepping_batches
            return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    return Recording()


def _stop(how: str) -> None:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise FailedStepError


def trainer_of(pl: Any, out: Path, save_at: Any = (), **options: Any) -> Any:
    """Return a quiet Trainer on the CPU that writes below `out` only: `N.ckpt` after step N."""

    class Saving(pl.Callback):
        def on_train_batch_end(self, trainer: Any, *given: Any) -> None:
            if trainer.global_step in save_at:
                trainer.save_checkpoint(out / f"{trainer.global_step}.ckpt")

        def on_exception(self, trainer: Any, pl_module: Any, exception: Any) -> None:
            if isinstance(exception, FailedStepError):
                trainer.save_checkpoint(out / "failed.ckpt")

    defaults = {
        "accelerator": "cpu",
        "logger": False,
        "devices": 1,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": str(out),
    }
    return pl.Trainer(callbacks=[Saving()], **(defaults | options))
