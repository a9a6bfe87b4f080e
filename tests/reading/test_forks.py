"""Forked workers of a process whose ranks talk to each other."""

from __future__ import annotations

import sys
import textwrap

import pytest

from tests.fixtures.tree import completed

# A thread named as gloo's, that waits for the interpreter as those do after a collective call,
# has had it before a child is forked. Python alone would let it wait for 100 s.
FORK = """
    import ctypes, os, sys, threading
    import pyarrow as pa
    import torch.distributed as dist
    import torchparquet

    PR_SET_NAME = 15
    sys.setswitchinterval(100)
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    dataset = torchparquet.ParquetDataset(pa.table({"x": [1]}), batch_size=1)
    for _ in range(20):
        call_has_ended = threading.Lock()
        call_has_ended.acquire()
        freed = []
        def free():
            # PyDLL keeps the interpreter: the thread has its name before the fork.
            ctypes.PyDLL(None).prctl(PR_SET_NAME, b"pt_gloo_runloop", 0, 0, 0)
            with call_has_ended:
                freed.append(True)
        thread = threading.Thread(target=free)
        thread.start()
        call_has_ended.release()
        child = os.fork()
        if child == 0:
            os._exit(len(freed))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        thread.join()
    print("done")
    dist.destroy_process_group()
"""


@pytest.mark.long
@pytest.mark.skipif(
    sys.version_info >= (3, 11, 10), reason="this Python's forks need not wait for other threads"
)
def test_threads_after_a_collective_call_finish_before_a_fork() -> None:
    done = completed("-c", textwrap.dedent(FORK), OMP_NUM_THREADS="1")
    assert done.stdout == "done\n", done.stderr
