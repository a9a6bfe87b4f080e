"""Iterators of one data set that overlap, over more files than stay open."""

from __future__ import annotations

import gc
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from torchparquet import ParquetDataset

NUM_FILES, FILE_ROWS, BATCH_ROWS = 150, 40, 16  # twice as many files as a data set keeps open
NUM_ROWS = NUM_FILES * FILE_ROWS


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for number in range(NUM_FILES):
        first = number * FILE_ROWS
        rows = np.arange(first, first + FILE_ROWS)
        table = pa.table({"x": rows, "s": [f"row {row}" * (row % 3) for row in rows]})
        pq.write_table(table, folder / f"{number:03}.parquet", row_group_size=10)
    return folder


def make(data: Path, **options: Any) -> ParquetDataset:
    return ParquetDataset(data, batch_size=BATCH_ROWS, **options)


def rows_of(batch: Any) -> list[int]:
    """The rows of a batch; the two columns must tell the same."""
    rows: list[int] = batch["x"].tolist()
    assert batch["s"].to_str() == [f"row {row}" * (row % 3) for row in rows]
    return rows


def num_open(data: Path) -> int:
    gc.collect()
    return sum(file.path.startswith(str(data)) for file in psutil.Process().open_files())


@pytest.mark.parametrize("num_threads", [1, 4])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.mostly_long(every=16)
def test_iterators_end_while_others_go_on(
    data: Path, num_threads: int, shuffle: bool, seed: int
) -> None:
    """Each reads the epoch that it began, whatever others do: advance, end, or are dropped."""
    dice = random.Random(seed)
    options = {"num_threads": num_threads, "shuffle": shuffle, "max_memory": "64KiB"}
    dataset, fresh = make(data, **options), make(data, **options)
    epochs = [list(itertools.chain.from_iterable(map(rows_of, fresh))) for _ in range(12)]
    assert all(sorted(epoch) == list(range(NUM_ROWS)) for epoch in epochs)
    live: list[tuple[Iterator[Any], list[int], list[int]]] = []  # with what it has read and will
    num_begun = 0
    while num_begun < len(epochs) or live:
        if num_begun < len(epochs) and len(live) < 4:
            live.append((iter(dataset), [], epochs[num_begun]))
            live[-1][1].extend(rows_of(next(live[-1][0])))
            assert live[-1][1] == epochs[num_begun][:BATCH_ROWS]
            num_begun += 1
        index = dice.randrange(len(live))
        iterator, read, epoch = live[index]
        for batch in itertools.islice(iterator, dice.randrange(200)):
            read.extend(rows_of(batch))
        assert read == epoch[: len(read)]
        if len(read) == NUM_ROWS or dice.random() < 0.2:
            del live[index], iterator
    dataset.close()
    assert num_open(data) == 0


@pytest.mark.parametrize("end", ["close", "drop", "exhaust"])
def test_an_end_leaves_files_in_use_open(tmp_path: Path, end: str) -> None:
    """Rows of a removed file that an iterator has read ahead are still delivered."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.arange(200_000)}), path, row_group_size=200_000)
    dataset = ParquetDataset(path, batch_size=100, num_threads=2, max_memory="64KiB")
    slow = iter(dataset)
    begun = next(slow)["x"].tolist()
    other = iter(dataset)
    next(other)
    if end == "close":
        other.close()
    elif end == "exhaust":
        assert sum(1 for _ in other) == 1999
    del other
    path.unlink()
    assert begun + [row for batch in slow for row in batch["x"].tolist()] == list(range(200_000))
