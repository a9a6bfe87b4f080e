"""Lightning's ddp_spawn, with data of torchparquet ("parquet" and a folder) or without."""

from __future__ import annotations

import sys
from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset


class Model(pl.LightningModule):
    """One layer; says at its end how many rows it saw, and whether torchparquet is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.num_rows = 0

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x = batch["x"] if isinstance(batch, dict) else batch[0]
        self.num_rows += len(x)
        return self.layer(x).square().mean()

    def on_train_end(self) -> None:
        print(f"rank {self.global_rank}: {self.num_rows} rows, {'torchparquet' in sys.modules}")

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main(data: str | None) -> None:
    callbacks: list[Any] = []
    loader: Any = DataLoader(TensorDataset(torch.rand(16, 2)), batch_size=4)
    if data is not None:
        from torchparquet import ParquetDataset
        from torchparquet.frameworks.lightning import metrics_callback

        loader = ParquetDataset(data, batch_size=16, columns={"x": ["x0", "x1"]}, shuffle=True)
        callbacks = [metrics_callback(2)]
    pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp_spawn",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callbacks,
    ).fit(Model(), loader)
    print(f"main: {'torchparquet' in sys.modules}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
