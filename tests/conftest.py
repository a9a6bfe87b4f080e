"""Settings for every test."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import signal
import subprocess
from collections import Counter

import hypothesis
import pytest
import torch

# A shell ignores SIGINT in what it starts in the background, and children inherit that: tests that
# interrupt their children would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A forked worker must not finalize the garbage of other tests: loaders would message the workers of
# the parent, and databases would wait for threads that do not exist.
os.register_at_fork(before=gc.freeze, after_in_parent=gc.unfreeze)

# The server that forks processes of the tests imports once what they need.
multiprocessing.set_forkserver_preload(["torchparquet", "pyarrow.parquet", "torch.utils.data"])

# Workers of the suite have a core each: threads of torch would wait for those of other workers.
torch.set_num_threads(1)

# How long an example takes says nothing on a machine that does other work too.
hypothesis.settings.register_profile("suite", deadline=None)
hypothesis.settings.load_profile("suite")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark cases of `mostly_long` as long, and give long ones and soaks more time."""
    seen: Counter[str] = Counter()
    for item in items:
        mostly_long = item.get_closest_marker("mostly_long")
        if mostly_long is not None:
            test = item.nodeid.partition("[")[0]
            if seen[test] % mostly_long.kwargs["every"] != 0:
                item.add_marker(pytest.mark.long)
            seen[test] += 1
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.timeout(1200))
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.timeout(3 * 3600))


@pytest.fixture
def strace() -> str:
    """The path of strace, where it may trace here."""
    path = shutil.which("strace")
    if path is None:
        pytest.skip("strace is not installed")
    trial = subprocess.run([path, "-f", "--seccomp-bpf", "true"], capture_output=True, check=False)
    if trial.returncode != 0:
        pytest.skip(f"strace may not trace here: {trial.stderr!r}")
    return path
