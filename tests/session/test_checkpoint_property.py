"""The law of states: what follows a state is what followed it when it was taken.

It is held for what torchdata asks of a data set (`state_dict` and `load_state_dict`, alone, in its
loader and in its nodes), and for the same on an iterator.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest

from tests.fixtures.shape_files import COLUMNS, digest_of_batch, shape_files
from torchparquet import ParquetDataset

ORDERS: dict[str, Any] = {
    "file order": {},
    "row groups": {"shuffle": True, "shuffle_window": 0},
    "windows": {"shuffle": True, "shuffle_window": 3},
    "padded": {"shuffle": True, "even": "pad", "rank": 1, "world_size": 3},
    "one batch per chunk": {"batch_size": None, "shuffle": True},
    "two epochs": {"shuffle": True, "num_epochs": 2, "batch_size": 90},
}


# A warning that torch gives of itself for torchdata's loader.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> str:
    return shape_files(tmp_path_factory.mktemp("checkpoint") / "data", 900, 3, 5)


def make(folder: str, order: str) -> ParquetDataset:
    options = {"batch_size": 40, "rank": 0, "world_size": 1, "num_threads": 2} | ORDERS[order]
    return ParquetDataset(folder, columns=COLUMNS, seed=2, row_ids=True, **options)


PROTOCOLS = ("iterator", "data set", "loader", "node")


class Run:
    """A pass by the states of an iterator, or of what has them, which makes a new one go on."""

    def __init__(self, dataset: ParquetDataset, protocol: str) -> None:
        source: Any = dataset
        if protocol == "loader":
            stateful = pytest.importorskip("torchdata.stateful_dataloader")
            source = stateful.StatefulDataLoader(dataset, batch_size=None)
        elif protocol == "node":
            source = pytest.importorskip("torchdata.nodes").IterableWrapper(dataset)
        self.batches = iter(source)
        self._stateful = self.batches if protocol == "iterator" else source

    def get_state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._stateful.state_dict()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        if hasattr(self._stateful, "reset"):
            self._stateful.reset(state)
            return
        self._stateful.load_state_dict(state)
        if self._stateful is not self.batches:
            self.batches = iter(self._stateful)


def history(run: Run) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the digest of every batch, and the states before each of them and at the end."""
    digests, states = [], [run.get_state()]
    for batch in run.batches:
        digests.append(digest_of_batch(batch))
        states.append(run.get_state())
    assert len(digests) > 5
    return digests, states


def scrambled(count: int) -> list[int]:
    """Return the places below `count`, far from their order."""
    return sorted(range(count), key=lambda place: (place * 2_654_435_761) % 2**32)


@pytest.fixture(params=ORDERS)
def order(request: Any) -> Any:
    return request.param


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.mostly_long(every=5)
def test_the_rest_after_every_state(folder: str, order: str, protocol: str) -> None:
    """Each state is loaded into a data set that has never read, and read on to the end."""
    digests, states = history(Run(make(folder, order), protocol))
    for place in scrambled(len(digests)):
        run = Run(make(folder, order), protocol)
        run.set_state(states[place])
        assert list(map(digest_of_batch, run.batches)) == digests[place:], place


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.mostly_long(every=5)
def test_one_pass_is_restored_again_and_again(folder: str, order: str, protocol: str) -> None:
    """Forth and back, twice to the same place, after no batch, some, or all that are left."""
    run = Run(make(folder, order), protocol)
    digests, states = history(run)
    places = scrambled(len(digests))
    for number, place in enumerate([*places, *places[::-1]]):
        run.set_state(states[place])
        length = (0, 1, 3, len(digests))[number % 4]
        read = list(map(digest_of_batch, islice(run.batches, length)))
        assert read == digests[place : place + length], place


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_states_stay_as_they_were_taken(folder: str, order: str, protocol: str) -> None:
    """Reading on does not change them, all are alike, and going on from one gives it again."""
    run = Run(make(folder, order), protocol)
    written, outlines = [json.dumps(run.get_state())], {outline(run.get_state())}
    kept = [run.get_state()]
    for _ in run.batches:
        kept.append(run.get_state())
        written.append(json.dumps(kept[-1]))
        outlines.add(outline(kept[-1]))
    assert [json.dumps(state) for state in kept] == written
    if protocol != "loader":  # whose own fields are torchdata's
        assert len(outlines) == 1
    restored = Run(make(folder, order), protocol)
    for place in scrambled(len(kept) - 1):
        restored.set_state(kept[place])
        assert json.dumps(restored.get_state()) == written[place]
        assert json.dumps(kept[place]) == written[place]


def outline(state: Any) -> str:
    """Return the structure of a state: its names and the types of its values."""
    if isinstance(state, dict):
        return str({name: outline(value) for name, value in state.items()})
    if isinstance(state, list):
        return str([outline(value) for value in state])
    return type(state).__name__
