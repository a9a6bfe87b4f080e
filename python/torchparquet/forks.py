"""Forks of a process whose ranks talk to each other.

A thread of gloo frees what a collective call was given after that call has returned, and
makes itself known to the interpreter for that. CPython before 3.11.10 copies the lock of that
moment into a child that is forked then, which waits for it for ever, before any code of its own:
python/cpython#112275. A DataLoader forks its workers exactly there, as an epoch begins behind the
last step of another.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import partial

_PAUSE_MICROSECONDS = 1000


def let_threads_finish_before_forks() -> None:
    """Leave the interpreter to threads that wait for it before each fork, where Python needs that.

    They need it for microseconds. The C function is called as it is: what a signal's handler
    raises in a function of Python's, forks would ignore.
    """
    if sys.implementation.name == "cpython" and sys.version_info < (3, 11, 10):
        os.register_at_fork(before=partial(ctypes.CDLL(None).usleep, _PAUSE_MICROSECONDS))
