"""Hugging Face's Trainer: loaders for data sets that deal rows to ranks themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchparquet import Jagged, ParquetDataset
from torchparquet.frameworks.accelerate import ParquetLoader
from torchparquet.frameworks.loaders import source_of

if TYPE_CHECKING:
    from transformers import Trainer as _Trainer
else:
    _Trainer = object


class ParquetTrainerMixin(_Trainer):
    """Makes a `Trainer` take the batches of `ParquetDataset`s and mixes as they are.

    Use it as `class MyTrainer(ParquetTrainerMixin, Trainer)`. The columns of a batch are the
    model's keyword arguments. The data set alone makes batches: `batch_size`, `drop_last`,
    `shuffle` and the collator of the Trainer have no effect.
    """

    def get_train_dataloader(self) -> Any:
        """Return the loader of the data to train on."""
        loader = self._parquet_loader(self.train_dataset)
        return super().get_train_dataloader() if loader is None else loader

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return the loader of the data to evaluate on; see `Trainer.get_eval_dataloader`."""
        chosen = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(chosen, str):
            chosen = self.eval_dataset[chosen]
        loader = self._parquet_loader(chosen)
        return super().get_eval_dataloader(eval_dataset) if loader is None else loader

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """Return the loader of the data to predict for."""
        loader = self._parquet_loader(test_dataset)
        return super().get_test_dataloader(test_dataset) if loader is None else loader

    def num_examples(self, dataloader: Any) -> int:
        """Return the rows of the data set, of all ranks."""
        source = source_of(dataloader)
        if isinstance(source, ParquetDataset):
            return source.manifest.num_rows
        return int(super().num_examples(dataloader))

    def _parquet_loader(self, dataset: object) -> Any:
        source = source_of(dataset)
        if source is None:
            return None
        options: dict[str, Any] = {}
        if self.args.dataloader_num_workers:
            options = {
                "num_workers": self.args.dataloader_num_workers,
                "persistent_workers": self.args.dataloader_persistent_workers,
                "prefetch_factor": self.args.dataloader_prefetch_factor,
            }
        return self.accelerator.prepare(ParquetLoader(source, **options))

    def _prepare_input(self, data: Any) -> Any:
        # The Trainer would rebuild a Jagged as a tuple, from one argument.
        if isinstance(data, Jagged):
            return Jagged(*map(self._prepare_input, data))
        return super()._prepare_input(data)
