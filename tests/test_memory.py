"""The peak of a process's memory over a long pass stays within what max_memory promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

MIB = 2**20
PER_THREAD = 64 * MIB
STATUS = Path("/proc/self/status")

# Prints the rows read and, in bytes, how far the peak rose above the state before the pass.
# The kernel's VmHWM belongs to this program alone, whereas ru_maxrss survives the exec and would
# show the peak of the process that started this one.
PASS = """
import sys
from pathlib import Path

import torch
from torchparquet import ParquetDataset

def peak_bytes():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024

path, batch_size, max_memory, num_threads, keep, epochs, nulls = sys.argv[1:]
batch_size = None if batch_size == "None" else int(batch_size)
torch.ones(10).sum()

def dataset(max_memory):
    return ParquetDataset(
        path, batch_size=batch_size, max_memory=max_memory, num_threads=int(num_threads),
        rank=0, world_size=1, nulls=nulls, pin_memory=False,
    )

planned = dataset(int(max_memory))
before = peak_bytes()
rows = 0
for _ in range(int(epochs)):
    held = []
    for batch in planned:
        rows += len(next(iter(batch.values())))
        held = [*held, batch][-int(keep):]
print(rows, peak_bytes() - before)
"""

pytestmark = pytest.mark.skipif(
    not STATUS.exists() or "VmHWM" not in STATUS.read_text(),
    reason="this system does not tell the peak of a process's memory",
)


def peak_growth(path, batch_size, max_memory, num_threads, keep=1, epochs=1, nulls="mask"):
    arguments = [path, batch_size, max_memory, num_threads, keep, epochs, nulls]
    result = subprocess.run(
        [sys.executable, "-c", PASS, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    rows, growth = map(int, result.stdout.split())
    return rows, growth


@pytest.fixture(scope="module")
def small_file_of_much(tmp_path_factory):
    """4 million rows of 8 columns, 256 MiB in batches: runs of values, 10 row groups."""
    path = tmp_path_factory.mktemp("memory") / "runs.parquet"
    runs = pa.array(np.repeat(np.arange(4.0), 100_000))
    table = pa.table({f"c{i}": runs for i in range(8)})
    with pq.ParquetWriter(path, table.schema) as writer:
        for _ in range(10):
            writer.write_table(table)
    return str(path), 4_000_000


@pytest.fixture(scope="module")
def large_file(tmp_path_factory):
    """256 MiB of noise in one row group, with and without compression to undo."""
    folder = tmp_path_factory.mktemp("memory")
    rng = np.random.default_rng(0)
    names = [f"c{i}" for i in range(8)]
    table = pa.table({name: rng.random(2**22) for name in names})
    pq.write_table(
        table,
        folder / "noise.parquet",
        row_group_size=2**22,
        use_dictionary=False,
        compression={name: "lz4" if i % 2 else "none" for i, name in enumerate(names)},
    )
    return str(folder), 2**22


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("max_memory", [16 * MIB, 64 * MIB])
def test_small_files_that_hold_much(small_file_of_much, max_memory, num_threads):
    path, num_rows = small_file_of_much
    rows, growth = peak_growth(path, 8192, max_memory, num_threads)
    assert rows == num_rows
    assert growth < max_memory + num_threads * PER_THREAD


@pytest.mark.parametrize("nulls", ["mask", "nan"])
@pytest.mark.parametrize(("batch_size", "max_memory"), [(8192, 16 * MIB), (100_000, 32 * MIB)])
def test_one_large_row_group(large_file, batch_size, max_memory, nulls):
    path, num_rows = large_file
    rows, growth = peak_growth(path, batch_size, max_memory, 2, nulls=nulls)
    assert rows == num_rows
    assert growth < max_memory + 2 * PER_THREAD


def test_one_batch_for_each_row_group(small_file_of_much):
    path, num_rows = small_file_of_much
    rows, growth = peak_growth(path, None, 80 * MIB, 2)
    assert rows == num_rows
    # The consumer holds one batch beside those in flight.
    assert growth < (80 + 30) * MIB + 2 * PER_THREAD


def test_later_epochs_take_no_more(small_file_of_much):
    path, num_rows = small_file_of_much
    rows, growth = peak_growth(path, 8192, 32 * MIB, 2, epochs=4)
    assert rows == 4 * num_rows
    assert growth < 32 * MIB + 2 * PER_THREAD


def test_batches_that_are_kept_add_their_own_size_and_no_more(small_file_of_much):
    path, _ = small_file_of_much
    batch_bytes = 8192 * 8 * (8 + 1)
    _, growth = peak_growth(path, 8192, 16 * MIB, 1, keep=100)
    assert growth < 16 * MIB + 100 * batch_bytes + PER_THREAD
