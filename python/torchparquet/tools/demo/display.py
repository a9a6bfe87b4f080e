"""Progress of training on screen: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import os
import time
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from torchparquet.tools.demo.job import Job
from torchparquet.tools.screen import make_console

_LINES_PER_EPOCH = 4
_SMOOTHING = 0.9
_BAR_WIDTH = 20


class StepDisplay:
    """Shows steps, error and speed of rank 0; on other ranks nothing."""

    def __init__(self, job: Job, num_steps: int, *, show: bool) -> None:
        """Prepare for epochs of `num_steps` steps; prints nothing yet."""
        self._job = job
        self._num_steps = num_steps
        self._console = make_console() if show else None
        self._world_size = int(os.environ.get("WORLD_SIZE", "1"))
        self._progress: Progress | None = None
        if job.as_json and self._console is not None and not self._console.is_terminal:
            self._console = None
        if self._console is not None and self._console.is_terminal:
            self._progress = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=_BAR_WIDTH),
                MofNCompleteColumn(),
                TextColumn("{task.fields[state]}"),
                console=self._console,
            )
        self._task = TaskID(0)
        self._epoch = 0
        self._step = 0
        self._num_rows = 0
        self._started = 0.0
        self._mean_square = 0.0

    def __enter__(self) -> StepDisplay:
        """Begin to draw."""
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the terminal back."""
        if self._progress is not None:
            self._progress.stop()

    def begin_epoch(self, epoch: int) -> None:
        """Start a bar."""
        self._epoch, self._step, self._num_rows = epoch, 0, 0
        self._started = time.perf_counter()
        if self._progress is not None:
            self._task = self._progress.add_task(self._name(), total=self._num_steps, state="")

    def advance(self, num_rows: int, squared_error: float, num_targets: int) -> None:
        """Take note of one step of this rank."""
        if self._console is None:
            return
        self._step += 1
        self._num_rows += num_rows * self._world_size
        if num_targets:
            square = squared_error / num_targets
            first = self._mean_square == 0.0
            keep = 0.0 if first else _SMOOTHING
            self._mean_square = keep * self._mean_square + (1 - keep) * square
        if self._progress is not None:
            self._progress.update(self._task, advance=1, state=self._state())
        elif self._step * _LINES_PER_EPOCH % self._num_steps < _LINES_PER_EPOCH:
            steps = f"{self._step:,}/{self._num_steps:,} steps"
            self._console.print(f"{self._name()}  {steps}  {self._state()}")

    def _name(self) -> str:
        return f"epoch {self._epoch + 1}/{self._job.num_epochs}"

    def _state(self) -> str:
        error = f"{self._mean_square**0.5:,.4g} {self._job.task.unit}".rstrip()
        speed = self._num_rows / max(1e-9, time.perf_counter() - self._started)
        return f"error {error}  {speed:,.0f} rows/s"
