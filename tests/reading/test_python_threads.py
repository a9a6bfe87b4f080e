"""Threads of Python that read at the same time, with the GIL or without it."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Barrier
from typing import TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.fixtures.shape_files import COLUMNS, digest_of, shape_files
from torchparquet import ParquetDataset
from torchparquet._impl.native import EPOCH_LEDGER_WORDS, begin_iteration, num_iterations

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


def test_threads_begin_epochs_of_their_own() -> None:
    """Also under one key, which stands for the workers of one iteration."""
    for _ in range(50):
        words = np.zeros(EPOCH_LEDGER_WORDS, np.int64)
        begun = at_once(partial(begin_some, words))
        assert sorted(chain.from_iterable(begun)) == list(range(20 * NUM_THREADS))
        assert num_iterations(words) == 20 * NUM_THREADS


def begin_some(words: NDArray[np.int64]) -> list[int]:
    return [begin_iteration(words, 17, 0) for _ in range(20)]


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="has the GIL")
def test_the_gil_stays_off() -> None:
    assert not getattr(sys, "_is_gil_enabled")()  # noqa: B009  # older Pythons lack it
