"""Protects forks of a process in which gloo runs.

After a collective call has returned, a thread of gloo frees its arguments. For that it registers
with the interpreter under a lock. Before 3.11.10, CPython copies a held lock into a forked child,
and the child waits for it for ever, before any code of its own (python/cpython#112275). A
DataLoader forks its workers at exactly that moment, when an epoch begins after the last step of
another.
"""

from __future__ import annotations

import os
import sys

from torchparquet._impl.native import await_gloo_threads


def let_threads_finish_before_forks() -> None:
    """Let gloo's threads finish before each fork, if this Python needs that.

    They take microseconds. The fork hook is the extension's function itself: forks ignore an
    exception that a signal handler raises in a Python function.
    """
    if sys.implementation.name == "cpython" and sys.version_info < (3, 11, 10):
        os.register_at_fork(before=await_gloo_threads)
