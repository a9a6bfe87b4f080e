"""The end of a process after that of the process which began it."""

from __future__ import annotations

import functools
import multiprocessing
import os
import threading


@functools.cache
def end_with_parent() -> None:
    """Have a thread end this process when its parent ends. Does nothing in a process without one.

    The parent is the one that multiprocessing knows, also if a fork server stands between.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(1)  # The main thread waits for work that never comes.

    threading.Thread(target=wait, name="torchparquet-parent", daemon=True).start()
