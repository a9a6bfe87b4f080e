"""A cluster of Ray, to whose machines a command gives its tasks; files are reached by all of them.

A task depends on its arguments alone, so Ray repeats those that a machine took with it.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from torchparquet.cli.screen import Advance
from torchparquet.errors import one_line

# Of a task whose machine went away; Ray's default is 3.
_MAX_RETRIES = 100
_REACHED_SECONDS = 20
_TASKS_PER_PROCESSOR = 4


ray_option = click.option(
    "--ray",
    is_flag=False,
    flag_value="auto",
    metavar="[ADDRESS]",
    help="Work on the machines of a Ray cluster, each of which must reach all files. --max-memory "
    "and --num-threads of a command are then for each task; the latter is 1 unless given.",
)


def cluster_of(
    address: str | None, task_bytes: int, task_threads: int | None = None
) -> Cluster | None:
    """Connect to a cluster until the command ends; a task takes so much memory and processors."""
    if address is None:
        return None
    given = _connected(address, task_bytes, task_threads or 1)
    return click.get_current_context().with_resource(given)


@contextmanager
def _connected(address: str, task_bytes: int, task_threads: int) -> Iterator[Cluster]:
    try:
        import ray
    except ImportError:
        raise ValueError("--ray needs the package ray: pip install torchparquet[ray]") from None
    try:
        host, is_port, port = address.rpartition(":")
        if is_port and port.isdecimal():
            # Ray would try for minutes.
            socket.create_connection((host.rpartition("/")[2], int(port)), _REACHED_SECONDS).close()
        options = {"log_to_driver": False, "logging_level": logging.WARNING}
        ray.init(address=address, ignore_reinit_error=True, **options)
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"--ray cannot connect to {address!r}: {one_line(error)}. It takes the address of a "
            "cluster that runs the same versions of Ray and Python, auto for the one of this "
            "machine, or local to start one here"
        ) from error
    try:
        alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        for option, resource, wanted in (
            ("--max-memory", "memory", task_bytes),
            ("--num-threads", "CPU", task_threads),
        ):
            most = [node.get(resource, 0) for node in alive]
            if max(most, default=0) < wanted:
                raise ValueError(
                    f"{option} is for each task, and no machine of Ray grants {wanted:,} "
                    f"{'bytes' if resource == 'memory' else 'processors'} to one: they have "
                    f"{', '.join(f'{int(of_node):,}' for of_node in most)}; lower it, or start "
                    "Ray with more"
                )
        yield Cluster(ray, task_bytes, task_threads)
    finally:
        ray.shutdown()


@dataclass(frozen=True)
class Cluster:
    """Machines of Ray, on which a task takes at most so many bytes and processors."""

    ray: Any
    task_bytes: int
    task_threads: int

    def task(self, function: Callable[..., Any], num_returns: int = 1) -> Any:
        """Return a function as tasks, whose `remote` takes its arguments."""
        options = {"max_retries": _MAX_RETRIES, "num_returns": num_returns}
        bounded = _on_own_processors(function, self.task_threads)
        options["num_cpus"] = self.task_threads
        return self.ray.remote(bounded).options(memory=self.task_bytes, **options)

    def wait(self, pending: dict[Any, int], advance: Advance) -> None:
        """Wait for tasks, and tell their progress; raise the error of the first that failed."""
        left = list(pending)
        while left:
            done, left = self.ray.wait(left, fetch_local=False)
            for one in done:
                self._result(one)
                advance(pending[one])

    def put(self, value: Any) -> Any:
        """Return what stands for a value among the arguments of tasks."""
        return self.ray.put(value)

    def each(
        self,
        function: Callable[..., Any],
        given: Iterable[Sequence[Any]],
        sizes: Sequence[int],
        advance: Advance,
    ) -> Iterator[Any]:
        """Yield what a function makes of each argument in order; each argument has a size.

        A bounded number of tasks wait, so that later arguments may depend on earlier results.
        """
        task = self.task(function)
        most = _TASKS_PER_PROCESSOR * max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        pending: deque[tuple[Any, int]] = deque()

        def result() -> Any:
            one, size = pending.popleft()
            found = self._result(one)
            advance(size)
            return found

        for arguments, size in zip(given, sizes, strict=True):
            pending.append((task.remote(*arguments), size))
            if len(pending) >= most:
                yield result()
        while pending:
            yield result()

    def _result(self, one: Any) -> Any:
        try:
            return self.ray.get(one)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from None


def _on_own_processors(function: Callable[..., Any], num_threads: int) -> Callable[..., Any]:
    """Have Arrow and the tokenizer run on as many threads as Ray has counted for the task."""

    @functools.wraps(function)
    def bounded(*arguments: Any) -> Any:
        pa.set_cpu_count(num_threads)
        os.environ["RAYON_NUM_THREADS"] = str(num_threads)
        return function(*arguments)

    return bounded
