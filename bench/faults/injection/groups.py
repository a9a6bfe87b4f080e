"""Fault: a control group gives the process little memory, pages of files included."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from faults.injection import shim
from faults.injection.children import Case, in_child
from faults.injection.judging import closed_at_end, judged
from faults.injection.reading import DifferenceError
from torchparquet import ParquetDataset

_GROUPS = Path("/sys/fs/cgroup/memory")
_NUM_ROWS, _ROW_GROUP = 4_000_000, 200_000
_LIMITS_MIB = (16, 20, 24, 32)
_MIB = 1 << 20


def _write(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir()
    table = pa.table({"id": pa.array(range(_NUM_ROWS), pa.int64())})
    pq.write_table(table, path, row_group_size=_ROW_GROUP, compression="none", use_dictionary=False)


def _read(path: Path, num_threads: int) -> None:
    dataset = ParquetDataset(
        path,
        batch_size=1000,
        row_ids=True,
        rank=0,
        world_size=1,
        max_memory="4MiB",
        num_threads=num_threads,
    )
    num_rows = 0
    with closed_at_end(dataset):
        for batch in dataset:
            if not batch["id"].equal(batch["row.id"]):
                raise DifferenceError("a row has another id")
            num_rows += len(batch["id"])
    if num_rows != _NUM_ROWS:
        raise DifferenceError(f"{num_rows} rows of {_NUM_ROWS}")


def _limited(folder: Path, path: Path, limit_mib: int, num_threads: int) -> str:
    group = _GROUPS / f"torchparquet-faults-{os.getpid()}"
    group.mkdir()
    try:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        (group / "memory.limit_in_bytes").write_text(str(limit_mib * _MIB))
        (group / "tasks").write_text(str(os.getpid()))
        label = judged(lambda: _read(path, num_threads), folder, shim.COUNT_ONLY)
        hits = int((group / "memory.failcnt").read_text())
    finally:
        (_GROUPS / "tasks").write_text(str(os.getpid()))
        group.rmdir()
    return f"{label}|{hits}"


def _is_permitted() -> bool:
    trial = _GROUPS / f"torchparquet-faults-{os.getpid()}"
    with suppress(OSError):
        trial.mkdir()
        is_there = (trial / "memory.limit_in_bytes").exists()
        trial.rmdir()
        return is_there
    return False


def cases(folder: Path, seed: int, share: float) -> Iterator[Case]:
    """Yield all cases, which are few."""
    if not _is_permitted():
        print("control groups are left out: none can be made here", file=sys.stderr)
        return
    path = folder / "large" / "large.parquet"
    in_child(partial(_write, path))
    for limit_mib in _LIMITS_MIB:
        for num_threads in (1, 2):
            run = partial(_limited, folder, path, limit_mib, num_threads)
            shown = f"{limit_mib} MiB, {num_threads} threads"
            yield Case("memory of a control group", shown, run, counts_itself=True)
    path.unlink()
