"""The end of a job as docs/start/torchrun.md advises it leaves no thread of gloo."""

from __future__ import annotations

from subprocess import CompletedProcess

import pytest

from tests.fixtures.forked_programs import ran
from tests.fixtures.tree import ROOT, completed

JOB = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
FAILING = """
import os, sys
sys.path.append(sys.argv[3])
from contextlib import contextmanager
import torch, torch.distributed as dist
from job import ending_process_group

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
    try:
        yield
    finally:
        dist.destroy_process_group()

group = {"destroyed": destroyed_group, "ended": ending_process_group}[sys.argv[1]]
before = num_threads()
dist.init_process_group("gloo")
try:
    with group():
        dist.all_reduce(torch.ones(1))
        assert num_threads() > before
        FAILURES[sys.argv[2]]()
except (KeyboardInterrupt, OSError):
    print(num_threads() - before)
"""


TRAINING = """
import os, sys
import torch, torch.distributed as dist
from torch import nn
if sys.argv[1] == "torchparquet":
    import torchparquet

def num_threads():
    return len(os.listdir("/proc/self/task"))

def train():
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
    model(torch.ones(3, 2)).sum().backward()

before = num_threads()
dist.init_process_group("gloo")
train()
assert num_threads() > before
dist.destroy_process_group()
print(num_threads() - before)
"""


def threads_left(done: CompletedProcess[str]) -> int:
    """Return how many threads were left at the end of a program."""
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize(
    "raised_in",
    ["call", *(pytest.param(name, marks=pytest.mark.long) for name in ("cleanup", "cause"))],
)
@pytest.mark.parametrize("group", ["ended", "destroyed"])
def test_frames_that_hold_the_process_group(group: str, raised_in: str) -> None:
    left = threads_left(ran(FAILING, group, raised_in, ROOT / "examples", **JOB))
    # If none stays of a group that is only destroyed, torch joins them, and the advice can go.
    assert left == 0 if group == "ended" else left > 0


@pytest.mark.parametrize(
    "imported", ["torchparquet", pytest.param("nothing", marks=pytest.mark.long)]
)
def test_defaults_of_torch_that_hold_the_process_group(imported: str) -> None:
    left = threads_left(completed("-c", TRAINING, imported, **JOB, OMP_NUM_THREADS="1"))
    # If none stays without torchparquet, torch holds no group: that import can go from start.py.
    assert left == 0 if imported == "torchparquet" else left > 0
