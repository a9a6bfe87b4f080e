"""What the loader that reads a data set may do with it, and what is refused in words."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from multiprocessing.context import ForkProcess, ForkServerProcess, get_spawning_popen
from types import FrameType
from typing import Any, NoReturn, SupportsIndex, TypeVar

from torch.utils.data import (
    DataLoader,
    IterableDataset,
    default_collate,
    default_convert,
    get_worker_info,
)

from torchparquet._impl.processors import end_with_parent
from torchparquet.errors import unpickled

_Item = TypeVar("_Item", covariant=True)

_OPTIONS = ("shuffle", "sampler", "batch_sampler")
_LOADERS = ("DataLoader.__init__", "StatefulDataLoader.__init__")
# Between a look at `__class__` and the loader there is `ABCMeta.__instancecheck__`.
_MAX_FRAMES = 3
_ACCELERATE = "accelerate.data_loader"
_DIVIDING = {
    "DataLoaderDispatcher": "(dispatch_batches) reads it on rank 0 only: the other ranks' rows",
    "IterableDatasetShard": "(dispatch_batches=False or split_batches) divides them among ranks a "
    "second time: most rows",
}
_WAY_OUT = (
    "Let the data set divide the rows: give accelerator.prepare a "
    "torchparquet.frameworks.accelerate.ParquetLoader of it instead of a DataLoader; with a "
    "transformers Trainer, put torchparquet.frameworks.transformers.ParquetTrainerMixin before "
    "Trainer among the bases of its class. If every process shall read everything and the loader "
    "shall divide it, make the data set with rank=0, world_size=1"
)


class IterableOnly(IterableDataset[_Item]):
    """A data set that says what to write instead of its items' numbers and a loader's shuffling."""

    # For messages: what it is, and what it delivers.
    _noun, _item = "ParquetDataset", "batch"
    _num_dropped = 0  # by the loader that has spawned this DataLoader worker

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Callable[..., Any], Any, Any]:
        """Return what makes a copy: the version first, for it is read before all else."""
        state: Any = self.__getstate__()
        if get_spawning_popen() is not None:
            state = state | {"_num_dropped": num_dropped_by_accelerate(self)}
        return unpickled, (type(self), version("torchparquet")), state

    def __getitem__(self, index: object) -> NoReturn:
        """Refuse, as `dataset[0]`, `Subset` and the parts of `random_split` ask for it."""
        raise TypeError(
            f"a {self._noun} is read by iteration, and has no items by number, so "
            "torch.utils.data.Subset and random_split do not work either: split= of "
            'ParquetDataset reads one part of a split, such as split=("train", {"train": 0.9, '
            '"val": 0.1}), its rows= reads rows by number, and next(iter(dataset)) looks at the '
            f"first {self._item}. Got a request for item {index!r}"
        )

    # torch refuses options with a message about the loader alone. A loader under construction asks
    # for nothing of a data set but its class: whether it is one of torch's pipes.
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The type."""
        frame: FrameType | None = sys._getframe(1)
        for _ in range(_MAX_FRAMES):
            if frame is None:
                break
            if frame.f_code.co_qualname in _LOADERS:
                _refuse_options(frame.f_locals)
                break
            frame = frame.f_back
        return type(self)


def _refuse_options(given: dict[str, Any]) -> None:
    for option in _OPTIONS:
        if given.get(option):
            raise ValueError(
                "the data set orders its rows, not the DataLoader: give shuffle=True, or filters=, "
                "rows= and split=, to the data set (mix draws some rows more often), and the "
                f"loader batch_size=None without {option}="
            )


def refuse_second_sharding() -> None:
    """Raise if one of Accelerate's dividing loaders is on the stack of the caller."""
    # The stack of the call that asks for an epoch or an iterator is all that shows them.
    for accelerate, loader in _loaders_on_stack():
        for name, fault in _DIVIDING.items():
            # Their `__class__` claims to be the wrapped loader's; `type` tells the truth.
            if issubclass(type(loader), getattr(accelerate, name)):
                raise ValueError(
                    "this data set deals its rows to ranks by itself, and Accelerate's "
                    f"{name} {fault} would never be read. {_WAY_OUT}"
                )


