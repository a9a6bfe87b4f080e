"""One stream, bit for bit, whatever the threads, the memory, the loader and the machine's load."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from torch.utils.data import DataLoader

from tests.fixtures.shape_files import COLUMNS, digest_of, shape_files
from torchparquet import ParquetDataset

NUM_ROWS = 6000
# Explicit windows, as those of the default are what max_memory holds. The least memory of each
# lets a reader be a few batches, or a window, ahead; the most takes the whole epoch.
ORDERS: dict[str, Any] = {
    "file order": {"memory": ("32KiB", "80KiB", "1GiB")},
    "row groups": {"shuffle": True, "shuffle_window": 0, "memory": ("32KiB", "80KiB", "1GiB")},
    "windows": {"shuffle": True, "shuffle_window": 3, "memory": ("400KiB", "700KiB", "1GiB")},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> str:
    return shape_files(tmp_path_factory.mktemp("determinism") / "data", NUM_ROWS, 4, 8)


def make(folder: str, order: str, **options: Any) -> ParquetDataset:
    own: dict[str, Any] = {
        "batch_size": 50,
        "columns": COLUMNS,
        "row_ids": True,
        "seed": 8,
    } | ORDERS[order]
    del own["memory"]
    return ParquetDataset(folder, rank=0, world_size=1, **(own | options))


@pytest.mark.mostly_long(every=2)
@pytest.mark.parametrize("order", ORDERS)
def test_threads_memory_and_loaders_change_no_bit(folder: str, order: str) -> None:
    streams = {}
    for num_threads in (1, 2, 4):
        for memory in ORDERS[order]["memory"]:
            dataset = make(folder, order, num_threads=num_threads, max_memory=memory)
            streams[num_threads, memory, "bare"] = digest_of(dataset)
            dataset.set_epoch(0)
            loader = DataLoader(dataset, batch_size=None, num_workers=0)
            streams[num_threads, memory, "loader"] = digest_of(loader)
    assert len(set(streams.values())) == 1, streams
    # And the digest tells another order from this one.
    another = digest_of(make(folder, order, seed=9))
    assert (another in streams.values()) == (order == "file order")


@pytest.mark.parametrize("order", ORDERS)
def test_a_busy_machine_changes_no_bit(folder: str, order: str) -> None:
    """Three times while two processes leave the reader's threads little of the processors."""
    calm = digest_of(make(folder, order, num_threads=1))
    busy = []
    try:
        for _ in range(2):
            busy.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
        for memory in ORDERS[order]["memory"]:
            assert digest_of(make(folder, order, num_threads=4, max_memory=memory)) == calm
        assert all(process.poll() is None for process in busy)
    finally:
        for process in busy:
            process.kill()
            process.wait()


def read(files: str) -> str:
    dataset = ParquetDataset(files, columns=COLUMNS, batch_size=250, shuffle=True, num_threads=2)
    return digest_of(dataset)


def test_each_thread_of_python_reads_all(folder: str) -> None:
    """Threads that begin together, with the GIL or without it."""
    barrier = Barrier(4)

    def run(_: int) -> str:
        barrier.wait()
        return read(folder)

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(run, range(4))) == {read(folder)}


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="has the GIL")
def test_the_gil_stays_off() -> None:
    assert not getattr(sys, "_is_gil_enabled")()  # noqa: B009  # older Pythons lack it
