"""Batches in memory that torch allocates, which is how page-locked batches are made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fixtures.shape_files import digest_of, shape_files, tensors_of
from torchparquet import ParquetDataset
from torchparquet._impl.native import ReaderMemory
from torchparquet._impl.reading.batch_stream import BatchStream
from torchparquet._impl.reading.reader_arguments import StreamParts


@pytest.fixture
def dataset(tmp_path: Path) -> ParquetDataset:
    folder = shape_files(tmp_path, 20_000, 1, 7)
    return ParquetDataset(folder, batch_size=512, row_ids=True, nulls="mask")


def lent_stream(dataset: ParquetDataset, max_memory_bytes: int = 1 << 30) -> BatchStream:
    """Returns the dataset's batches in lent memory that is not page-locked."""
    options: Any = {"pin_memory": False, "memory": ReaderMemory(), "lend_slabs": True}
    return BatchStream(
        StreamParts(dataset.manifest, dataset.fields, row_ids=True, row_valid=False),
        dataset.plan().share(0),
        num_threads=3,
        max_memory_bytes=max_memory_bytes,
        **options,
    )


def test_lent_memory_gives_the_same_batches(dataset: ParquetDataset) -> None:
    """Also if it is little, so that it is used again; batches that are kept stay as they were."""
    expected = digest_of(dataset)
    assert digest_of(lent_stream(dataset)) == expected
    assert digest_of(lent_stream(dataset, 600_000)) == expected
    assert digest_of(list(lent_stream(dataset, 600_000))) == expected


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_batches_are_page_locked_where_cuda_is(dataset: ParquetDataset) -> None:
    for batch in dataset:
        there = {name: value.to("cuda", non_blocking=True) for name, value in batch.items()}
        assert all(part.is_pinned() for value in batch.values() for part in tensors_of(value))
        back = {name: value.to("cpu") for name, value in there.items()}
        assert digest_of([back]) == digest_of([batch])
