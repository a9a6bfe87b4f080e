"""Refuses loaders that divide rows among ranks a second time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from torchparquet._impl.ranks.sharding import in_worker

_ACCELERATE = "accelerate.data_loader"
_WAY_OUT = (
    "Let the data set divide the rows: give accelerator.prepare a "
    "torchparquet.frameworks.accelerate.ParquetLoader of it instead of a DataLoader; with a "
    "transformers Trainer, put torchparquet.frameworks.transformers.ParquetTrainerMixin before "
    "Trainer among the bases of its class. If every process shall read everything and the loader "
    "shall divide it, make the data set with rank=0, world_size=1"
)


def refuse_second_sharding() -> None:
    """Raise if one of Accelerate's dividing loaders is on the stack of the caller.

    `accelerator.prepare` makes them from any `DataLoader` over an `IterableDataset`. The stack of
    the call that asks for an epoch or an iterator is the only place that shows them.
    """
    for accelerate, loader in _loaders_on_stack():
        _refuse(accelerate, loader)


def num_dropped_by_accelerate(dataset: object) -> int:
    """Return how many batches the loader that asks for an iterator of `dataset` will drop.

    `accelerate.skip_first_batches` makes such loaders, for resuming. They do not tell the data set,
    which could leave those batches out unread.
    """
    if in_worker():
        return 0
    for accelerate, loader in _loaders_on_stack():
        kinds = (accelerate.DataLoaderShard, accelerate.SkipDataLoader)
        if issubclass(type(loader), kinds) and getattr(loader, "dataset", None) is dataset:
            return int(getattr(loader, "skip_batches", 0))
    return 0


def _loaders_on_stack() -> Iterator[tuple[Any, object]]:
    """Yield Accelerate's module and the `self` of each of its frames, from the inside out."""
    accelerate = sys.modules.get(_ACCELERATE)
    frame: FrameType | None = None if accelerate is None else sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__") == _ACCELERATE:
            yield accelerate, frame.f_locals.get("self")
        frame = frame.f_back


def _refuse(accelerate: Any, loader: object) -> None:
    # Their `__class__` claims to be the wrapped loader's; `type` tells the truth.
    kind = type(loader)
    if issubclass(kind, accelerate.DataLoaderDispatcher):
        raise ValueError(
            "this data set deals its rows to ranks by itself, and Accelerate's "
            "DataLoaderDispatcher (dispatch_batches) reads it on rank 0 only: the other ranks' "
            f"rows would never be read. {_WAY_OUT}"
        )
    if issubclass(kind, accelerate.IterableDatasetShard):
        raise ValueError(
            "this data set deals its rows to ranks by itself, and Accelerate's "
            "IterableDatasetShard (dispatch_batches=False or split_batches) divides them among "
            f"ranks a second time: most rows would never be read. {_WAY_OUT}"
        )
