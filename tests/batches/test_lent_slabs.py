"""Batches in memory that torch allocates, which is how page-locked batches are made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from torchparquet import ParquetDataset
from torchparquet._impl.native import ReaderMemory
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.reading.batch_stream import BatchStream
from torchparquet._impl.reading.stream_parts import StreamParts

NUM_ROWS = 50_000


@pytest.fixture
def dataset(tmp_path: Path) -> ParquetDataset:
    generator = np.random.default_rng(5)
    table = pa.table(
        {
            "a": generator.integers(0, 1000, NUM_ROWS),
            "b": generator.random(NUM_ROWS, np.float32),
            "c": pa.array(generator.integers(0, 2, NUM_ROWS), pa.int8()),
        }
    )
    pq.write_table(table, tmp_path / "part.parquet", row_group_size=7000)
    return ParquetDataset(tmp_path, batch_size=512, row_ids=True)


def lent_stream(dataset: ParquetDataset, max_memory_bytes: int = 1 << 30) -> BatchStream:
    """Returns the dataset's batches in lent memory that is not page-locked."""
    plan = EpochPlan(dataset.manifest.row_group_num_rows, PlanOptions(512))
    return BatchStream(
        StreamParts(dataset.manifest, dataset.fields, row_ids=True, row_valid=False),
        plan.share(0),
        num_threads=3,
        max_memory_bytes=max_memory_bytes,
        pin_memory=False,
        memory=ReaderMemory(),
        lend_slabs=True,
    )


def assert_same(batches: list[dict[str, Tensor]], expected: list[dict[str, Tensor]]) -> None:
    assert len(batches) == len(expected)
    for batch, other in zip(batches, expected, strict=True):
        assert list(batch) == list(other)
        for name, tensor in batch.items():
            assert torch.equal(tensor, other[name]), name


@pytest.mark.parametrize("max_memory_bytes", [1 << 30, 100_000, 30_000])
def test_lent_memory_gives_the_same_batches(dataset: ParquetDataset, max_memory_bytes: int) -> None:
    assert_same(list(lent_stream(dataset, max_memory_bytes)), list(dataset))


def test_batches_that_are_kept_stay_as_they_were(dataset: ParquetDataset) -> None:
    stream = lent_stream(dataset, 30_000)
    kept = [next(stream) for _ in range(20)]
    copies = [{name: tensor.clone() for name, tensor in batch.items()} for batch in kept]
    for _ in stream:
        pass
    assert_same(kept, copies)


def test_closing_in_the_middle_ends_the_stream(dataset: ParquetDataset) -> None:
    stream = lent_stream(dataset, 30_000)
    first = next(stream)
    stream.close()
    stream.close()
    assert first["row.id"].tolist() == list(range(512))
    with pytest.raises(RuntimeError, match="closed"):
        next(stream)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_batches_are_page_locked_where_cuda_is(dataset: ParquetDataset) -> None:
    expected = [{name: t.clone() for name, t in batch.items()} for batch in dataset]
    batches = [
        {name: tensor.cuda(non_blocking=True) for name, tensor in batch.items()}
        for batch in dataset
        if all(tensor.is_pinned() for tensor in batch.values())
    ]
    assert_same([{n: t.cpu() for n, t in batch.items()} for batch in batches], expected)
