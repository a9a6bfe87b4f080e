"""The end of a job that docs/start/torchrun.md advises leaves no thread of gloo."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys, traceback
import torch, torch.distributed as dist

def num_threads():
    return len(os.listdir("/proc/self/task"))

def interrupted_call():
    group = dist.distributed_c10d._get_default_group()
    raise KeyboardInterrupt

before = num_threads()
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(1))
assert num_threads() > before
try:
    try:
        interrupted_call()
    except BaseException as error:
        if sys.argv[1:] == ["clear"]:
            traceback.clear_frames(error.__traceback__)
        raise
    finally:
        dist.destroy_process_group()
except KeyboardInterrupt:
    print(num_threads() - before)
"""


@pytest.mark.parametrize("arguments", [["clear"], []])
def test_frames_that_hold_the_process_group(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    left = int(done.stdout)
    # Without it, threads stay: if this fails, torch joins them, and the advice can go.
    assert left == 0 if arguments else left > 0
