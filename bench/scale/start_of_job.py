"""The steps of a rank from the making of its data set to its second batch, in simulated time."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from scale.simulation import SCALE, World
from torchparquet._impl.ranks.agreement import RankNote, begin_together
from torchparquet._impl.ranks.divided_work import Work, divided
from torchparquet._impl.ranks.peers import Peers

_KEYS_OF_PAGE = 1000


@dataclass(frozen=True)
class Start:
    """A start of a job.

    Attributes:
        num_files: Of one folder.
        first_ranges: Ranges that a rank needs for its first batch.
        ranges_ahead: Ranges that it asks for at once; those of the first batch are among them.
        range_seconds: Of each, after its first byte.
        is_cached: There is a manifest cache that another start has written, as after a failure.
        ranges_of_file: Ranges of each file that an epoch reads; 0 for no epoch.
    """

    num_files: int
    first_ranges: int = 2
    ranges_ahead: int = 2
    range_seconds: float = 0.0
    is_cached: bool = False
    ranges_of_file: int = 0


@dataclass
class Report:
    """The result of a start: seconds, and requests of all ranks, by phase.

    `busy_seconds` and `sent_bytes` are of the server of torch.distributed's store.
    """

    seconds: dict[str, float]
    operations: dict[str, Counter[str]]
    requests: dict[str, Counter[str]]
    busy_seconds: dict[str, float]
    sent_bytes: dict[str, int]


def simulated(world: World, start: Start) -> Report:
    """Runs a start in simulated time; ranks begin each phase when all have ended the last one.

    So do real ranks that are measured; a job's own ranks go on at once.
    """
    report = Report({}, {}, {}, {}, {})
    for name, act in _phases(world, start).items():
        begun = world.env.now
        before = Counter(world.store.counts), Counter(world.objects.num_requests)
        busy, sent = world.store.busy_seconds, world.store.num_bytes
        ends: list[float] = []

        def rank(peers: Peers, act: Callable[[Peers], None] = act) -> None:
            act(peers)
            ends.append(world.env.now)  # noqa: B023

        world.run(rank)
        report.seconds[name] = max(ends) - begun
        report.operations[name] = world.store.counts - before[0]
        report.requests[name] = world.objects.num_requests - before[1]
        report.busy_seconds[name] = world.store.busy_seconds - busy
        report.sent_bytes[name] = world.store.num_bytes - sent
    return report


def _phases(world: World, start: Start) -> dict[str, Callable[[Peers], None]]:
    costs, num_files = world.costs, start.num_files

    def list_files(*_: int) -> bytes:
        # Requests: is the folder a file, is it there, and its pages.
        world.in_turn(1, "look")
        world.in_turn(1 + -(-num_files // _KEYS_OF_PAGE), "list")
        world.compute(costs.listed * num_files)
        return stand_in(costs.listed_bytes * num_files)

    def read_footers(part: int, num_parts: int) -> bytes:
        files = _part_of(num_files, part, num_parts)
        world.fetch_footers(files)
        world.compute(costs.footer * files)
        return stand_in(costs.footer_bytes * files)

    def read_cache(*_: int) -> bytes:
        world.compute(costs.decode_file * num_files)
        return stand_in(costs.footer_bytes * num_files)

    def open_(peers: Peers) -> None:
        def connected(work: Work) -> Work:
            def act(*part: int) -> bytes:
                world.connect(peers.own)
                return work(*part)

            return act

        divided(peers, "list", 1, connected(list_files))
        if start.is_cached:
            divided(peers, "kept", 1, read_cache)
        else:
            divided(peers, "footers", num_files, connected(read_footers))
        world.compute(costs.decode_file * num_files)

    def first_batch(peers: Peers) -> None:
        world.connect(peers.own)
        world.fetch(start.ranges_ahead, start.range_seconds, start.first_ranges)

    def agree(peers: Peers) -> None:
        note = {"files": "x" * costs.rank_note_bytes}
        begin_together(peers, lambda: RankNote(peers.own, len(peers.ranks), note))
        # The epochs of this rank: the present and the next one.
        peers.store.set(f"epoch/{peers.own}", "0")
        peers.store.check([f"epoch/{(peers.own + 1) % len(peers.ranks)}"])

    def epoch(peers: Peers) -> None:
        # Its loop asks for nothing but bytes: the least time that the store leaves it.
        share = _part_of(num_files * start.ranges_of_file, peers.own, len(peers.ranks))
        if share:
            world.fetch(share, start.range_seconds, share)

    phases: dict[str, Callable[[Peers], None]]
    phases = {"open": open_, "first batch": first_batch, "second batch": agree}
    return phases | ({"epoch": epoch} if start.ranges_of_file else {})


def _part_of(total: int, part: int, num_parts: int) -> int:
    return total * (part + 1) // num_parts - total * part // num_parts


def stand_in(num_bytes: float) -> bytes:
    """Return bytes that cannot be compressed, of a thousandth of the size."""
    return os.urandom(int(num_bytes / SCALE))
