"""Accelerate: a loader that `accelerator.prepare` leaves as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from accelerate.data_loader import DataLoaderShard
from accelerate.state import PartialState, is_initialized
from accelerate.utils import send_to_device
from torch.utils.data import IterableDataset

from torchparquet import ParquetDataset
from torchparquet._impl.batches.tensors import Batch

_END = object()


class ParquetLoader(DataLoaderShard):
    """Loads batches of a data set that deals rows to ranks itself, to this process's device.

    `accelerator.prepare` leaves the loader unchanged. The loader tells Accelerate which batch is
    the last, for gradient accumulation. `accelerator.save_state` and `load_state` save and load its
    state, which counts the delivered batches.
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
            device_placement: True to copy batches to the process's device.
            num_workers: DataLoader workers; 0, usually the fastest, reads in this process. Workers
                need torchdata: its `StatefulDataLoader` reads then.
            **options: Options of the `DataLoader`; `batch_size` is None by default.

        Raises:
            ImportError: `num_workers` is above 0, and torchdata is not installed.
            RuntimeError: The process has no `Accelerator` yet.
            TypeError: `dataset` is not an `IterableDataset`.
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
        # `accelerator.save_state` then saves the result of `state_dict`.
        self.use_stateful_dataloader = True
        self._is_accelerate_prepared = True
        self._stateful: Any = self.base_dataloader if num_workers else dataset
        self._state: dict[str, Any] | None = None

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches of the next epoch, or the rest of an epoch that a state began."""
        self.begin()
        self.remainder = -1  # `gather_for_metrics` then cuts nothing off
        batches = iter(self.base_dataloader)
        batch: Any = next(batches, _END)
        # Accelerate must know which batch is the last, so one is read ahead. Not so at the first
        # of a `ParquetDataset`, so that a look at one batch is no more than that.
        is_first = True
        try:
            while batch is not _END:
                self._state = self._stateful.state_dict()
                has_more = is_first and self._has_more()
                following = None if has_more else next(batches, _END)
                if following is _END:
                    self.end_of_dataloader = True
                    self._state = self._stateful.state_dict()
                if self.device is not None:
                    batch = send_to_device(batch, self.device, non_blocking=True)
                yield batch
                batch = next(batches, _END) if has_more else following
                is_first = False
        finally:
            self.end()

    def _has_more(self) -> bool:
        """Return True if further batches of the epoch are known of, without reading."""
        if self.num_workers or not isinstance(self.dataset, ParquetDataset):
            return False
        session = self.dataset._session
        if session.is_dynamic:  # which rank reads what is not known beforehand
            return False
        return session.batches_left(session.present_place(session.topology())) > 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; a loaded state of this epoch stays in force."""
        self.iteration = epoch
        self.dataset.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last delivered batch."""
        return dict(self._stateful.state_dict() if self._state is None else self._state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Make the next iteration resume at a state."""
        self._state = None
        self._stateful.load_state_dict(state_dict)
