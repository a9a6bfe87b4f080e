"""A contender in a process of its own.

In one process the contenders would pay for each other's memory: an allocator gives back what one
pass left behind during the pass of another.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from consumption import PassContent, examine
from pyarrow_routes import Batch, Route


class ContenderProcess:
    """Runs passes of one route on demand. Made before this process has read anything."""

    def __init__(
        self, route: Route, path: Path, batch_size: int, take: Callable[[Iterable[Batch]], Any]
    ) -> None:
        """Starts the process by fork, since routes are closures."""
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, route, path, batch_size, take), daemon=True
        )
        self._process.start()

    def examine(self) -> PassContent:
        """Runs an untimed pass and returns its exact content."""
        return self._ask("examine")

    def timed_pass(self) -> tuple[float, Any]:
        """Runs an untimed pass and then a timed one; returns its seconds and its totals."""
        return self._ask("time")

    def close(self) -> None:
        """Ends the process."""
        self._pipe.send("end")
        self._process.join()

    def _ask(self, what: str) -> Any:
        self._pipe.send(what)
        answer = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


def _serve(
    pipe: Any, route: Route, path: Path, batch_size: int, take: Callable[[Iterable[Batch]], Any]
) -> None:
    take([])  # whatever its first call costs is not to be timed
    while (what := pipe.recv()) != "end":
        try:
            if what == "examine":
                pipe.send(examine(route.batches(path, batch_size)))
                continue
            take(route.batches(path, batch_size))
            gc.collect()
            start = time.perf_counter()
            totals = take(route.batches(path, batch_size))
            pipe.send((time.perf_counter() - start, totals))
        except Exception as error:
            pipe.send(error)
