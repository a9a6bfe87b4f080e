"""Forks of a process whose ranks talk to each other.

A thread of gloo frees what a collective call was given after that call has returned, and
makes itself known to the interpreter for that. CPython before 3.11.10 copies the lock of that
moment into a child that is forked then, which waits for it for ever, before any code of its own:
python/cpython#112275. A DataLoader forks its workers exactly there, as an epoch begins behind the
last step of another.
"""

from __future__ import annotations

import os
import sys

from torchparquet.native import await_gloo_threads


def let_threads_finish_before_forks() -> None:
    """Leave the interpreter to gloo's threads before each fork, where Python needs that.

    They need it for microseconds. The extension's function is called as it is: what a signal's
    handler raises in a function of Python's, forks would ignore.
    """
    if sys.implementation.name == "cpython" and sys.version_info < (3, 11, 10):
        os.register_at_fork(before=await_gloo_threads)
