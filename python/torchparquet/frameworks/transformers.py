"""Hugging Face's Trainer: loaders for data sets that deal rows to ranks themselves."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from accelerate.utils import gather_object, recursively_apply

from torchparquet import Jagged, ParquetDataset
from torchparquet._impl.batches.batch_rows import check_rows, joined, sliced
from torchparquet._impl.reading.reader_arguments import ROW_VALID
from torchparquet.errors import users_level
from torchparquet.frameworks import Source, source_of
from torchparquet.frameworks.accelerate import ParquetLoader

if TYPE_CHECKING:
    from transformers import Trainer as _Trainer
else:
    _Trainer = object


class ParquetTrainerMixin(_Trainer):
    """Makes a `Trainer` take the batches of `ParquetDataset`s and mixes as they are.

    Use it as `class MyTrainer(ParquetTrainerMixin, Trainer)`. The columns of a batch are the
    model's keyword arguments. The data set alone makes batches: `batch_size`, `drop_last`,
    `shuffle` and the collator of the Trainer have no effect. An evaluation counts each row once,
    in its loss too: rows that `even=` repeats on some ranks are left out. The loss of a batch
    counts by its rows, or by its labels other than -100 if the model takes `num_items_in_batch`,
    as language models do. All evaluations of a data set read the same epoch of it.
    """

    # Of the batch that is evaluated: its rows that count, the number that the Trainer divides its
    # loss by if that is not the rows, and whether the loss comes next.
    _num_counted: int | None = None
    _num_items: Any = None
    _loss_is_next = False
    _is_evaluating = False  # data sets of this package
    # Of the batches of this process: weighted losses, their weights, and rows that count.
    _sums = (0.0, 0.0, 0)

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

    def evaluation_loop(
        self, dataloader: Any, *args: Any, metric_key_prefix: str = "eval", **options: Any
    ) -> Any:
        """Evaluate; see `Trainer.evaluation_loop`, which resets `gather_function` at its end."""
        options["metric_key_prefix"] = metric_key_prefix
        source = source_of(dataloader)
        if source is None:
            return super().evaluation_loop(dataloader, *args, **options)
        self.gather_function, self._sums = self._gather_counted, (0.0, 0.0, 0)
        self._is_evaluating = True
        try:
            found = super().evaluation_loop(dataloader, *args, **options)
        finally:
            self._is_evaluating = False
        losses, weights, num_rows = map(sum, zip(*gather_object([self._sums]), strict=True))
        if weights:
            found.metrics[f"{metric_key_prefix}_loss"] = losses / weights
        if isinstance(source, ParquetDataset) and not num_rows:
            num_rows = source.manifest.num_rows
        return found._replace(num_samples=num_rows) if num_rows else found

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        """Return loss, logits and labels of the rows that count."""
        counts = inputs.pop(ROW_VALID, None) if isinstance(inputs, dict) else None
        self._num_counted = None if counts is None else int(counts.sum())
        if counts is None and self._is_evaluating and self.accelerator.num_processes > 1:
            warnings.warn(
                'the batches to evaluate have no "row.valid", so rows that even= repeats on some '
                "processes count twice: let transform keep it in the dict that it returns",
                stacklevel=users_level(),
            )
        if counts is not None and self._num_counted and _leave_out_repeats(inputs, counts):
            counts = None
        self._num_items = None
        loss, *others = super().prediction_step(model, inputs, *args, **options)
        self._loss_is_next = loss is not None
        self._add(loss)
        if counts is None:
            return loss, *others

        def counted(tensor: torch.Tensor) -> torch.Tensor:
            has_rows = tensor.dim() > 0 and len(tensor) == len(counts)
            return tensor[counts.to(tensor.device)] if has_rows else tensor

        for name, value in inputs.items():  # that compute_metrics may get too
            if isinstance(value, torch.Tensor):
                inputs[name] = counted(value)
        return loss, *(recursively_apply(counted, other) for other in others)

    def _get_num_items_in_batch(self, batch_samples: list[Any], *args: Any) -> Any:
        if self._is_evaluating and self._num_counted == 0:
            # The other processes divide by this number too: repeats have no part in it.
            for inputs in batch_samples:
                if "labels" in inputs and self.model_accepts_loss_kwargs:
                    inputs["labels"] = torch.full_like(inputs["labels"], -100)
        self._num_items = super()._get_num_items_in_batch(batch_samples, *args)
        return self._num_items

    def _add(self, loss: torch.Tensor | None) -> None:
        """Add the loss of a batch to the sums, if it is known how much of it counts."""
        losses, weights, num_rows = self._sums
        if self._num_counted is None:
            return
        weight = self._num_counted if self._num_items is None else float(self._num_items)
        self._sums = losses, weights, num_rows + self._num_counted
        if loss is not None and weight and math.isfinite(value := loss.item()):
            self._sums = losses + value * weight, weights + weight, self._sums[2]

    def _gather_counted(self, values: Any, **options: Any) -> Any:
        """Gather the rows of all ranks, which may have different numbers of them."""
        is_loss, self._loss_is_next = self._loss_is_next, False
        if is_loss and self._num_counted is not None:
            # The Trainer has repeated the batch's mean.
            values = values[:1].expand(self._num_counted)
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
        if marks_repeats:
            # The accelerator keeps what it has prepared, so that there must be one for each.
            loaders = self.__dict__.setdefault("_evaluation_loaders", WeakKeyDictionary())
            if source not in loaders:
                marked = source.marking_repeats()
                loaders[source] = self._prepared(marked), marked.epoch
            loader, epoch = loaders[source]
            loader.dataset._session.begin_epoch(epoch)
            return loader
        return self._prepared(source)

    def _prepared(self, source: Source) -> Any:
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


def _leave_out_repeats(inputs: dict[str, Any], counts: torch.Tensor) -> bool:
    """Leave out the rows of a batch that do not count; False if a value is not row by row."""
    if counts.all():
        return True
    padded = torch.nn.functional.pad(counts.to("cpu", torch.int8), (1, 1))
    edges = padded.diff().nonzero().flatten().tolist()
    try:
        check_rows(inputs, len(counts))
        runs = [sliced(inputs, *run) for run in zip(edges[::2], edges[1::2], strict=True)]
    except (TypeError, ValueError):
        return False
    inputs.update(joined(runs))
    return True
