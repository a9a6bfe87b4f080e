"""The waits for single batches: quantiles of them, against numpy's over the same waits."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from torchparquet import ParquetDataset, Waits, mix
from torchparquet._impl.reading.waits import WaitCounter

QUANTILES = (0.0, 0.01, 0.5, 0.95, 0.99, 1.0)


@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0])
def test_quantiles_are_exact_to_a_fifth(spread: float) -> None:
    seconds = np.random.default_rng(1).lognormal(-7, spread, 10_000).clip(2e-6, 3000)
    counter = WaitCounter()
    for one in seconds.tolist():
        counter.count(one, None)
    waits = counter.waits(len(seconds))
    assert sum(waits.counts) == len(seconds)
    assert waits.max_seconds == seconds.max()
    for q in QUANTILES[1:]:
        expected = np.quantile(seconds, q, method="inverted_cdf")
        assert waits.quantile(q) == pytest.approx(expected, rel=0.19)
    assert (waits.p50_seconds, waits.p95_seconds) == (waits.quantile(0.5), waits.quantile(0.95))
    assert waits.p99_seconds == waits.quantile(0.99)


def test_batches_at_hand_waited_for_nothing() -> None:
    counter = WaitCounter()
    for seconds in (0.5, 2.0):
        counter.count(seconds, None)
    waits = counter.waits(100)
    assert sum(waits.counts) == 100
    assert waits.quantile(0.98) == 0
    assert waits.p99_seconds == pytest.approx(0.5, rel=0.19)
    assert waits.quantile(1) == pytest.approx(2, rel=0.19)
    assert [Waits().quantile(q) for q in QUANTILES] == [0] * len(QUANTILES)
    with pytest.raises(ValueError, match=r"from 0 to 1, got 95"):
        waits.quantile(95)


def test_a_difference_has_the_later_waits() -> None:
    counter = WaitCounter()
    counter.count(3.0, None)
    before = counter.waits(1)
    counter.count(0.25, None)
    between = counter.waits(2).added(before, -1)
    assert sum(between.counts) == 1
    assert 0.25 <= between.max_seconds <= 0.25 * 2**0.5  # as exact as its bucket
    counter.count(9.0, None)
    assert counter.waits(3).added(before, -1).max_seconds == 9
    assert before.added(before, -1) == Waits()
    assert before.added(between).max_seconds == 3


class Gated(LocalFileSystem):
    """A store whose file "b" answers once somebody opens the gate."""

    protocol = "gated"
    gate, asked = threading.Event(), threading.Event()

    def cat_file(self, path: str, **options: Any) -> Any:
        if path.endswith("b.parquet"):
            self.asked.set()
            self.gate.wait(60)
        return super().cat_file(path, **options)


def test_the_longest_wait_is_named(tmp_path: Path) -> None:
    for name in "abc":
        pq.write_table(pa.table({"x": np.arange(400)}), tmp_path / f"{name}.parquet")
    filesystem = Gated(skip_instance_cache=True)
    options: Any = {"batch_size": 100, "num_threads": 1, "filesystem": filesystem}
    filesystem.gate.set()
    dataset = ParquetDataset(str(tmp_path), **options)
    filesystem.gate.clear()
    batches = iter(dataset)
    for _ in range(4):
        next(batches)
    looks = [dataset.metrics(all_ranks=True).slowest for _ in range(2)]
    assert [look is not None and look.origin[:6] for look in looks] == ["batch ", ""]
    taken: list[Any] = []
    loop = threading.Thread(target=lambda: taken.extend(batches))
    loop.start()
    assert filesystem.asked.wait(60)
    # Another thread sees the wait while it lasts.
    while dataset.metrics().wait_seconds < 0.2:
        pass
    filesystem.gate.set()
    loop.join(60)
    metrics = dataset.metrics(all_ranks=True)
    slowest = metrics.slowest
    assert slowest is not None
    assert (metrics.batches, sum(metrics.waits.counts), len(taken)) == (12, 12, 8)
    assert 0.1 < slowest.max_wait_seconds == metrics.waits.max_seconds < slowest.next_seconds
    assert slowest.origin.startswith("batch 4 of epoch 0, rank 0 of 1: rows 0 to 99 of row group 0")
    assert slowest.origin.endswith("b.parquet'")
    assert slowest.origin in metrics.report()
    assert "b.parquet" not in dataset.metrics().report()
    again = dataset.metrics(all_ranks=True).slowest
    assert again is not None
    assert (again.next_seconds, again.origin) == (0, "")  # nothing was read since


def test_a_mix_names_the_file_too(tmp_path: Path) -> None:
    for name in ("one", "two"):
        pq.write_table(pa.table({"x": np.arange(400)}), tmp_path / f"{name}.parquet")
    sources = [
        ParquetDataset(tmp_path / f"{name}.parquet", batch_size=50) for name in ("one", "two")
    ]
    mixed = mix(sources)
    num_batches = sum(1 for _ in mixed)
    metrics = mixed.metrics(all_ranks=True)
    assert sum(metrics.waits.counts) == metrics.batches == num_batches
    assert metrics.slowest is not None
    assert any(name in metrics.slowest.origin for name in ("one.parquet", "two.parquet"))
    numbers = metrics.as_dict()
    assert numbers["wait_max_seconds"] == metrics.slowest.max_wait_seconds
    assert numbers["slowest_rank"] == 0
