"""The processors of this process, and the processes that share a machine."""

from __future__ import annotations

import os
from collections.abc import Sequence

from torchparquet.checks import checked_int


def num_processors() -> int:
    """Return how many processors this process may use."""
    # macOS binds no process to processors.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def checked_processors(name: str, cpus: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers of processors in ascending order, each once.

    Args:
        name: The argument's name in messages.
        cpus: Numbers as the system counts processors, from 0.

    Raises:
        TypeError: `cpus` is no sequence of integers.
        ValueError: It is empty, this process may not use one of them, or the system binds no thread
            to processors.
    """
    try:
        given = list(cpus)
    except TypeError:
        raise TypeError(f"{name} must be numbers of processors, got {cpus!r}") from None
    numbers = sorted({checked_int(f"{name}[{i}]", cpu, 0, 2**16) for i, cpu in enumerate(given)})
    if not numbers:
        raise ValueError(f"{name} must name at least one processor")
    if not hasattr(os, "sched_getaffinity"):
        raise ValueError(f"{name} needs a system that binds threads to processors, such as Linux")
    usable = os.sched_getaffinity(0)
    if missing := [cpu for cpu in numbers if cpu not in usable]:
        raise ValueError(
            f"{name} names processors that this process may not use: {missing}; it may use "
            f"{sorted(usable)}"
        )
    return tuple(numbers)


def num_ranks_here() -> int:
    """Return how many ranks this machine has, as far as a launcher tells."""
    told = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, int(told)) if told.isdecimal() else 1
