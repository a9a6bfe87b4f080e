"""`even="dynamic"` in one process: alone, and with a store of its own."""

from __future__ import annotations

import json
import pickle
from itertools import islice
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
from torchparquet import CorruptFileError, Order, Ranks

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
OPTIONS: list[dict[str, Any]] = [
    {"batch_size": 1},
    {},
    {"batch_size": 1000},
    {"batch_size": None},
    {"drop_last": True},
    {"batch_size": 1000, "drop_last": True, "num_epochs": None},
    {"num_epochs": 3},
    {"limit_steps": 4, "num_epochs": 2},
    {"shuffle": True, "seed": 5, "num_epochs": 2, "shuffle_window": 0},
]


# The data set whose row groups are dealt, all to one rank.
plain = opener(batch_size=10, even="none")


@pytest.mark.parametrize("options", OPTIONS)
def test_alone_it_is_the_ordinary_order(path: Any, options: dict[str, Any]) -> None:
    dataset, expected = open_dataset(path, **options), plain(path, **options)
    for _ in range(2):
        assert dataset.epoch == expected.epoch
        assert ids_by_batch(dataset) == ids_by_batch(expected)


@pytest.mark.parametrize("options", OPTIONS)
def test_a_state_of_any_batch_goes_on_there(path: Any, options: dict[str, Any]) -> None:
    whole = ids_by_batch(plain(path, **options))
    for step in range(len(whole)):
        dataset = open_dataset(path, **options)
        stream = iter(dataset)
        found = [next(stream)["id"].tolist() for _ in range(step)]
        state = json.loads(json.dumps(dataset.state_dict()))
        resumed = open_dataset(path, **options)
        resumed.load_state_dict(state)
        assert found + ids_by_batch(resumed) == whole
        stream.load_state_dict(state)
        assert found + ids_by_batch(stream) == whole
    ended, resumed = open_dataset(path, **options), open_dataset(path, **options)
    assert ids_by_batch(ended) == whole
    resumed.load_state_dict(ended.state_dict())
    assert resumed.epoch == ended.epoch > 0


@pytest.mark.parametrize("num_epochs", [1, 2])
@pytest.mark.parametrize("batch_size", [10, 1000, None])
def test_a_state_of_any_row_goes_on_there(
    path: Any, batch_size: int | None, num_epochs: int
) -> None:
    found: list[int] = []
    state = None
    for count in (1, 6, 3, 20, 5, 103, 20, 200)[: 4 + 2 * num_epochs]:
        rows = open_dataset(path, batch_size=batch_size, num_epochs=num_epochs).unbatched()
        if state is not None:
            rows.load_state_dict(json.loads(json.dumps(state)))
        stream = iter(rows)
        found += [int(row["id"]) for row in islice(stream, count)]
        state = stream.state_dict()
    assert found == [*range(sum(ROW_GROUPS))] * num_epochs


def test_breaking_off_and_closing(path: Any) -> None:
    dataset = open_dataset(path)
    for _ in dataset:
        break
    stream = iter(dataset)
    next(stream)
    dataset.close()
    with pytest.raises(RuntimeError, match="closed"):
        next(stream)
    assert ids_by_batch(dataset) == ids_by_batch(plain(path))


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
        dataset.plan,
        dataset.get_shard_distribution_info,
        lambda: dataset.seek(1),
        lambda: dataset.skip(1),
        lambda: iter(dataset).seek(1),
        lambda: len(DataLoader(dataset, batch_size=None)),
    )
    for call in calls:
        with pytest.raises(TypeError, match='even="dynamic" has no '):
            call()
    assert ids_by_batch(DataLoader(dataset, batch_size=None)) == ids_by_batch(plain(path))


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": True, "shuffle_window": 2},
        {"shuffle": True, "shuffle_window": "50 rows"},
        {"order": Order(canonical_world_size=2)},
        {"order": Order(balance="bytes")},
        {"shuffle": True, "order": Order(within_rank=True)},
    ],
)
def test_options_that_it_cannot_have(path: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match='even="dynamic" needs ') as refused:
        open_dataset(path, **options)
    assert str(options.get("shuffle_window", "")) in str(refused.value)


def test_ranks_need_something_to_share_by(path: Any, monkeypatch: Any) -> None:
    with pytest.raises(ValueError, match=r"needs torch.distributed .* rank 1 of 2"):
        next(iter(open_dataset(path, rank=1, world_size=2)))
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"needs torch.distributed .* rank 0 of 2"):
        next(iter(open_dataset(path)))
    with pytest.raises(ValueError, match=r'Ranks\(store=...\) needs even="dynamic"'):
        open_dataset(path, even="split", ranks=Ranks(store=dist.HashStore()))  # type: ignore[attr-defined]


def test_a_given_store_has_no_states(path: Any) -> None:
    ranks = Ranks(store=dist.HashStore())  # type: ignore[attr-defined]
    dataset = open_dataset(path, ranks=ranks)
    stream = iter(dataset)
    found = [next(stream)["id"].tolist()]
    again = open_dataset(path, ranks=ranks)
    again.load_state_dict(dataset.state_dict())
    with pytest.raises(ValueError, match="ranks whose number is known"):
        next(iter(again))
    assert found + ids_by_batch(stream) == ids_by_batch(plain(path))


def go_on(dataset: Any, state: dict[str, Any]) -> None:
    dataset.load_state_dict(state)
    next(iter(dataset))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 1}, "each rank needs its own state"),
        ({"legs": [[2, 1, 10, 1]]}, "as many ranks must go on"),
        ({"taken": [0, -1]}, "damaged"),
        ({"taken": [0, 0]}, "damaged.* taken twice"),
        ({"taken": [0, 6]}, "damaged"),
        ({"taken": [3]}, "damaged.* counts 1 batches.* make 0"),
        ({"taken": None}, "damaged"),
        ({"order": {}}, "damaged"),
    ],
)
def test_states_that_cannot_go_on(path: Any, change: dict[str, Any], message: str) -> None:
    dataset = open_dataset(path)
    stream = iter(dataset)
    next(stream)
    other = open_dataset(path)
    with pytest.raises(ValueError, match=message):
        go_on(other, dataset.state_dict() | change)


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


def test_a_look_at_a_state_takes_no_more(path: Any) -> None:
    dataset = open_dataset(path, shuffle=True, seed=1)
    whole = ids_by_batch(open_dataset(path, shuffle=True, seed=1))
    stream = iter(dataset)
    found = [next(stream)["id"].tolist() for _ in range(3)]
    resumed = open_dataset(path, shuffle=True, seed=1)
    resumed.load_state_dict(dataset.state_dict())
    for _ in range(2):
        assert next(iter(resumed))["id"].tolist() == whole[3]
    assert found + ids_by_batch(resumed) == whole
