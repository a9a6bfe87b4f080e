"""Sequences of files in a store are those of the same files on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.servers.fixtures import OpenStore
from torchparquet import ByLength, Pack, ParquetDataset

WAYS: dict[str, dict[str, Any]] = {
    "packed": {"batch_size": 3, "pack": Pack("tokens", 64, "best_fit", separator=0)},
    "in order": {"batch_size": 3, "pack": Pack("tokens", 64)},
    "some documents": {"batch_size": 3, "pack": Pack("tokens", 64), "filters": "number % 3 = 0"},
    "by length": {"batch_size": ByLength("tokens", 500), "shuffle": True},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files, each of several row groups and, in these, pages."""
    folder = tmp_path_factory.mktemp("documents")
    rng = np.random.default_rng(0)
    for file in range(2):
        documents = [rng.integers(0, 50_000, rng.integers(0, 90)) for _ in range(400)]
        table = pa.table({"tokens": documents, "number": range(400)})
        path = folder / f"{file}.parquet"
        pq.write_table(table, path, row_group_size=150, data_page_size=4096)
    return folder


@pytest.mark.mostly_long(every=4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["moto", "http"])
def test_the_same_sequences(open_store: OpenStore, folder: Path, name: str, way: str) -> None:
    store = open_store(name)
    url = store.upload(folder, "sequences")
    files = [f"{url}/{path.name}" for path in sorted(folder.iterdir())]
    local = ParquetDataset(folder, **WAYS[way])
    remote = ParquetDataset(files, storage_options=store.storage_options, **WAYS[way])
    assert len(remote) == len(local)
    for _ in range(2):
        expected = [batch["tokens"].tolist() for batch in local]
        assert [batch["tokens"].tolist() for batch in remote] == expected
