"""`even="dynamic"` in one process: alone, and with a store of its own."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch.distributed as dist
from torch.utils.data import DataLoader

from tests.fixtures.datasets import ids_by_batch, opener
from tests.fixtures.failing_loaders import raises_in_worker
from torchparquet import CorruptFileError, Order, ParquetDataset, Ranks

ROW_GROUPS = [30, 1, 25, 0, 9, 70]


@pytest.fixture(scope="module")
def path(tmp_path_factory: Any) -> Any:
    path = tmp_path_factory.mktemp("dynamic") / "a.parquet"
    first = 0
    with pq.ParquetWriter(path, pa.schema([("id", pa.int64())])) as file:
        for rows in ROW_GROUPS:
            file.write_table(pa.table({"id": np.arange(first, first + rows)}))
            first += rows
    return path


open_dataset = opener(batch_size=10, even="dynamic")


def cut(batch_size: int | None, order: list[int] | None = None) -> list[list[int]]:
    """The batches, cut within each row group."""
    ends = np.cumsum(ROW_GROUPS)
    found = []
    for group in range(len(ROW_GROUPS)) if order is None else order:
        rows = list(range(ends[group] - ROW_GROUPS[group], ends[group]))
        size = batch_size or max(1, len(rows))
        found += [rows[i : i + size] for i in range(0, len(rows), size)]
    return found


@pytest.mark.parametrize("batch_size", [1, 10, 1000, None])
def test_alone_it_is_the_ordinary_order(path: Any, batch_size: int | None) -> None:
    assert ids_by_batch(open_dataset(path, batch_size=batch_size)) == cut(batch_size)


def test_row_groups_are_shuffled_as_without_it(path: Any) -> None:
    dataset = open_dataset(path, shuffle=True, seed=5)
    plain = ParquetDataset(path, batch_size=10, shuffle=True, seed=5, shuffle_window=0)
    for epoch in range(3):
        order = plain.plan(epoch).order.tolist()
        assert dataset.epoch == epoch
        assert ids_by_batch(dataset) == cut(10, order)


def test_breaking_off_and_closing(path: Any) -> None:
    dataset = open_dataset(path)
    for _ in dataset:
        break
    stream = iter(dataset)
    next(stream)
    dataset.close()
    with pytest.raises(RuntimeError, match="closed"):
        next(stream)
    assert ids_by_batch(dataset) == cut(10)


def test_failures_come_again(path: Any, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(path.read_bytes())
    dataset = open_dataset(damaged, batch_size=100)
    with damaged.open("r+b") as file:
        file.seek(4)
        file.write(b"\xff" * 60)
    stream = iter(dataset)
    errors = []
    for _ in range(2):
        with pytest.raises(CorruptFileError) as caught:
            list(stream)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def test_what_is_not_known_beforehand_is_refused(path: Any) -> None:
    dataset = open_dataset(path)
    calls = (
        lambda: len(dataset),
        dataset.num_steps,
        dataset.state_dict,
        lambda: dataset.load_state_dict({}),
        dataset.plan,
        dataset.get_shard_distribution_info,
        lambda: dataset.seek(1),
        lambda: dataset.skip(1),
        lambda: len(DataLoader(dataset, batch_size=None)),
    )
    for call in calls:
        with pytest.raises(TypeError, match='even="dynamic" has no '):
            call()
    assert ids_by_batch(DataLoader(dataset, batch_size=None)) == cut(10)


@pytest.mark.parametrize(
    "options",
    [
        {"drop_last": True},
        {"shuffle": True, "shuffle_window": 2},
        {"num_epochs": 2},
        {"num_epochs": None},
        {"limit_steps": 3},
        {"order": Order(canonical_world_size=2)},
        {"order": Order(balance="bytes")},
        {"shuffle": True, "order": Order(within_rank=True)},
    ],
)
def test_options_that_it_cannot_have(path: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match='even="dynamic" needs '):
        open_dataset(path, **options)


def test_ranks_need_something_to_share_by(path: Any, monkeypatch: Any) -> None:
    with pytest.raises(ValueError, match=r"needs torch.distributed .* rank 1 of 2"):
        next(iter(open_dataset(path, rank=1, world_size=2)))
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"needs torch.distributed .* rank 0 of 2"):
        next(iter(open_dataset(path)))
    assert ids_by_batch(open_dataset(path, ranks=Ranks(store=dist.HashStore()))) == cut(10)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r'Ranks\(store=...\) needs even="dynamic"'):
        open_dataset(path, even="split", ranks=Ranks(store=dist.HashStore()))  # type: ignore[attr-defined]


def test_workers_share_no_store(path: Any) -> None:
    dataset = open_dataset(path)
    loader = DataLoader(dataset, batch_size=None, num_workers=1, timeout=60)
    for _ in range(2):
        with raises_in_worker(ValueError, match="num_workers=0"):
            list(loader)
        dataset.set_epoch(0)
        next(iter(dataset))  # A worker must not go on with its pass either.


def test_a_store_does_not_travel(path: Any) -> None:
    copy = pickle.loads(pickle.dumps(open_dataset(path, ranks=Ranks(store=dist.HashStore()))))  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="store of ranks= do not travel"):
        next(iter(copy))
