"""Metrics of data sets for loggers, over intervals of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchparquet._impl.metrics.read_metrics import Metrics
from torchparquet.frameworks import source_of


def interval_of(loader: object) -> Callable[[], Metrics]:
    """Return a function that gives a data set's metrics since its last call, at first since now."""
    source = source_of(loader)
    if source is None:
        raise TypeError(
            "metrics need a ParquetDataset or a mix, or a DataLoader of one, got "
            f"{type(loader).__name__}"
        )
    if num_workers := getattr(loader, "num_workers", 0):
        raise ValueError(
            "only the process that reads has metrics: use num_workers=0, or log them in "
            f"the workers, got num_workers={num_workers}"
        )
    before = source.metrics(all_iterations=True)

    def take() -> Metrics:
        nonlocal before
        now = source.metrics(all_iterations=True)
        since, before = now.since(before), now
        return since

    return take


class MetricsLog:
    """Writes the metrics of a data set to TensorBoard every few steps.

    Each point covers the steps since the one before: one `add_scalar` per number, such as
    `data/rows_per_second`, and the bottleneck as text.
    """

    def __init__(
        self,
        dataset: object,
        writer: Any,
        *,
        every_n_steps: int = 100,
        columns: bool = False,
        prefix: str = "data/",
    ) -> None:
        """Begin at step 0.

        Args:
            dataset: A `ParquetDataset` or a mix, or a DataLoader of one without workers.
            writer: A `torch.utils.tensorboard.SummaryWriter`, or an object with its `add_scalar`
                and `add_text`.
            every_n_steps: Calls of `step` between two points.
            columns: True writes the numbers of each column and codec too.
            prefix: Prefix of all names.

        Raises:
            TypeError: `dataset` is neither.
            ValueError: The DataLoader has workers, or `every_n_steps` is below 1.
        """
        if every_n_steps < 1:
            raise ValueError(f"every_n_steps must be at least 1, got {every_n_steps}")
        self._take = interval_of(dataset)
        self._writer, self._prefix = writer, prefix
        self._every_n_steps, self._columns = every_n_steps, columns
        self._num_steps = 0

    def step(self, step: int | None = None) -> Metrics | None:
        """Count a training step, and write a point if one is due.

        Args:
            step: Number of the step, for the writer; None for the number of calls.

        Returns:
            The metrics that were written; None if no point was due.
        """
        self._num_steps += 1
        if self._num_steps % self._every_n_steps:
            return None
        metrics = self._take()
        number = self._num_steps if step is None else step
        for name, value in metrics.as_dict(columns=self._columns).items():
            self._writer.add_scalar(self._prefix + name, value, number)
        self._writer.add_text(self._prefix + "bottleneck", metrics.bottleneck, number)
        return metrics
