"""Hugging Face's Trainer: loaders for data sets that deal rows to ranks themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import recursively_apply

from torchparquet import Jagged, ParquetDataset
from torchparquet.frameworks.accelerate import ParquetLoader
from torchparquet.frameworks.loaders import source_of
from torchparquet.reading.stream_parts import ROW_VALID

if TYPE_CHECKING:
    from transformers import Trainer as _Trainer
else:
    _Trainer = object


class ParquetTrainerMixin(_Trainer):
    """Makes a `Trainer` take the batches of `ParquetDataset`s and mixes as they are.

    Use it as `class MyTrainer(ParquetTrainerMixin, Trainer)`. The columns of a batch are the
    model's keyword arguments. The data set alone makes batches: `batch_size`, `drop_last`,
    `shuffle` and the collator of the Trainer have no effect. An evaluation counts each row once:
    rows that `even=` repeats on some ranks are left out, and losses are weighted by rows.
    """

    # Of the batch that is evaluated: its rows that count, and whether its loss comes next.
    _num_counted: int | None = None
    _loss_is_next = False

    def get_train_dataloader(self) -> Any:
        """Return the loader of the data to train on."""
        loader = self._parquet_loader(self.train_dataset)
        return super().get_train_dataloader() if loader is None else loader

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return the loader of the data to evaluate on; see `Trainer.get_eval_dataloader`."""
        chosen = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(chosen, str):
            chosen = self.eval_dataset[chosen]
        loader = self._parquet_loader(chosen, marks_repeats=True)
        return super().get_eval_dataloader(eval_dataset) if loader is None else loader

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """Return the loader of the data to predict for."""
        loader = self._parquet_loader(test_dataset, marks_repeats=True)
        return super().get_test_dataloader(test_dataset) if loader is None else loader

    def num_examples(self, dataloader: Any) -> int:
        """Return the rows of the data set, of all ranks."""
        source = source_of(dataloader)
        if isinstance(source, ParquetDataset):
            return source.manifest.num_rows
        return int(super().num_examples(dataloader))

    def evaluation_loop(self, dataloader: Any, *args: Any, **options: Any) -> Any:
        """Evaluate; see `Trainer.evaluation_loop`, which resets `gather_function` at its end."""
        source = source_of(dataloader)
        if source is None:
            return super().evaluation_loop(dataloader, *args, **options)
        self.gather_function = self._gather_counted
        found = super().evaluation_loop(dataloader, *args, **options)
        if isinstance(source, ParquetDataset):
            found = found._replace(num_samples=source.manifest.num_rows)
        return found

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        """Return loss, logits and labels of the rows that count."""
        counts = inputs.pop(ROW_VALID, None) if isinstance(inputs, dict) else None
        loss, *others = super().prediction_step(model, inputs, *args, **options)
        if counts is None:
            self._num_counted = None
            return loss, *others
        self._num_counted, self._loss_is_next = int(counts.sum()), loss is not None

        def counted(tensor: torch.Tensor) -> torch.Tensor:
            has_rows = tensor.dim() > 0 and len(tensor) == len(counts)
            return tensor[counts.to(tensor.device)] if has_rows else tensor

        for name, value in inputs.items():  # that compute_metrics may get too
            if isinstance(value, torch.Tensor):
                inputs[name] = counted(value)
        return loss, *(recursively_apply(counted, other) for other in others)

    def _gather_counted(self, values: Any, **options: Any) -> Any:
        """Gather the rows of all ranks, which may have different numbers of them."""
        if self._loss_is_next and self._num_counted is not None:
            # The Trainer has repeated the batch's mean.
            values = values[:1].expand(self._num_counted)
        self._loss_is_next = False
        return recursively_apply(self._gather_rows, values)

    def _gather_rows(self, rows: torch.Tensor) -> torch.Tensor:
        accelerator, rows = self.accelerator, rows.reshape(1) if rows.dim() == 0 else rows
        own = torch.tensor([len(rows)], device=accelerator.device)
        lengths = accelerator.gather(own).tolist()
        padding = rows.new_zeros(max(lengths) - len(rows), *rows.shape[1:])
        parts = accelerator.gather(torch.cat([rows, padding])).split(max(lengths) or 1)
        return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=False)])

    def _parquet_loader(self, dataset: object, *, marks_repeats: bool = False) -> Any:
        source = source_of(dataset)
        if source is None:
            return None
        if marks_repeats and isinstance(source, ParquetDataset):
            source = source.marking_repeats()
        options: dict[str, Any] = {}
        if self.args.dataloader_num_workers:
            options = {
                "num_workers": self.args.dataloader_num_workers,
                "persistent_workers": self.args.dataloader_persistent_workers,
                "prefetch_factor": self.args.dataloader_prefetch_factor,
            }
        return self.accelerator.prepare(ParquetLoader(source, **options))

    def _prepare_input(self, data: Any) -> Any:
        # The Trainer moves tensors and what holds them, and knows no Jagged.
        if isinstance(data, Jagged):
            return Jagged(self._prepare_input(data.values), self._prepare_input(data.offsets))
        return super()._prepare_input(data)
