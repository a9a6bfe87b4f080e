"""Refuses loaders that divide rows among ranks a second time."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

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

    Raises:
        ValueError: Ranks would read only a part of their shares.
    """
    accelerate = sys.modules.get(_ACCELERATE)
    if accelerate is None:
        return
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__") == _ACCELERATE:
            _refuse(accelerate, frame.f_locals.get("self"))
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
