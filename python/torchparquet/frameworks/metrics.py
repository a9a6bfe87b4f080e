"""Metrics of data sets for loggers: what came since the last time, every so many steps."""

from __future__ import annotations

from typing import Protocol

from torchparquet.frameworks.loaders import source_of
from torchparquet.metrics.read_metrics import Metrics


class SummaryWriter(Protocol):
    """What is asked of TensorBoard's writer, or of one like it."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> object:
        """Write one number."""

    def add_text(self, tag: str, text_string: str, global_step: int) -> object:
        """Write one text."""


class Interval:
    """What a data set has read since the last time that it was asked for."""

    def __init__(self, loader: object) -> None:
        """Begin now.

        Args:
            loader: A `ParquetDataset` or a mix, or a DataLoader of one without workers.

        Raises:
            TypeError: It is neither.
            ValueError: It has workers, which have metrics of their own.
        """
        source = source_of(loader)
        if source is None:
            raise TypeError(
                "metrics need a ParquetDataset or a mix, or a DataLoader of one, got "
                f"{type(loader).__name__}"
            )
        num_workers = getattr(loader, "num_workers", 0)
        if num_workers:
            raise ValueError(
                "metrics are those of the process that reads: use num_workers=0, or log them in "
                f"the workers, got num_workers={num_workers}"
            )
        self._source = source
        self._before = source.metrics(all_iterations=True)

    def take(self) -> Metrics:
        """Return what came since, and begin anew."""
        now = self._source.metrics(all_iterations=True)
        since, self._before = now.since(self._before), now
        return since


class MetricsLog:
    """Writes the metrics of a data set to TensorBoard every so many steps.

    Each point is of the steps since the one before. One `add_scalar` for each number, as
    `data/rows_per_second`, and the bottleneck as text.
    """

    def __init__(
        self,
        dataset: object,
        writer: SummaryWriter,
        *,
        every_n_steps: int = 100,
        columns: bool = False,
        prefix: str = "data/",
    ) -> None:
        """Begin at step 0.

        Args:
            dataset: A `ParquetDataset` or a mix, or a DataLoader of one without workers.
            writer: `torch.utils.tensorboard.SummaryWriter`, or what has its `add_scalar` and
                `add_text`.
            every_n_steps: Calls of `step` from one point to the next.
            columns: Also the numbers of each column and codec.
            prefix: Of all names.

        Raises:
            TypeError: `dataset` is neither.
            ValueError: It has workers, or `every_n_steps` is below 1.
        """
        if every_n_steps < 1:
            raise ValueError(f"every_n_steps must be at least 1, got {every_n_steps}")
        self._interval = Interval(dataset)
        self._writer = writer
        self._every_n_steps = every_n_steps
        self._columns = columns
        self._prefix = prefix
        self._num_steps = 0

    def step(self, step: int | None = None) -> Metrics | None:
        """Take note of a training step, and write what is due.

        Args:
            step: Its number, for the writer; None for how often this was called.

        Returns:
            What was written; None where nothing was due.
        """
        self._num_steps += 1
        if self._num_steps % self._every_n_steps:
            return None
        metrics = self._interval.take()
        number = self._num_steps if step is None else step
        for name, value in metrics.as_dict(columns=self._columns).items():
            self._writer.add_scalar(self._prefix + name, value, number)
        self._writer.add_text(self._prefix + "bottleneck", metrics.bottleneck, number)
        return metrics
