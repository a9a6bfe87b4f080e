"""Each part is done by one rank for all, and no rank waits for one that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch._C._distributed_c10d import HashStore

from torchparquet._impl.files.remote import node_files
from torchparquet._impl.ranks import divided_work
from torchparquet._impl.ranks.divided_work import Work, divided
from torchparquet._impl.ranks.peers import Peers

RANKS = (0, 1, 2, 3)


class Job:
    """Ranks that share a store."""

    def __init__(self) -> None:
        self.store = HashStore()
        self.store.set_timeout(timedelta(seconds=60))
        self.done: list[int] = []

    def call(self, rank: int, what: str, work: Callable[[], bytes]) -> bytes:
        return self.call_parts(rank, what, 1, lambda *_: work())[0]

    def call_parts(self, rank: int, what: str, most: int, work: Work) -> list[bytes]:
        def counted(part: int, num_parts: int) -> bytes:
            self.done.append(rank)
            return work(part, num_parts)

        return divided(Peers(RANKS, rank, self.store), what, most, counted)


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
    monkeypatch.setattr(divided_work, "_VALUE_BYTES", 10)
    monkeypatch.setattr(divided_work, "_MOST_VALUES", 2)
    for rank in RANKS:
        assert job.call(rank, "what", lambda: b"0123456789" * 5) == b"0123456789" * 5
    assert job.done == list(RANKS)


def test_a_result_comes_in_parts(job: Job, monkeypatch: Any) -> None:
    monkeypatch.setattr(divided_work, "_VALUE_BYTES", 10)
    made = bytes(range(256))
    for rank in RANKS:
        assert job.call(rank, "what", partial(bytes, made if rank == 0 else b"other")) == made
    assert job.call(0, "none", lambda: b"") == job.call(1, "none", lambda: b"other") == b""
    assert job.done == [0, 0]


def test_a_rank_that_never_answers_is_not_waited_for_for_ever(caplog: Any) -> None:
    store = HashStore()
    store.set_timeout(timedelta(milliseconds=20))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.__class__, "set", lambda *_: None)
        assert divided(Peers(RANKS, 1, store), "silence", 1, lambda *_: b"lost") == [b"lost"]
    assert divided(Peers(RANKS, 2, store), "silence", 1, lambda *_: b"made") == [b"made"]
    assert "so rank 2 reads it too" in caplog.text


def squares(part: int, num_parts: int) -> bytes:
    return b"%d of %d" % (part * part, num_parts)


@pytest.mark.parametrize(("most", "num_parts"), [(1, 1), (5, 5), (1000, 16)])
def test_ranks_that_come_together_do_each_part_once(job: Job, most: int, num_parts: int) -> None:
    meeting = threading.Barrier(len(RANKS))

    def run(rank: int) -> list[bytes]:
        meeting.wait(60)
        return job.call_parts(rank, "squares", most, squares)

    with ThreadPoolExecutor(len(RANKS)) as pool:
        found = list(pool.map(run, RANKS))
    assert found == [[squares(part, num_parts) for part in range(num_parts)]] * len(RANKS)
    assert len(job.done) == num_parts


def test_ranks_that_come_together_do_their_own_parts_of_each_work(job: Job) -> None:
    """They have read of them what the next work needs."""
    done: dict[tuple[str, int], int] = {}
    meeting = threading.Barrier(len(RANKS))

    def run(rank: int) -> None:
        for what, most in (("footers", 1000), ("rows", 4), ("lengths", 1000)):
            meeting.wait(60)

            def work(part: int, num_parts: int, what: str = what) -> bytes:
                done[what, part * 16 // num_parts] = rank
                if num_parts == 4 or part % 4 == 3:
                    meeting.wait(60)  # in the last of its own
                return b""

            job.call_parts(rank, what, most, work)

    with ThreadPoolExecutor(len(RANKS)) as pool:
        list(pool.map(run, RANKS))
    assert [done["footers", part] for part in range(16)] == [part // 4 for part in range(16)]
    assert [done["rows", part] for part in range(0, 16, 4)] == list(RANKS)
    assert [done["lengths", part] for part in range(16)] == [part // 4 for part in range(16)]


def test_parts_that_ranks_have_begun_are_done_by_these(job: Job) -> None:
    """Others come to the second work earlier, and take nothing of it."""
    begun = {0: {1, 2, 3, 6}, 1: {0, 5}, 2: {4, 5}, 3: set[int]()}
    done: list[tuple[int, int]] = []
    others_wait = threading.Barrier(len(RANKS))

    def run(rank: int) -> list[bytes]:
        def work(part: int, num_parts: int) -> bytes:
            done.append((part, rank))
            return squares(part, num_parts)

        def is_begun(part: int, _: int) -> bool:
            if part == 0:
                others_wait.wait(60)
            return part in begun[rank]

        return divided(Peers(RANKS, rank, job.store), "rows", 7, work, is_begun)

    with ThreadPoolExecutor(len(RANKS)) as pool:
        found = list(pool.map(run, RANKS))
    assert found == [[squares(part, 7) for part in range(7)]] * len(RANKS)
    assert sorted(part for part, _ in done) == [*range(7)]
    assert all(part in begun[rank] for part, rank in done)


def test_a_rank_that_comes_late_finds_what_others_did(job: Job) -> None:
    first = job.call_parts(2, "squares", 7, squares)
    assert job.call_parts(0, "squares", 7, squares) == first
    assert job.done == [2] * 7


def test_the_store_forgets_what_all_ranks_have(job: Job) -> None:
    for _ in range(3):
        for rank in RANKS:
            assert job.call_parts(rank, "squares", 7, squares)[2] == b"4 of 7"
        assert job.store.num_keys() <= 1  # what the store counts for itself
    assert job.done == [0] * 21


@pytest.mark.parametrize(("ranks_here", "num_askers"), [(1, 3), (2, 1), (4, 0)])
def test_one_rank_of_a_node_asks_the_store_for_all_of_them(
    job: Job, ranks_here: int, num_askers: int, monkeypatch: Any, tmp_path: Path
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks_here))
    monkeypatch.setattr(node_files, "_FOLDER", tmp_path)
    read_all = Peers.read_all

    def counted(peers: Peers, keys: Sequence[str], *rest: int) -> list[bytes]:
        asked.append(list(keys))
        return read_all(peers, keys, *rest)

    monkeypatch.setattr(Peers, "read_all", counted)
    for rank in RANKS:
        assert job.call_parts(rank, "squares", 7, squares) == [squares(n, 7) for n in range(7)]
    assert job.done == [0] * 7
    heads = [f"/{part}" for part in range(7)]
    of_results = [keys for keys in asked if [key[-2:] for key in keys] == heads]
    # The last rank of all reads the heads once more, to forget the results.
    assert len(of_results) == num_askers + 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("kept", [0, 1, 0.1, 0.5, 0.99])
def test_a_file_whose_writer_was_killed_is_written_anew(
    job: Job, kept: float, monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    monkeypatch.setattr(node_files, "_FOLDER", tmp_path)
    for rank in RANKS[:3]:
        assert job.call_parts(rank, "squares", 7, squares) == [squares(n, 7) for n in range(7)]
        for path in tmp_path.rglob("*"):
            if path.is_file() and rank == 0:
                content = path.read_bytes()
                path.write_bytes(content[: int(kept * len(content))])
    assert job.done == [0] * 7


def test_the_part_that_a_rank_failed_to_do_is_done_by_others(job: Job, caplog: Any) -> None:
    def fail_at_three(part: int, num_parts: int) -> bytes:
        if part == 3:
            raise OSError("the disk of this rank is bad")
        return squares(part, num_parts)

    with pytest.raises(OSError, match="the disk of this rank is bad"):
        job.call_parts(1, "squares", 6, fail_at_three)
    assert job.done == [1] * 4
    assert job.call_parts(0, "squares", 6, squares) == [squares(part, 6) for part in range(6)]
    assert job.done == [1] * 4 + [0] * 3
    assert "rank 1 failed to read its part" in caplog.text
    assert "the disk of this rank is bad" in caplog.text
