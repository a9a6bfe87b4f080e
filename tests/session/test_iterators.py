"""Iterators that several threads use, and items by number."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest
from torch.utils.data import DataLoader, Subset, random_split

import torchparquet
from torchparquet import ParquetDataset, mix

PACKAGE = str(Path(torchparquet.__file__).parent)
NATIVE = "torchparquet._impl._core"
NUM_ROWS = 400
TABLE = pa.table({"x": list(range(NUM_ROWS))})


def open_dataset(**options: Any) -> ParquetDataset:
    return ParquetDataset(TABLE, **({"batch_size": 20} | options))


# Threads


class Held:
    """A transform that waits within the first batch until it may go on."""

    def __init__(self) -> None:
        self.begun, self.may_go_on = threading.Event(), threading.Event()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.begun.set()
        assert self.may_go_on.wait(60)
        return batch


def opened(kind: str, **options: Any) -> Any:
    dataset: Any = open_dataset(even="dynamic" if kind == "dynamic" else "split", **options)
    if "mix" in kind:
        rows: Any = {"within_batch": True, "batch_size": 20} if kind == "mix of rows" else {}
        dataset = mix([dataset, open_dataset(**options)], stopping="all_exhausted", **rows)
    return dataset.unbatched() if kind.startswith("rows") else dataset


ITERATORS = ["data set", "rows", "mix", "mix of rows", "rows of a mix", "dynamic"]


@pytest.mark.parametrize("kind", ITERATORS)
def test_a_second_thread_in_next_is_refused_in_words(kind: str) -> None:
    held = Held()
    dataset = opened(kind, transform=held)
    iterator = iter(dataset)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, iterator)
        assert held.begun.wait(60)
        with pytest.raises(
            RuntimeError, match=r"one thread at a time: give each thread its own iterator"
        ):
            next(iterator)
        held.may_go_on.set()
        found = [first.result(), *iterator]
    rows = sorted(row for item in found for row in item["x"].reshape(-1).tolist())
    assert rows == sorted([*range(NUM_ROWS)] * (1 + ("mix" in kind)))


def test_threads_that_take_turns_get_each_batch_once() -> None:
    iterator, lock = iter(open_dataset(shuffle=True)), threading.Lock()
    found: list[int] = []

    def take() -> None:
        while True:
            with lock:
                batch = next(iterator, None)
            if batch is None:
                return
            found.extend(batch["x"].tolist())

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(NUM_ROWS))


# What an iterator can do beside `next`


@pytest.mark.parametrize("kind", ITERATORS)
def test_every_iterator_has_a_state(kind: str) -> None:
    iterator, other = iter(opened(kind)), iter(opened(kind))
    next(iterator), next(iterator)
    state = iterator.state_dict()
    rest = [item["x"].tolist() for item in iterator]
    next(other)
    other.load_state_dict(state)
    assert [item["x"].tolist() for item in other] == rest
    iterator.load_state_dict(state)  # one that has ended too
    assert [item["x"].tolist() for item in iterator] == rest


@pytest.mark.parametrize("kind", ITERATORS)
def test_what_an_iterator_cannot_do_is_refused(kind: str) -> None:
    iterator = iter(opened(kind))
    next(iterator)
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(iterator)
    if kind != "data set":
        with pytest.raises(TypeError, match="no step to go to"):
            iterator.seek(3)
        next(iterator)
        return
    iterator.seek(3)
    assert next(iterator)["x"].tolist() == list(range(60, 80))


# Few frames between the loop and the native reader


def frames_down_to_the_reader(call: Callable[[], Any]) -> int:
    """The frames of the package below which the native reader is asked for a batch."""
    found: list[int] = []

    def note(frame: FrameType | None, event: str, argument: Any) -> None:
        if event == "c_call" and (argument.__module__, argument.__name__) == (NATIVE, "next"):
            depth = 0
            while frame is not None:
                depth += frame.f_code.co_filename.startswith(PACKAGE)
                frame = frame.f_back
            found.append(depth)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return max(found, default=0)  # 0 for a batch that came with an earlier one


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"transform": dict}])
def test_few_frames_lie_between_the_loop_and_the_reader(options: dict[str, Any]) -> None:
    iterator = iter(open_dataset(**options))
    assert frames_down_to_the_reader(lambda: next(iterator)) <= 10
    for _ in range(5):
        assert frames_down_to_the_reader(lambda: next(iterator)) <= 6


# Items by number


@pytest.mark.parametrize("kind", ["data set", "mix", "rows"])
def test_an_item_by_number_is_refused_with_the_way_out(kind: str) -> None:
    dataset = opened(kind)
    first, _ = random_split(dataset, [0.9, 0.1])
    asks: list[Callable[[], Any]] = [
        lambda: dataset[0],
        lambda: Subset(dataset, [1, 2])[0],
        lambda: first[0],
        lambda: next(iter(DataLoader(first, batch_size=None))),
        lambda: next(iter(DataLoader(Subset(dataset, [1]), batch_size=1))),
    ]
    noun, item = {"mix": ("mix", "batch"), "rows": ("data set of rows", "row")}.get(
        kind, ("ParquetDataset", "batch")
    )
    for ask in asks:
        with pytest.raises(TypeError, match=rf"^a {noun} is .*split=.*rows=.* the first {item}"):
            ask()
