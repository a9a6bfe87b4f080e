"""The messages to ranks that differ, and a comparison over a store in one process."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist

from torchparquet import RankMismatchError
from torchparquet._impl.ranks import agreement
from torchparquet._impl.ranks.agreement import (
    RankNote,
    begin_together,
    disagreement,
    tell_failure,
)
from torchparquet._impl.ranks.peers import Peers


def notes(*seeds: int, **others: Any) -> dict[int, RankNote]:
    """Ranks whose seeds are these; the same in all else."""
    return {
        rank: RankNote(rank, len(seeds), {"batch_size": "32", "seed": str(seed)}, **others)
        for rank, seed in enumerate(seeds)
    }


# Differences, in words


def test_majority_comes_first_with_all_its_ranks() -> None:
    text = disagreement(notes(7, 5, 5, 5, 9, 5))
    assert "seed is 5 on ranks 1-3, 5, 7 on rank 0, 9 on rank 4" in text
    assert "batch_size" not in text
    assert "ranks=Ranks(check=False)" in text


@pytest.mark.parametrize(
    ("shares", "agree"),
    [([0, 1, 2], True), ([2, 0, 1], True), ([0, 0, 1], False), ([0, 1, 1, 0, 2, 2], True)],
)
def test_every_share_must_be_held_equally_often(shares: list[int], agree: bool) -> None:
    found = {rank: RankNote(share, 3, {}) for rank, share in enumerate(shares)}
    text = disagreement(found)
    assert (text == "") == agree
    if not agree:
        assert "0 on ranks 0-1, 1 on rank 2" in text


def test_text_stays_short_for_many_ranks_and_values() -> None:
    found = {
        rank: RankNote(rank, 5000, {f"n{i}": f"{rank:0300}" for i in range(30)})
        for rank in range(5000)
    }
    text = disagreement(found)
    assert len(text) < 20_000
    assert "4992 more values" in text
    assert "22 more" in text


# Over a store


def meet(notes: Any, seconds: float = 30) -> list[Any]:
    """The outcome on each rank, each on a thread; None stays away, an exception fails."""
    store = dist.HashStore()  # type: ignore[attr-defined]
    store.set_timeout(timedelta(seconds=seconds))
    ranks = tuple(notes)

    def join(rank: int) -> Any:
        def own_note() -> RankNote:
            if isinstance(notes[rank], Exception):
                raise notes[rank]
            note: RankNote = notes[rank]
            return note

        if notes[rank] is None:
            return None
        peers = Peers(ranks, rank, dist.PrefixStore("test", store))  # type: ignore[attr-defined]
        try:
            begin_together(peers, own_note)
        except Exception as error:
            return error
        return f"begun {rank}"

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(join, ranks))


def test_all_ranks_raise_the_same_error() -> None:
    errors = meet(notes(4, 4, 6))
    assert {type(error) for error in errors} == {RankMismatchError}
    assert {str(error) for error in errors} == {disagreement(notes(4, 4, 6))}


@pytest.mark.parametrize("broken", [0, 2])
def test_a_rank_that_fails_is_named_on_the_others(broken: int) -> None:
    failure = MemoryError("two batches do not fit")
    errors = meet(notes(4, 4, 4) | {broken: failure})
    assert errors.pop(broken) is failure
    for error in errors:
        assert isinstance(error, RankMismatchError)
        assert f"MemoryError: two batches do not fit on rank {broken}" in str(error)


@pytest.mark.parametrize("absent", [0, 1])
def test_a_rank_that_does_not_come_is_named(absent: int, caplog: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(agreement, "_WARN_AFTER_SECONDS", 0.0)
    with caplog.at_level(logging.WARNING, "torchparquet"):
        errors = meet(notes(4, 4, 4) | {absent: None}, seconds=0.3)
    assert errors.pop(absent) is None
    for error in errors:
        assert isinstance(error, RankMismatchError)
        assert f"waited for rank {absent}" in str(error)
    assert "waited for rank" in caplog.text


class WatchedStore:
    """A store that tells when its rank has left a note that is not of a failure."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.has_come = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def set(self, key: str, value: str) -> None:
        self.store.set(key, value)
        if "OSError" not in value:
            self.has_come.set()


def peers_that_met(num_ranks: int) -> list[Peers]:
    store = dist.HashStore()  # type: ignore[attr-defined]
    store.set_timeout(timedelta(seconds=10))
    ranks = tuple(range(num_ranks))
    stores: list[Any] = [WatchedStore(store) for _ in ranks]
    peers = [Peers(ranks, rank, stores[rank]) for rank in ranks]
    assert outcomes(peers) == ["begun"] * num_ranks
    return peers


def outcomes(peers: list[Peers]) -> list[str]:
    """What becomes of each rank; the first in the list leaves its note before the others come."""

    def join(own: Peers) -> str:
        try:
            begin_together(own, lambda: RankNote(own.own, 3, {}))
        except RankMismatchError as error:
            return str(error)
        return "begun"

    store: Any = peers[0].store
    store.has_come.clear()
    with ThreadPoolExecutor(len(peers)) as pool:
        early = pool.submit(join, peers[0])
        assert store.has_come.wait(60)
        others = list(pool.map(join, peers[1:]))
    return [early.result(), *others]


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_rank_that_begins_after_a_failure_meets_the_others(failing: int) -> None:
    peers = peers_that_met(3)
    for _ in range(2):
        tell_failure(peers[failing], OSError("no such file"))
        tell_failure(peers[failing], OSError("no such file yet"))
        assert outcomes([*peers[failing:], *peers[:failing]]) == ["begun"] * 3


@pytest.mark.parametrize("failing", [0, 2])
def test_ranks_that_heard_of_a_failure_meet_again(failing: int) -> None:
    peers = peers_that_met(3)
    for num_failures in (1, 2, 3):
        for number in range(num_failures):
            tell_failure(peers[failing], OSError(f"no file {number}"))
            others = outcomes([own for own in peers if own.own != failing])
            assert all(f"OSError: no file {number} on rank {failing}" in text for text in others)
        assert outcomes(peers) == ["begun"] * 3
