"""Lightning: DistributedDataParallel on two processes, which Lightning starts itself.

    python examples/clicks.py clicks
    python examples/lightning_ddp.py clicks checkpoints

A run that was stopped goes on after its latest checkpoint when the same command is given again.
"""

from __future__ import annotations

from argparse import Namespace

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor
from torch.optim import Optimizer

from clicks import ClickModel, loss_of, open_clicks
from job import StepRecord, job_arguments
from torchparquet import ParquetDataset


class Clicks(pl.LightningModule):
    """The model and its data set, which needs no DataLoader."""

    def __init__(self, arguments: Namespace) -> None:
        """Make the model; the processes are not there yet."""
        super().__init__()
        self.arguments = arguments
        self.model = ClickModel()

    def train_dataloader(self) -> ParquetDataset:
        """Return the data set, of which each process reads its share."""
        return open_clicks(self.arguments.data, batch_size=256)

    def on_train_start(self) -> None:
        """Open the record."""
        self.record = StepRecord(self.arguments.record, self.global_rank)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """Return the loss of a batch."""
        loss = loss_of(self.model, batch)
        self.record.add(self.current_epoch, self.global_step + 1, batch, loss)
        return loss

    def configure_optimizers(self) -> Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main() -> None:
    """Start the processes, and train."""
    arguments = job_arguments().parse_args()
    pl.seed_everything(0)
    checkpoints = ModelCheckpoint(
        arguments.checkpoints, every_n_train_steps=arguments.save_every, save_last=True
    )
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=arguments.epochs,
        max_steps=arguments.stop_after or -1,
        callbacks=[checkpoints],
        logger=False,
    )
    trainer.fit(Clicks(arguments), ckpt_path="last")


if __name__ == "__main__":
    main()
