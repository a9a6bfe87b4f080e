"""The first bytes of an epoch are asked for within the one before, where one is to be expected."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.remote.reading import FaultyStore, asked, by_http, by_s3fs, digests, open_dataset
from tests.servers.faulty_origin import FaultyOrigin

WAYS: dict[str, dict[str, Any]] = {
    "file order": {},
    "windows": {"shuffle": True, "seed": 3, "shuffle_window": 3},
    "row groups": {"shuffle": True, "seed": 4, "shuffle_window": 0},
    "two columns": {"columns": ["id", "word"]},
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    return WAYS[request.param]


@pytest.fixture
def faulty(origin: FaultyOrigin, data: Path) -> FaultyStore:
    store = by_http(origin, data / "train")
    # A busy machine would make it ask for a range once more.
    store.options |= {"hedges": False}
    return store


def stored_bytes(folder: Path, columns: list[str] | None) -> int:
    total = 0
    for path in folder.glob("*.parquet"):
        metadata = pq.read_metadata(path)
        for group, column in itertools.product(
            range(metadata.num_row_groups), range(metadata.num_columns)
        ):
            chunk = metadata.row_group(group).column(column)
            if columns is None or chunk.path_in_schema in columns:
                total += chunk.total_compressed_size
    return total


def test_an_epoch_that_follows_is_asked_for(
    faulty: FaultyStore, data: Path, way: dict[str, Any]
) -> None:
    stored = stored_bytes(data / "train", way.get("columns"))
    options = {**way, "num_epochs": 3}
    expected = digests(open_dataset(data / "train", **options))
    dataset = faulty.open(**options)
    faulty.origin.forget()
    iterator = iter(dataset)
    found = digests([next(iterator)])
    # Without another step of the loop, all of this epoch and some of the next is asked for.
    while asked(faulty.origin)[0] <= stored:
        os.sched_yield()
    assert found + digests(iterator) == expected
    # Each byte once an epoch: what was asked for ahead is not asked for again.
    assert asked(faulty.origin)[0] == 3 * stored


def test_the_first_of_single_epochs_asks_for_nothing_more(
    faulty: FaultyStore, data: Path, way: dict[str, Any]
) -> None:
    stored = stored_bytes(data / "train", way.get("columns"))
    dataset = faulty.open(**way)
    faulty.origin.forget()
    for _ in dataset:
        pass
    assert asked(faulty.origin)[0] == stored
    for _ in dataset:
        pass
    while asked(faulty.origin)[0] <= 2 * stored:
        os.sched_yield()


def test_another_epoch_than_the_expected_one(faulty: FaultyStore, data: Path) -> None:
    options = WAYS["windows"]
    local, remote = open_dataset(data / "train", **options), faulty.open(**options)
    for epoch in (1, 7, 3, 4):
        local.set_epoch(epoch)
        remote.set_epoch(epoch)
        assert digests(remote) == digests(local)


def test_a_state_within_the_next_epoch(faulty: FaultyStore, data: Path) -> None:
    options = {**WAYS["windows"], "num_epochs": None}
    batches = iter(faulty.open(**options))
    local = open_dataset(data / "train", **options)
    num_steps = len(digests(open_dataset(data / "train", **WAYS["windows"])))
    expected = digests(itertools.islice(local, 2 * num_steps + 5))
    assert digests(itertools.islice(batches, num_steps + 3)) == expected[: num_steps + 3]
    resumed = faulty.open(**options)
    resumed.load_state_dict(batches.state_dict())
    assert digests(itertools.islice(resumed, 6)) == expected[num_steps + 3 : num_steps + 9]
    # The iterator that is under way jumps back.
    batches.seek(1)
    assert digests(itertools.islice(batches, 4)) == expected[num_steps + 1 : num_steps + 5]


def test_epochs_that_a_library_reads(origin: FaultyOrigin, data: Path) -> None:
    store = by_s3fs(origin, data / "train")
    options = {**WAYS["windows"], "num_epochs": 3}
    expected = digests(open_dataset(data / "train", **options))
    assert digests(store.open(**options)) == expected


@pytest.mark.mostly_long(every=3)
@pytest.mark.parametrize("how", ["close", "forget", "fork"])
def test_ends_between_epochs(faulty: FaultyStore, data: Path, how: str) -> None:
    expected = digests(open_dataset(data / "train"))
    for _ in range(10):
        dataset = faulty.open(num_epochs=None)
        iterator = iter(dataset)
        assert digests(itertools.islice(iterator, len(expected))) == expected
        if how == "close":
            dataset.close()
        elif how == "fork":
            child = os.fork()
            if child == 0:
                del iterator
                works = digests(itertools.islice(dataset, 3)) == expected[:3]
                os._exit(0 if works else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        else:
            del iterator, dataset
