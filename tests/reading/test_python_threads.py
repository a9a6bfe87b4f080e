"""Threads of Python that read at the same time, with the GIL or without it."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import TypeVar

import pytest

from tests.fixtures.shape_files import COLUMNS, digest_of, shape_files
from torchparquet import ParquetDataset

NUM_THREADS = 4
T = TypeVar("T")


def at_once(work: Callable[[], T]) -> list[T]:
    """Return what threads return that begin together."""
    barrier = Barrier(NUM_THREADS)

    def run(_: int) -> T:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        return list(pool.map(run, range(NUM_THREADS)))


def read(files: str) -> str:
    dataset = ParquetDataset(files, columns=COLUMNS, batch_size=250, shuffle=True, num_threads=2)
    return digest_of(dataset)


def test_each_thread_reads_all(tmp_path: Path) -> None:
    files = shape_files(tmp_path, 4000, 2, 3)
    assert set(at_once(lambda: read(files))) == {read(files)}


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="has the GIL")
def test_the_gil_stays_off() -> None:
    assert not getattr(sys, "_is_gil_enabled")()  # noqa: B009  # older Pythons lack it
