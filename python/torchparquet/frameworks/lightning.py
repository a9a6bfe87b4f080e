"""Lightning: callbacks that set epochs, keep states and log metrics.

By entry points every Trainer has a `ParquetCallback`, which acts by this module. An archive of a
program may lack entry points: then `callbacks()` returns what the Trainer needs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torchparquet import ParquetDataset
from torchparquet._impl.metrics.read_metrics import Metrics
from torchparquet.errors import users_level
from torchparquet.frameworks import Source, source_of
from torchparquet.frameworks.metrics import interval_of
from torchparquet_lightning import callback_of, callbacks, pytorch_lightning_callbacks

__all__ = ["callbacks", "metrics_callback", "pytorch_lightning_callbacks"]


def begin_training(trainer: Any, checkpoint: Mapping[str, Any]) -> None:
    """Bring the data to the point where training resumes.

    The checkpoint has the states of loaders, by whether Lightning keeps them: "stateful", "plain".
    """
    if not any(_sources(trainer)):
        return
    # Lightning began to iterate before it knew the epoch. If the module asked for the number of
    # steps, it began even before it read the checkpoint.
    loop = trainer.fit_loop
    fetcher, progress = loop._data_fetcher, loop.epoch_loop.batch_progress
    fetcher.combined_loader.reset()
    is_mid_epoch = loop.restarting and progress.current.ready and not progress.is_last_batch
    try:
        if is_mid_epoch:
            stateful = [one for one in _leaves(trainer.train_dataloader) if _has_state(one)]
            _load(stateful, checkpoint.get("stateful", []))
            _load([source for _, source in _plain(trainer)], checkpoint.get("plain", []))
        else:
            _set_epochs(trainer)
    except BaseException:
        # Lightning would ask a reset loader for its length, and fail.
        loop._data_fetcher = None
        raise
    iter(fetcher)
    if is_mid_epoch and progress.current.ready > progress.current.processed:
        # The training step of a batch failed: it is read again.
        for loader, source in _sources(trainer):
            if isinstance(source, ParquetDataset) and _num_workers(loader) == 0:
                source.seek(progress.current.processed)


def begin_epoch(trainer: Any) -> None:
    """Set the epoch when Lightning begins a new iteration, never during one."""
    loop = trainer.fit_loop
    if trainer.current_epoch > 0 and not (loop.is_resuming or loop.epoch_loop.restarting):
        _set_epochs(trainer)


def plain_states(trainer: Any) -> list[dict[str, Any] | None]:
    """Return the states of data sets in plain DataLoaders, which Lightning does not save."""
    found = _plain(trainer)
    states = [None if _num_workers(loader) else source.state_dict() for loader, source in found]
    if None in states and not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
        warnings.warn(
            "this checkpoint has no state of the data, since only the workers of a DataLoader "
            "know it: training cannot go on from here within the epoch. Give the Trainer the "
            "data set itself, a DataLoader with num_workers=0, or torchdata's StatefulDataLoader",
            stacklevel=users_level(),
        )
    return states


def _set_epochs(trainer: Any) -> None:
    # Lightning sets the epoch of samplers in the same way. To overfit, it takes them away: the
    # batches of all epochs are to be the same.
    epoch = 0 if trainer.overfit_batches else trainer.fit_loop.epoch_progress.current.processed
    for _, source in _sources(trainer):
        source.set_epoch(epoch)


def _load(loaders: list[Any], states: list[dict[str, Any] | None]) -> None:
    if len(states) != len(loaders) or None in states:
        raise ValueError(
            "the checkpoint was saved within an epoch, without the states of all data that are "
            "read now: rows would be read twice. Resume with the loaders that it was saved with, "
            "or from a checkpoint of an epoch's end"
        )
    for loader, state in zip(loaders, states, strict=True):
        loader.load_state_dict(state)


def _sources(trainer: Any) -> list[tuple[object, Source]]:
    """Return the Trainer's training loaders with the data sets of this package in them."""
    loaders = _leaves(trainer.train_dataloader)
    found = ((loader, source_of(loader)) for loader in loaders)
    return [(loader, source) for loader, source in found if source is not None]


def _plain(trainer: Any) -> list[tuple[object, Source]]:
    """Return the loaders whose state Lightning does not keep."""
    return [(loader, source) for loader, source in _sources(trainer) if not _has_state(loader)]


def _has_state(loader: object) -> bool:
    return hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")


def _leaves(loaders: object) -> Iterator[object]:
    if isinstance(loaders, Mapping):
        loaders = list(loaders.values())
    if isinstance(loaders, list | tuple):
        for loader in loaders:
            yield from _leaves(loader)
    elif loaders is not None:
        yield loaders


def _num_workers(loader: object) -> int:
    return int(getattr(loader, "num_workers", 0))


class _MetricsHooks:
    """The hooks of a `ParquetMetrics` callback, for either of Lightning's packages."""

    def __init__(self, every_n_steps: int, columns: bool) -> None:
        super().__init__()
        self._every_n_steps, self._columns = every_n_steps, columns
        self._intervals: dict[str, Callable[[], Metrics]] = {}

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to count."""
        loaders = [loader for loader, _ in _sources(trainer)]
        known = [loader for loader in loaders if not _num_workers(loader)]
        if len(known) < len(loaders):
            warnings.warn(
                "metrics of data sets that DataLoader workers read are known to the workers only, "
                "and not logged; use num_workers=0",
                stacklevel=users_level(),
            )
        names = ["data/"] if len(known) == 1 else [f"data/{n}/" for n in range(len(known))]
        self._intervals = dict(zip(names, map(interval_of, known), strict=True))

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log the metrics since the last point to all loggers of the Trainer."""
        if (batch_idx + 1) % self._every_n_steps:
            return
        numbers: dict[str, float] = {}
        for prefix, take in self._intervals.items():
            since = take().as_dict(columns=self._columns)
            numbers |= {prefix + name: number for name, number in since.items()}
        for logger in trainer.loggers if numbers else ():
            logger.log_metrics(numbers, step=trainer.global_step)


def metrics_callback(
    every_n_steps: int = 50, *, columns: bool = False, package: str = "lightning.pytorch"
) -> Any:
    """Return a callback that logs the metrics of a Trainer's data sets.

    Each point covers the batches since the one before. Names begin with `data/`, or with `data/0/`
    and so on if there are several data sets. Rank 0 logs its own, as Lightning's loggers do.

    Args:
        every_n_steps: Batches between two points.
        columns: True logs the numbers of each column and codec too.
        package: "lightning.pytorch" or "pytorch_lightning": the package of the Trainer.

    Raises:
        ValueError: `every_n_steps` is below 1.
    """
    if every_n_steps < 1:
        raise ValueError(f"every_n_steps must be at least 1, got {every_n_steps}")
    return callback_of(package, "ParquetMetrics", _MetricsHooks)(every_n_steps, columns)
