"""One rank works for all, and no rank waits for one that fails."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from torch._C._distributed_c10d import HashStore

from torchparquet._impl.ranks import peers
from torchparquet._impl.ranks.peers import Peers, done_once

RANKS = (0, 1, 2, 3)


class Job:
    """Ranks that share a store."""

    def __init__(self) -> None:
        self.store = HashStore()
        self.store.set_timeout(timedelta(seconds=60))
        self.done: list[int] = []

    def call(self, rank: int, what: str, work: Callable[[], bytes]) -> bytes:
        def counted() -> bytes:
            self.done.append(rank)
            return work()

        return done_once(Peers(RANKS, rank, self.store), what, counted)


@pytest.fixture
def job() -> Job:
    return Job()


def test_one_rank_works_for_all(job: Job) -> None:
    for order in ((2, 0, 1, 3), (3, 2, 1, 0)):
        job.done.clear()
        found = {rank: job.call(rank, "what", f"by {rank}".encode) for rank in order}
        assert job.done == [order[0]]
        assert set(found.values()) == {f"by {order[0]}".encode()}


def test_the_failure_of_one_rank_is_its_own(job: Job) -> None:
    def fail() -> bytes:
        raise PermissionError("no credentials here")

    with pytest.raises(PermissionError, match="no credentials here"):
        job.call(0, "what", fail)
    assert job.call(1, "what", lambda: b"made") == b"made"
    assert job.done == [0, 1]


def test_a_result_too_large_for_a_store_is_not_shared(job: Job, monkeypatch: Any) -> None:
    monkeypatch.setattr(peers, "_PART_CHARACTERS", 10)
    monkeypatch.setattr(peers, "_MOST_PARTS", 2)
    for rank in RANKS:
        assert job.call(rank, "what", lambda: b"0123456789" * 5) == b"0123456789" * 5
    assert job.done == list(RANKS)


def test_a_result_comes_in_parts(job: Job, monkeypatch: Any) -> None:
    monkeypatch.setattr(peers, "_PART_CHARACTERS", 10)
    made = bytes(range(256))
    for rank in RANKS:
        assert job.call(rank, "what", partial(bytes, made if rank == 0 else b"other")) == made
    assert job.call(0, "none", lambda: b"") == job.call(1, "none", lambda: b"other") == b""
    assert job.done == [0, 0]


def test_a_rank_that_never_answers_is_not_waited_for_for_ever() -> None:
    store = HashStore()
    store.set_timeout(timedelta(milliseconds=20))
    peers, what = Peers(RANKS, 1, store), "silence"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.__class__, "set", lambda *_: None)
        assert done_once(peers, what, lambda: b"lost") == b"lost"
    assert done_once(Peers(RANKS, 2, store), what, lambda: b"made") == b"made"
