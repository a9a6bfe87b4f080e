"""A look at one batch takes no epoch, and leaves states where they are."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from torch.utils.data import DataLoader

from torchparquet import ParquetDataset, mix

NUM_ROWS = 300


def open_dataset(**options: Any) -> ParquetDataset:
    table = pa.table({"x": list(range(NUM_ROWS))})
    return ParquetDataset(table, **({"batch_size": 20, "shuffle": True} | options))


def rows_of(dataset: Any) -> list[int]:
    return [row for item in dataset for row in item["x"].reshape(-1).tolist()]


def broken_off(dataset: Any) -> None:
    for _ in dataset:
        break


KINDS: dict[str, Callable[[], Any]] = {
    "data set": open_dataset,
    "loader": lambda: DataLoader(open_dataset(), batch_size=None),
    "rows": lambda: open_dataset().unbatched(),
    "mix": lambda: mix([open_dataset(seed=1), open_dataset(seed=2)], stopping="all_exhausted"),
    "mix of rows": lambda: mix(
        [open_dataset(seed=1), open_dataset(seed=2)], within_batch=True, batch_size=100
    ),
    "dynamic": lambda: open_dataset(even="dynamic"),
    "epochs without end": lambda: open_dataset(num_epochs=2),
}


@pytest.mark.parametrize("look", [iter, lambda dataset: next(iter(dataset)), broken_off])
@pytest.mark.parametrize("kind", KINDS)
def test_a_look_takes_no_epoch(kind: str, look: Callable[[Any], Any]) -> None:
    looked, other = KINDS[kind](), KINDS[kind]()
    for _ in range(3):
        look(looked)
        look(looked)
        assert rows_of(looked) == rows_of(other)


@pytest.mark.parametrize("kind", ["data set", "rows", "mix", "mix of rows"])
def test_iterators_side_by_side_are_of_different_epochs(kind: str) -> None:
    dataset = KINDS[kind]()
    first, second = [list(pair) for pair in zip(*zip(dataset, dataset, strict=True), strict=True)]
    fresh = KINDS[kind]()
    assert rows_of(first) == rows_of(fresh)
    assert rows_of(second) == rows_of(fresh)
    assert dataset.epoch == 2


def test_an_epoch_of_one_batch_is_taken_with_it() -> None:
    dataset = open_dataset(batch_size=NUM_ROWS)
    assert rows_of(dataset) != rows_of(dataset)
    next(iter(dataset))  # a loop over range(len(dataset)) asks for no second batch
    assert dataset.epoch == 3


@pytest.mark.parametrize("set_again", [False, True])
@pytest.mark.parametrize("kind", ["a state", "a step"])
def test_a_look_leaves_a_loaded_state_and_a_step_in_force(kind: str, set_again: bool) -> None:
    whole = rows_of(open_dataset())
    dataset = open_dataset()
    dataset.seek(4)
    if kind == "a state":
        state = dataset.state_dict()
        dataset = open_dataset()
        dataset.load_state_dict(state)
    assert next(iter(dataset))["x"].tolist() == whole[80:100]
    assert dataset.epoch == 0
    if kind == "a state" and set_again:
        dataset.set_epoch(0)
        assert dataset.state_dict() == state
    assert rows_of(dataset) == whole[80:]
    assert dataset.epoch == 1


@pytest.mark.parametrize("num_batches", [1, 2, 7])
@pytest.mark.parametrize("kind", ["data set", "loader", "mix"])
def test_a_state_counts_the_batches_of_the_latest_iteration(kind: str, num_batches: int) -> None:
    """Of a look as of any other, and not those of the look before it."""
    dataset, whole = KINDS[kind](), rows_of(KINDS[kind]())
    source = dataset.dataset if kind == "loader" else dataset
    next(iter(dataset))
    batches = iter(dataset)
    found = [row for _ in range(num_batches) for row in rows_of([next(batches)])]
    del batches
    state = source.state_dict()
    other = KINDS[kind]()
    (other.dataset if kind == "loader" else other).load_state_dict(state)
    assert found + rows_of(other) == whole


def by_workers(dataset: Any, num_workers: int, method: str = "fork") -> list[int]:
    loader = DataLoader(
        dataset, batch_size=None, num_workers=num_workers, multiprocessing_context=method
    )
    return rows_of(loader)


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_workers_begin_where_the_look_did(method: str) -> None:
    dataset, other = open_dataset(), open_dataset()
    rows_of(dataset), rows_of(other)
    next(iter(dataset))
    assert by_workers(dataset, 1, method) == by_workers(other, 1)


@pytest.mark.parametrize(
    ("num_workers", "method"),
    [(1, "fork"), (2, "fork"), pytest.param(2, "spawn", marks=pytest.mark.long)],
)
@pytest.mark.parametrize("kind", ["data set", "mix", "mix of rows"])
def test_workers_begin_the_epoch_after_that_of_an_iterator_in_use(
    kind: str, num_workers: int, method: str
) -> None:
    dataset, other = KINDS[kind](), KINDS[kind]()
    batches = iter(dataset)
    looked = rows_of([next(batches)])
    found = [by_workers(dataset, num_workers, method) for _ in range(2)]
    found.insert(0, looked + rows_of(batches))
    found.append(rows_of(dataset))
    expected = [rows_of(other)]
    for epoch in (1, 2):
        other.set_epoch(epoch)
        expected.append(by_workers(other, num_workers))
    assert found == [*expected, rows_of(other)]


def test_batch_by_batch_from_new_iterators_is_warned_of() -> None:
    dataset = open_dataset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for epoch in range(8):
            dataset.set_epoch(epoch)
            next(iter(dataset))
    with pytest.warns(UserWarning, match=r"keep one iterator") as caught:
        rows_of([next(iter(dataset)) for _ in range(8)])
    assert [warning.filename for warning in caught] == [__file__]
