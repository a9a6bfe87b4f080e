"""The processors of this process, and the processes that share a machine."""

from __future__ import annotations

import os


def num_processors() -> int:
    """Return how many processors this process may use."""
    # macOS binds no process to processors.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def num_ranks_here() -> int:
    """Return how many ranks this machine has, as far as a launcher tells."""
    told = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, int(told)) if told.isdecimal() else 1
