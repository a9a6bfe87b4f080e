"""Strings of very different lengths in little memory: threads wait, but never for good."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from torchparquet import ParquetDataset

BATCH_ROWS = 64


def skewed(draws: random.Random, num_batches: int) -> list[str]:
    """Strings of which every third batch is of long ones."""
    rows = []
    for _ in range(num_batches):
        least, most = (2000, 6000) if draws.random() < 0.3 else (0, 20)
        rows += ["x" * draws.randint(least, most) for _ in range(BATCH_ROWS)]
    return rows


@pytest.mark.timeout(90)
@pytest.mark.parametrize("num_threads", [2, 3])
@pytest.mark.long
def test_every_string_comes_however_the_threads_wait(tmp_path: Path, num_threads: int) -> None:
    draws = random.Random(num_threads)
    path = tmp_path / "strings.parquet"
    for _ in range(10):
        batches_per_group = draws.choice([2, 4, 7])
        rows = skewed(draws, 8 * batches_per_group)
        lengths = [len(word) for word in rows]
        table = pa.table({"s": rows})
        pq.write_table(
            table, path, row_group_size=BATCH_ROWS * batches_per_group, use_dictionary=False
        )
        for max_memory in ("512KiB", "1MiB", "2MiB"):
            dataset = ParquetDataset(
                path, batch_size=BATCH_ROWS, num_threads=num_threads, max_memory=max_memory
            )
            for _ in range(15):
                found: list[int] = []
                for batch in dataset:
                    found += batch["s"].offsets.diff().tolist()
                assert found == lengths