def num_dropped_by_accelerate(dataset: IterableOnly[Any]) -> int:
    """Return how many batches of `dataset` a loader of `accelerate.skip_first_batches` drops.

    Only if empty ones may take their place: other functions to collate, and loaders that dispatch,
    need what is in them. A forked worker has the loader on its stack, a spawned one what `dataset`
    was pickled with.
    """
    for accelerate, loader in _loaders_on_stack():
        kinds = (accelerate.DataLoaderShard, accelerate.SkipDataLoader)
        if issubclass(type(loader), kinds) and getattr(loader, "dataset", None) is dataset:
            takes_empty = loader.batch_size is None and loader.collate_fn is default_convert
            return int(getattr(loader, "skip_batches", 0)) if takes_empty else 0
    return dataset._num_dropped


def _loaders_on_stack() -> Iterator[tuple[Any, Any]]:
    """Yield Accelerate's module and the `self` of each of its frames, from the inside out."""
    accelerate = sys.modules.get(_ACCELERATE)
    frame: FrameType | None = None if accelerate is None else sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__") == _ACCELERATE:
            yield accelerate, frame.f_locals.get("self")
        frame = frame.f_back


def _self_of(frame: FrameType | None, method: str) -> object:
    """Return the `self` of the method that a frame runs; None if it runs another function."""
    # Reading a frame's locals keeps them alive until it ends: only those of such methods are read.
    if frame is None or not f".{frame.f_code.co_qualname}".endswith(f".{method}"):
        return None
    return frame.f_locals.get("self")


def refuse_second_batching(dataset: object) -> None:
    """Raise if the DataLoader that asks for an iterator would stack the batches of `dataset`."""
    fetcher = _self_of(sys._getframe(1).f_back, "_IterableDatasetFetcher.__init__")
    if getattr(fetcher, "dataset", None) is not dataset:
        return
    collates = getattr(fetcher, "auto_collation", False) is True
    if collates and getattr(fetcher, "collate_fn", None) is default_collate:
        raise ValueError(
            "this DataLoader would stack several batches (batch_size, 1 by default) of a data set "
            "that makes batches itself: give the loader batch_size=None, or "
            "dataset.unbatched(), whose items are rows, or a collate_fn for lists of batches"
        )


def num_workers_of_caller(dataset: object) -> int:
    """Return the workers of the DataLoader that asks for the length of `dataset`; 0 without one."""
    # First come the `__len__` of subclasses, and of data sets that read this one.
    frame = sys._getframe(1).f_back
    while (caller := _self_of(frame, "__len__")) is not None:
        if isinstance(caller, DataLoader):
            return caller.num_workers if caller.dataset is dataset else 0
        assert frame is not None  # noqa: S101
        dataset, frame = caller, frame.f_back
    return 0


def end_orphaned_worker() -> None:
    """End this process if it is a DataLoader worker whose parent has ended, or when it ends."""
    # torch's workers watch whichever process is their parent once they have their iterator. One
    # that comes too late watches another and waits for ever. So iterables call this last.
    worker, parent = get_worker_info(), multiprocessing.parent_process()
    if worker is None or parent is None:
        return
    # Forked later, other workers hold the pipe open whose end would tell.
    is_forked = isinstance(multiprocessing.current_process(), ForkProcess)
    if (is_forked and os.getppid() != parent.pid) or not parent.is_alive():
        raise SystemExit(
            f"DataLoader worker {worker.id} ends: its parent, process {parent.pid}, ended before "
            "it began"
        )
    if isinstance(multiprocessing.current_process(), ForkServerProcess):
        # It is a child of the fork server, which torch watches, and which lives as long as its
        # processes do: none would ever end after a parent that was killed.
        end_with_parent()
