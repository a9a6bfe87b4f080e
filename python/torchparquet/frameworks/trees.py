"""Batches as NumPy arrays, in passes that are all alike: for libraries of boosted trees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray

from torchparquet import ParquetDataset
from torchparquet._impl.batches.tensors import Batch


class Passes:
    """One epoch of a data set, read as often as is asked for."""

    def __init__(self, dataset: ParquetDataset, reader: str) -> None:
        """Check that each pass has the same rows, each once; `reader` is the class that reads."""
        if not isinstance(dataset, ParquetDataset):
            raise TypeError(
                f"{reader} takes a ParquetDataset, which may have many files; got "
                f"{type(dataset).__name__}"
            )
        if dataset.num_epochs != 1:
            raise ValueError(
                f"{reader} reads one epoch several times: give the data set num_epochs=1, got "
                f"{dataset.num_epochs}"
            )
        plan = dataset.plan()  # even="dynamic" has none, and says so
        if (plan.share_rows > plan.own_rows).any():
            raise ValueError(
                f"{reader} would count some rows twice, since even={plan.options.even!r} repeats "
                'them on some ranks: give the data set even="none"'
            )
        self.dataset, self.batch_size = dataset, plan.options.batch_size
        self._epoch = dataset.epoch
        self._batches: Any = None
        self._next = 0  # the batch that comes next

    def read(self, step: int | None = None) -> Batch | None:
        """Return a batch of the epoch; by default the next one, and None after the last."""
        if self._batches is None or step not in (None, self._next):
            self.end()
            self.dataset.set_epoch(self._epoch)
            self._next = step or 0
            self.dataset.seek(self._next)
            self._batches = iter(self.dataset)
        batch: Batch | None = next(self._batches, None)
        self._next += 1
        if batch is None:
            self.end()
        return batch

    def end(self) -> None:
        """End a pass, and the threads that read for it."""
        if self._batches is not None:
            self._batches.close()
        self._batches = None


def array_of(batch: Mapping[str, Any], name: str, num_dimensions: int) -> NDArray[Any]:
    """Return a value of a batch as an array that shares its memory."""
    if name not in batch:
        raise KeyError(f"a batch has no {name!r}: it has {', '.join(map(repr, batch))}")
    value = batch[name]
    if not isinstance(value, torch.Tensor) or value.dim() != num_dimensions:
        shape = list(value.shape) if isinstance(value, torch.Tensor) else "rows of any length"
        way_out = (
            f'a list of columns, such as columns={{"{name}": ["x0", "x1"]}}, or '
            f'Column("{name}", length=L) for lists of one length'
            if num_dimensions == 2
            else "one number for each row"
        )
        raise ValueError(
            f"batch[{name!r}] must have {num_dimensions} dimensions; got {shape}. Give {way_out}"
        )
    if value.device.type != "cpu":
        raise ValueError(
            f"batch[{name!r}] must be in host memory, got one on {value.device}: leave out device="
        )
    if value.dtype == torch.bfloat16:
        raise ValueError(
            f"NumPy has no bfloat16, of which batch[{name!r}] is: read it as float32, by "
            f'Column(..., dtype="float32")'
        )
    return value.numpy()
