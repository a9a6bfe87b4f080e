"""The processors of this process, its parent, and the processes that share a machine."""

from __future__ import annotations

import functools
import multiprocessing
import os
import re
import sys
import threading


def num_processors() -> int:
    """Return how many processors this process may use."""
    # macOS binds no process to processors.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def num_ranks_here() -> int:
    """Return how many ranks this machine has, as far as a launcher or their store tells."""
    told = os.environ.get("LOCAL_WORLD_SIZE")
    if told is not None:
        return max(1, int(told)) if told.isdecimal() else 1
    num_tasks = _num_slurm_tasks()
    return num_tasks if num_tasks > 1 else _num_ranks_by_store()


def num_ranks_of_job() -> int:
    """Return how many ranks the job has, as far as torch.distributed or a launcher tells."""
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return int(dist.get_world_size())
    told = os.environ.get("WORLD_SIZE", "")
    return max(1, int(told)) if told.isdecimal() else num_ranks_here()


def num_own_processors() -> int:
    """Return how many of the processors that this process may use are its share of the ranks'."""
    usable, num_ranks = num_processors(), num_ranks_here()
    of_node = os.environ.get("SLURM_CPUS_ON_NODE", "")
    if "LOCAL_WORLD_SIZE" not in os.environ and _num_slurm_tasks() > 1 and of_node.isdecimal():
        # Slurm binds tasks to a part of the job's processors, or binds none.
        return max(1, min(usable, int(of_node) // num_ranks))
    return max(1, usable // num_ranks)


def _num_slurm_tasks() -> int:
    """Return how many tasks like this one Slurm runs on this machine; 1 outside of `srun`."""
    of_nodes: list[int] = []
    # Source: srun(1), "4(x2),3" for nodes of 4, 4 and 3 tasks.
    for part in os.environ.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        of_nodes += [int(match[1])] * int(match[2] or 1) if match else []
    node = os.environ.get("SLURM_NODEID", "")
    known = node.isdecimal() and int(node) < len(of_nodes)
    return of_nodes[int(node)] if known else max(of_nodes, default=1)


def _num_ranks_by_store() -> int:
    """Return how many ranks there are if their store has an address for this machine alone."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return 1
    store = dist.distributed_c10d._get_default_store()
    while (inner := getattr(store, "underlying_store", None)) is not None:
        store = inner
    is_local = getattr(store, "host", "") in ("localhost", "127.0.0.1", "::1")
    return int(dist.get_world_size()) if is_local else 1


@functools.cache
def end_with_parent() -> None:
    """Have a thread end this process when its parent, as multiprocessing knows it, has ended."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(1)  # The main thread waits for work that never comes.

    threading.Thread(target=wait, name="torchparquet-parent", daemon=True).start()
