"""Real jobs of `torchrun` with 2 to 8 gloo processes; what each checks stands in its program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

HERE = Path(__file__).parent
ROW_GROUPS = [300, 1, 250, 0, 90, 70, 333, 20, 410, 64, 128]
JOB_SECONDS = 150


def write(root: Path, row_groups: list[int]) -> str:
    """Write the row groups to two files; `id` is the global row number."""
    first = 0
    for number, groups in enumerate((row_groups[:6], row_groups[6:])):
        with pq.ParquetWriter(root / f"{number}.parquet", pa.schema([("id", pa.int64())])) as file:
            for rows in groups:
                file.write_table(pa.table({"id": np.arange(first, first + rows)}))
                first += rows
    return str(root)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    return write(tmp_path_factory.mktemp("torchrun"), ROW_GROUPS)


@pytest.fixture(scope="module")
def other_data(tmp_path_factory) -> str:
    return write(tmp_path_factory.mktemp("torchrun"), [*ROW_GROUPS[:-1], 129])


def torchrun(program: str, num_ranks: int, *arguments: str) -> None:
    """Run a program on that many ranks and expect every one of them to succeed."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    command += [str(num_ranks), str(HERE / program), *arguments]
    job = subprocess.Popen(
        command,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = job.communicate(timeout=JOB_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        output, _ = job.communicate()
        pytest.fail(f"the job hangs: {output[-4000:]}")
    assert job.returncode == 0, output[-6000:]


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
def test_shares(data, num_ranks):
    torchrun("torchrun_shares.py", num_ranks, data)


def test_mesh(data):
    torchrun("torchrun_mesh.py", 4, data)


def test_faults(data, other_data):
    torchrun("torchrun_faults.py", 2, data, other_data)


def test_agreement(data, other_data):
    torchrun("torchrun_agreement.py", 3, data, other_data)


def test_mesh_of_three_dimensions(data):
    torchrun("torchrun_mesh3.py", 8, data)


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_dynamic(data, num_ranks):
    torchrun("torchrun_dynamic.py", num_ranks, data)
