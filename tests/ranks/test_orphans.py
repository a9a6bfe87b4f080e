"""DataLoader workers whose parent is killed end too."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch.utils.data import DataLoader

from tests.fixtures.forked_programs import ForkedProgram
from torchparquet import ParquetDataset, mix

SECONDS = 60
PROGRAM = "import sys, tests.ranks.test_orphans as job; job.read_until_killed(*sys.argv[1:])"


def begin_at_once(worker: int) -> None:
    os.write(1, f"{os.getpid()}\n".encode())  # whole, beside the other worker's


def begin_after_the_parent(worker: int) -> None:
    begin_at_once(worker)
    assert ends(os.pidfd_open(int(os.environ["PARENT"])))


def read_until_killed(path: str, kind: str, method: str, moment: str) -> None:
    """Read in workers that begin after the parent's end, or are under way by then."""
    os.environ["PARENT"] = str(os.getpid())
    dataset: Any = ParquetDataset(path, batch_size=10)
    if kind == "mix":
        dataset = mix([dataset, ParquetDataset(path, batch_size=10)], weights=[1, 1])
    if kind == "rows":
        dataset = dataset.unbatched()
    begin = {"before": begin_after_the_parent, "in iteration": begin_at_once}[moment]
    options: Any = {"worker_init_fn": begin, "multiprocessing_context": method}
    iterator = iter(DataLoader(dataset, None, num_workers=2, **options))
    for _ in range(4):
        next(iterator)
    print("reads", flush=True)
    signal.pause()


@pytest.fixture(scope="module")
def path(tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("orphans") / "rows.parquet"
    pq.write_table(pa.table({"x": range(1000)}), path, row_group_size=100)
    return path


def ends(pidfd: int) -> bool:
    end = select.poll()
    end.register(pidfd, select.POLLIN)
    return bool(end.poll(1000 * SECONDS))


def errors_of_a_killed_job(path: Path, kind: str, method: str, moment: str) -> str:
    """Kill a job "before" its workers begin or "in iteration"; return what was said on stderr."""
    parent = ForkedProgram(PROGRAM, path, kind, method, moment)
    workers = [os.pidfd_open(int(parent.stdout.readline())) for _ in range(2)]
    if moment == "in iteration":
        assert parent.stdout.readline() == "reads\n"
    try:
        parent.kill()
        assert all(map(ends, workers))
    finally:
        for worker in workers:
            if not ends(worker):
                signal.pidfd_send_signal(worker, signal.SIGKILL)
            os.close(worker)
    return parent.communicate()[1]


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("batches", "fork"),
        ("mix", "fork"),
        ("rows", "fork"),
        pytest.param("batches", "spawn", marks=pytest.mark.long),
        pytest.param("batches", "forkserver", marks=pytest.mark.long),
    ],
)
def test_a_worker_that_begins_after_its_parents_end(path: Path, kind: str, method: str) -> None:
    errors = errors_of_a_killed_job(path, kind, method, "before")
    assert errors.count("its parent, process") == 2


@pytest.mark.parametrize(
    "method",
    ["fork", *(pytest.param(name, marks=pytest.mark.long) for name in ("spawn", "forkserver"))],
)
def test_a_worker_ends_after_its_parent(path: Path, method: str) -> None:
    errors_of_a_killed_job(path, "batches", method, "in iteration")
