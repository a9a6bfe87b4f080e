"""DataLoader workers whose parent has ended."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.context import ForkProcess, ForkServerProcess

from torch.utils.data import get_worker_info

from torchparquet._impl.parent_process import end_with_parent


def end_orphaned_worker() -> None:
    """End this process if it is a DataLoader worker whose parent has ended, or when it ends.

    torch's workers watch their parent from the moment on in which they have their iterator. They
    take the process for it that is their parent then, so that one which comes too late watches
    another and waits for ever. Iterables call this last, before torch looks.
    """
    worker, parent = get_worker_info(), multiprocessing.parent_process()
    if worker is None or parent is None:
        return
    # Forked later, other workers hold the pipe open whose end would tell.
    is_forked = isinstance(multiprocessing.current_process(), ForkProcess)
    if (is_forked and os.getppid() != parent.pid) or not parent.is_alive():
        raise SystemExit(
            f"DataLoader worker {worker.id} ends: its parent, process {parent.pid}, ended before "
            "it began"
        )
    if isinstance(multiprocessing.current_process(), ForkServerProcess):
        # It is a child of the fork server, which torch watches, and which lives as long as its
        # processes do: none would ever end after a parent that was killed.
        end_with_parent()
