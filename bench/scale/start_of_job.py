"""The steps of a rank from the making of its data set to its second batch, in simulated time."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

import simpy

from scale.simulation import SCALE, World
from torchparquet._impl.ranks.agreement import RankNote, begin_together
from torchparquet._impl.ranks.divided_work import Work, divided
from torchparquet._impl.ranks.peers import Peers

_KEYS_OF_PAGE = 1000
# See `files/manifest_reading` and `rows/evaluation`.
FILES_AT_ONCE, _PARTS_AT_ONCE = 256, 3


@dataclass(frozen=True)
class Start:
    """A start of a job.

    Attributes:
        num_files: Of one folder.
        first_ranges: Ranges that a rank needs for its first batch; 0 for no batch.
        ranges_ahead: Ranges that it asks for at once; those of the first batch are among them.
        range_seconds: Of each, after its first byte.
        is_cached: There is a manifest cache that another start has written, as after a failure.
        ranges_of_file: Ranges of each file that an epoch reads; 0 for no epoch.
        has_condition: Ranks find the rows of a condition, by one range of each file.
    """

    num_files: int
    first_ranges: int = 2
    ranges_ahead: int = 2
    range_seconds: float = 0.0
    is_cached: bool = False
    ranges_of_file: int = 0
    has_condition: bool = False


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
    for name, act in _Steps(world, start).phases().items():
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


class _Steps:
    """What ranks do in each phase of a start."""

    def __init__(self, world: World, start: Start) -> None:
        self._world, self._start, self._costs = world, start, world.costs
        self._is_early = start.has_condition and start.num_files >= FILES_AT_ONCE
        # By rank and part of which it has the footers: the rows that are found meanwhile.
        self._begun: dict[tuple[int, int], list[simpy.Event]] = {}
        self._under_way: dict[int, deque[simpy.Event]] = {}

    def phases(self) -> dict[str, Callable[[Peers], None]]:
        phases: dict[str, Callable[[Peers], None]]
        phases = {"open": self._open}
        if self._start.first_ranges:
            phases |= {"first batch": self._first, "second batch": self._agree}
        return phases | ({"epoch": self._epoch} if self._start.ranges_of_file else {})

    def _open(self, peers: Peers) -> None:
        world, start, num_files = self._world, self._start, self._start.num_files

        def connected(work: Callable[..., bytes]) -> Work:
            def act(*part: int) -> bytes:
                world.connect(peers.own)
                return work(peers.own, *part)

            return act

        divided(peers, "list", 1, connected(self._list))
        if start.is_cached:
            divided(peers, "kept", 1, self._read_cache)
        else:
            divided(peers, "footers", num_files, connected(self._read_footers))
        world.compute(self._costs.decode_file * num_files)
        if start.has_condition:

            def is_begun(part: int, _: int) -> bool:
                return (peers.own, part) in self._begun

            is_divided = self._is_early and not start.is_cached
            of_begun = is_begun if is_divided else None
            divided(peers, "rows", num_files, connected(self._select), of_begun)

    def _list(self, *_: int) -> bytes:
        num_files = self._start.num_files
        pages = ["list"] * -(-num_files // _KEYS_OF_PAGE)
        # Is the folder a file, and is it there? Meanwhile its pages.
        self._world.in_turn(
            [[one for one in ones if one] for ones in zip_longest(["look", "list"], pages)]
        )
        self._world.compute(self._costs.listed * num_files)
        return stand_in(self._costs.listed_bytes * num_files)

    def _read_cache(self, *_: int) -> bytes:
        self._world.compute(self._costs.decode_file * self._start.num_files)
        return stand_in(self._costs.footer_bytes * self._start.num_files)

    def _read_footers(self, own: int, part: int, num_parts: int) -> bytes:
        files = _part_of(self._start.num_files, part, num_parts)
        most = FILES_AT_ONCE if self._is_early else files
        self._begun[own, part] = []
        for some in (min(most, files - at) for at in range(0, files, most)):
            self._world.wait(self._world.ask_small(own, some))
            self._world.compute(self._costs.footer * some)
            if self._is_early:
                self._begin(own, part, some)
        return stand_in(self._costs.footer_bytes * files)

    def _begin(self, own: int, part: int, files: int) -> None:
        under_way = self._under_way.setdefault(own, deque())
        if len(under_way) >= _PARTS_AT_ONCE:
            self._world.wait(under_way.popleft())
        found = self._world.beside(own, partial(self._find, own, files))
        under_way.append(found)
        self._begun[own, part].append(found)

    def _find(self, own: int, files: int) -> None:
        self._world.wait(self._world.ask_small(own, files))
        self._world.compute(self._costs.evaluated * files)

    def _select(self, own: int, part: int, num_parts: int) -> bytes:
        files = _part_of(self._start.num_files, part, num_parts)
        found = self._begun.get((own, part))
        if found is None:
            # Footers that another rank has read come first.
            self._world.wait(self._world.ask_small(own, files))
        for one in found or ():
            self._world.wait(one)
        if not found:
            self._find(own, files)
        return stand_in(self._costs.selected_bytes * files)

    def _first(self, peers: Peers) -> None:
        self._world.connect(peers.own)
        start = self._start
        self._world.fetch(start.ranges_ahead, start.range_seconds, start.first_ranges)

    def _agree(self, peers: Peers) -> None:
        note = {"files": "x" * self._costs.rank_note_bytes}
        begin_together(peers, lambda: RankNote(peers.own, len(peers.ranks), note))
        # The epochs of this rank: the present and the next one.
        peers.store.set(f"epoch/{peers.own}", "0")
        peers.store.check([f"epoch/{(peers.own + 1) % len(peers.ranks)}"])

    def _epoch(self, peers: Peers) -> None:
        # Its loop asks for nothing but bytes: the least time that the store leaves it.
        total = self._start.num_files * self._start.ranges_of_file
        share = _part_of(total, peers.own, len(peers.ranks))
        if share:
            self._world.fetch(share, self._start.range_seconds, share)


def _part_of(total: int, part: int, num_parts: int) -> int:
    return total * (part + 1) // num_parts - total * part // num_parts


def stand_in(num_bytes: float) -> bytes:
    """Return bytes that cannot be compressed, of a thousandth of the size."""
    return os.urandom(int(num_bytes / SCALE))
