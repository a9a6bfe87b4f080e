"""The processors of this process."""

from __future__ import annotations

import os


def num_processors() -> int:
    """Return how many processors this process may use."""
    # macOS binds no process to processors.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
