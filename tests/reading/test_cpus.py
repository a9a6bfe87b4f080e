"""Decode threads run on the processors that `cpus` names, and the rows stay the same."""

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from torchparquet import ParquetDataset

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="binds no thread to processors")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file of 400 row groups."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.arange(40_000)}), path, row_group_size=100)
    return path


def _allowed() -> dict[str, str]:
    """Return on which processors each thread of this process may run."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            lines = (task / "status").read_text().splitlines()
            fields = dict(line.split(":", 1) for line in lines)
            found[task.name] = fields["Cpus_allowed_list"].strip()
    return found


def test_threads_run_on_these_processors_alone(path: Path) -> None:
    cpu = max(os.sched_getaffinity(0))
    before = _allowed()
    dataset = ParquetDataset(
        path, batch_size=100, num_threads=3, cpus=[cpu], max_memory="100KB", check_ranks=False
    )
    rows = []
    bound = set()  # a thread binds itself as it begins, maybe after the first batches
    for batch in dataset:
        rows.append(batch["x"].numpy().copy())
        bound |= {task for task, cpus in _allowed().items() if cpus == str(cpu)}
    assert len(bound - set(before)) == 3
    after = _allowed()
    assert all(after.get(task, cpus) == cpus for task, cpus in before.items())
    np.testing.assert_array_equal(np.concatenate(rows), np.arange(40_000))


def test_as_many_threads_as_processors(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each rank has processors of its own.
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    cpus = sorted(os.sched_getaffinity(0))
    dataset = ParquetDataset(path, batch_size=100, cpus=[*cpus, *cpus], check_ranks=False)
    for _ in dataset:
        pass
    assert dataset.metrics().ring.num_threads == min(len(cpus), 16)


@pytest.mark.parametrize(
    ("cpus", "error", "message"),
    [
        ([], ValueError, "at least one processor"),
        ([60_000], ValueError, r"may not use: \[60000\]; it may use"),
        ([-1], ValueError, "must be >= 0"),
        ([True], TypeError, "must be an int"),
        ("0", TypeError, "must be an int"),
        (0, TypeError, "numbers of processors"),
    ],
)
def test_numbers_are_checked(
    path: Path, cpus: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ParquetDataset(path, batch_size=100, cpus=cpus)  # type: ignore[arg-type]


def test_processors_taken_away_later_are_told(path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    dataset = ParquetDataset(path, batch_size=100, cpus=[cpu], check_ranks=False)
    # As if it had been made on a larger machine.
    options: Any = dataset._session.streams
    object.__setattr__(options.options, "cpus", (60_000,))
    with pytest.raises(ValueError, match="processors that cpus= names"):
        next(iter(dataset))
