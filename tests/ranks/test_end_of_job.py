"""The end of a job that docs/start/torchrun.md advises leaves no thread of gloo."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.fixtures.tree import ROOT

PROGRAM = """
import os, sys
from contextlib import contextmanager
import torch, torch.distributed as dist
from job import process_group

def num_threads():
    return len(os.listdir("/proc/self/task"))

def interrupted_call():
    group = dist.distributed_c10d._get_default_group()
    raise KeyboardInterrupt

def cleanup_that_fails():
    try:
        interrupted_call()
    finally:
        raise OSError

def translated():
    try:
        interrupted_call()
    except KeyboardInterrupt as error:
        interruption = error
    raise OSError from interruption

FAILURES = {"call": interrupted_call, "cleanup": cleanup_that_fails, "cause": translated}

@contextmanager
def destroyed_group():
    dist.init_process_group("gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()

job = {"destroyed": destroyed_group, "ended": process_group}[sys.argv[1]]
before = num_threads()
try:
    with job():
        dist.all_reduce(torch.ones(1))
        assert num_threads() > before
        FAILURES[sys.argv[2]]()
except (KeyboardInterrupt, OSError):
    print(num_threads() - before)
"""


@pytest.mark.parametrize("raised_in", ["call", "cleanup", "cause"])
@pytest.mark.parametrize("group", ["ended", "destroyed"])
def test_frames_that_hold_the_process_group(group: str, raised_in: str) -> None:
    job = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, group, raised_in],
        env=os.environ | job | {"PYTHONPATH": str(ROOT / "examples"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    left = int(done.stdout)
    # If none stays of a group that is only destroyed, torch joins them, and the advice can go.
    assert left == 0 if group == "ended" else left > 0
