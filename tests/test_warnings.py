"""A warning names the line of the user's program, whatever way leads there."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader

from torchparquet import ParquetDataset, mix

WAYS: dict[str, Callable[[ParquetDataset], Any]] = {
    "list": list,
    "next": lambda dataset: next(iter(dataset), None),
    "loader": lambda dataset: list(DataLoader(dataset, batch_size=None)),
    "mix": lambda dataset: list(mix([dataset])),
    "unbatched": lambda dataset: list(dataset.unbatched()),
}


@pytest.fixture
def data(tmp_path: Path) -> str:
    pq.write_table(pa.table({"x": np.arange(10)}), tmp_path / "0.parquet")
    return str(tmp_path)


def files_of(call: Callable[[], Any]) -> list[str]:
    """The files whose lines the warnings of a call name."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [warning.filename for warning in caught]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is no such warning with CUDA")
@pytest.mark.parametrize("way", WAYS)
def test_of_an_option_without_effect(data: str, way: str) -> None:
    dataset = ParquetDataset(data, batch_size=5, pin_memory=True)
    assert set(files_of(lambda: WAYS[way](dataset))) == {__file__}


@pytest.mark.parametrize("way", ["list", "next", "loader"])
def test_of_an_epoch_without_steps(data: str, way: str) -> None:
    dataset = ParquetDataset(data, batch_size=20, drop_last=True)
    assert set(files_of(lambda: WAYS[way](dataset))) == {__file__}


def test_of_a_cache_that_is_damaged(data: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.write_bytes(b"nothing")
    cache.chmod(0o600)
    assert files_of(lambda: ParquetDataset(data, batch_size=5, manifest_cache=cache)) == [__file__]
