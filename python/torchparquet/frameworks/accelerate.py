"""Accelerate: a loader that `accelerator.prepare` leaves as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from accelerate.data_loader import DataLoaderShard
from accelerate.state import PartialState, is_initialized
from accelerate.utils import send_to_device
from torch.utils.data import IterableDataset

from torchparquet.batches.tensors import Batch

_END = object()


class ParquetLoader(DataLoaderShard):
    """Batches of a data set that deals its rows to ranks itself, on this process's device.

    Goes through `accelerator.prepare` unchanged. It tells Accelerate when the last batch is
    there, for gradient accumulation, and its state is saved and loaded by
    `accelerator.save_state` and `load_state`: it counts the batches that were delivered.
    """

    def __init__(
        self,
        dataset: IterableDataset[Any],
        *,
        device_placement: bool = True,
        num_workers: int = 0,
        **options: Any,
    ) -> None:
        """Prepare to iterate; starts nothing.

        Args:
            dataset: A `ParquetDataset`, a mix, or another data set that reads its rank's share.
            device_placement: Bring batches to the process's device.
            num_workers: DataLoader workers; 0 for none, which is usually fastest. With workers
                torchdata is needed, whose `StatefulDataLoader` then reads.
            **options: Of the `DataLoader`, whose `batch_size` is None unless it stands here.

        Raises:
            ImportError: There are workers, and torchdata is not installed.
            RuntimeError: There is no `Accelerator` yet.
            TypeError: `dataset` is no `IterableDataset`.
        """
        if not isinstance(dataset, IterableDataset):
            raise TypeError(f"dataset must be an IterableDataset, got {type(dataset).__name__}")
        if not is_initialized():
            raise RuntimeError("make the Accelerator first: it says which device is this process's")
        options = {"batch_size": None} | options
        device = PartialState().device if device_placement else None
        super().__init__(dataset, device=device, num_workers=num_workers, **options)
        if num_workers:
            from torchdata.stateful_dataloader import StatefulDataLoader

            self.base_dataloader = StatefulDataLoader(dataset, num_workers=num_workers, **options)
        # Has `accelerator.save_state` save what `state_dict` returns.
        self.use_stateful_dataloader = True
        self._is_accelerate_prepared = True
        self._stateful: Any = self.base_dataloader if num_workers else dataset
        self._state: dict[str, Any] | None = None

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches of the next epoch, or of what a state has left of one.

        One batch is read ahead, since Accelerate is to know which one is the last.
        """
        self.begin()
        self.remainder = -1  # `gather_for_metrics` has nothing to cut off
        batches = iter(self.base_dataloader)
        batch: Any = next(batches, _END)
        try:
            while batch is not _END:
                self._state = self._stateful.state_dict()
                following = next(batches, _END)
                if following is _END:
                    self.end_of_dataloader = True
                    self._state = self._stateful.state_dict()
                if self.device is not None:
                    batch = send_to_device(batch, self.device, non_blocking=True)
                yield batch
                batch = following
        finally:
            self.end()

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` that of the next iteration; a state of this epoch stays in force."""
        self.iteration = epoch
        self.dataset.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state behind the last batch that was delivered."""
        return dict(self._stateful.state_dict() if self._state is None else self._state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Make the next iteration go on where a state was taken."""
        self._state = None
        self._stateful.load_state_dict(state_dict)
