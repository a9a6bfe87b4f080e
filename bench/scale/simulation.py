"""Simulated time for ranks that run the package's own protocol: stores, nodes, a clock.

A rank is a greenlet that runs the real code of `ranks/`. What it asks of the store of
torch.distributed, and what it sleeps, becomes an event of simpy; so requests are those of real
ranks by construction, and 10,000 ranks take one process. Contents are stand-ins of a thousandth of
their size, which the stores count in full.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any
from unittest import mock

import greenlet
import simpy

from torchparquet._impl.ranks import divided_work, peers

SCALE = 1024
# Of the native client: see cpp/remote/http/pacing.h.
_FIRST_SPAN, _MAX_SPAN, _MAX_TRIES, _MAX_SECONDS, _BURST = 0.1, 20.0, 91, 180.0, 0.5
_TURN_SECONDS = 0.02
# Connections of a rank, see `files/store_reading`.
_LEAST = 8


@dataclass(frozen=True)
class Costs:
    """The costs that were measured on one machine, in seconds; see `constants`.

    Attributes:
        operation: Of the server of torch.distributed's store, by name, for one key.
        more_key: For each further key of a request.
        server_byte: For each byte that the server takes or sends.
        round_trip: Between a rank and the server.
        footer: To parse a footer and make a manifest's row of it.
        listed: To list a key, beyond the page's latency.
        open_store: Processor time of a rank that makes its first data set: what it loads, and its
            connection to the store of objects.
        evaluated: To find the rows of a condition in a file.
        decode_file: To decode a file's row of the listing and the manifest of others.
        listed_bytes: Of a file in the listing, compressed.
        footer_bytes: Of a file in the manifest, compressed.
        selected_bytes: Of a file in the rows that a condition leaves, compressed.
        rank_note_bytes: Of what a rank tells others.
    """

    operation: dict[str, float]
    more_key: float
    server_byte: float
    round_trip: float
    footer: float
    listed: float
    open_store: float
    evaluated: float
    decode_file: float
    listed_bytes: float
    footer_bytes: float
    selected_bytes: float
    rank_note_bytes: int


@dataclass(frozen=True)
class Machine:
    """The part of a machine's processors that ranks get, beside other programs.

    It is measured, because it is no part of equal size: Linux divides processors among sessions
    first, and runs programs at once that have slept, as ranks do between answers.

    Attributes:
        processors: That some ranks get together while they make their data sets, by their number.
    """

    processors: Mapping[int, float]

    def mean(self, other: Machine) -> Machine:
        """Return what lies between two measurements."""
        return Machine({n: (of + other.processors[n]) / 2 for n, of in self.processors.items()})

    def slowdown(self, num_ranks: int) -> float:
        """Return seconds for each second of a processor."""
        return num_ranks / self.processors[max(n for n in self.processors if n <= num_ranks)]


@dataclass
class Objects:
    """A store of objects: a latency, a bandwidth, and a limit on requests of each prefix."""

    env: simpy.Environment
    latency: float
    limit_per_second: float = float("inf")
    num_requests: Counter[str] = field(default_factory=Counter)
    _spare: float = 0.0
    _at: float = 0.0

    def accepts(self, kind: str) -> bool:
        """Count a request, and return whether the store answers it; 503 else."""
        self.num_requests[kind] += 1
        if self.limit_per_second == float("inf"):
            return True
        # A tenth of a second's requests may come at once.
        gained = (self.env.now - self._at) * self.limit_per_second
        self._spare = min(self._spare + gained, self.limit_per_second / 10)
        self._at = self.env.now
        if self._spare < 1:
            self.num_requests["503"] += 1
            return False
        self._spare -= 1
        return True


class TorchStore:
    """The server of torch.distributed's store: one after another, in order of arrival."""

    timeout = timedelta(seconds=1800)

    def __init__(self, world: World) -> None:
        """Hold nothing."""
        self._world, self._values, self._free_at = world, dict[str, bytes](), 0.0
        self.counts, self.busy_seconds, self.num_bytes = Counter[str](), 0.0, 0

    def _ask(self, name: str, values: Mapping[str, bytes | None]) -> None:
        """Wait for the server's answer to a request of keys, with values of either side."""
        costs, now = self._world.costs, self._world.env.now
        service = costs.operation[name] + costs.more_key * max(0, len(values) - 1)
        full = sum(_num_bytes(*of) for of in values.items())
        service += costs.server_byte * full
        arrives = now + costs.round_trip / 2
        self._free_at = max(arrives, self._free_at) + service
        self.counts[name] += 1
        self.busy_seconds += service
        self.num_bytes += full
        # Nobody waits for what is set.
        if name not in ("set", "multi_set"):
            self._world.sleep(self._free_at + costs.round_trip / 2 - now)

    def set(self, key: str, value: str | bytes) -> None:
        """As torch's."""
        content = value.encode() if isinstance(value, str) else value
        self._ask("set", {key: content})
        self._values[key] = content

    def get(self, key: str) -> bytes:
        """As torch's, of a key that is there."""
        self._ask("get", {key: self._values[key]})
        return self._values[key]

    def add(self, key: str, amount: int) -> int:
        """As torch's."""
        self._ask("add", {key: None})
        self._values[key] = b"%d" % (int(self._values.get(key, b"0")) + amount)
        return int(self._values[key])

    def check(self, keys: Collection[str]) -> bool:
        """As torch's."""
        self._ask("check", dict.fromkeys(keys))
        return all(key in self._values for key in keys)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """As torch's, of keys that are there."""
        values = {key: self._values[key] for key in keys}
        self._ask("multi_get", values)
        return list(values.values())

    def multi_set(self, keys: Sequence[str], values: Sequence[str]) -> None:
        """As torch's."""
        given = {key: value.encode() for key, value in zip(keys, values, strict=True)}
        self._ask("multi_set", given)
        self._values |= given

    def compare_set(self, key: str, _: str, wanted: str) -> bytes:
        """As torch's, for a key that is not there yet."""
        self._ask("compare_set", {key: None})
        return self._values.setdefault(key, wanted.encode())

    def delete_key(self, key: str) -> bool:
        """As torch's."""
        self._ask("delete_key", {key: None})
        return self._values.pop(key, None) is not None


@dataclass
class World:
    """Ranks, their nodes and their stores, in simulated time.

    Attributes:
        machine: One that all ranks share, as in a check; None: each rank has a processor.
    """

    costs: Costs
    num_ranks: int
    ranks_per_node: int
    latency: float
    limit_per_second: float = float("inf")
    machine: Machine | None = None

    def __post_init__(self) -> None:
        """Begin at no time."""
        self.env = simpy.Environment()
        self.objects = Objects(self.env, self.latency, self.limit_per_second)
        self.store = TorchStore(self)
        self._num_computing = 0
        self._free_at: dict[int, float] = {}
        self._files: dict[tuple[int, str], tuple[int, simpy.Resource]] = {}
        self._connected: set[int] = set()
        self._clients: dict[int, _Client] = {}
        self.failures: list[Exception] = []

    def sleep(self, seconds: float) -> None:
        """Let simulated time pass for the rank that calls."""
        self.wait(self.env.timeout(max(0.0, seconds)))

    def compute(self, seconds: float) -> None:
        """Have a processor work for the rank that calls, whose threads take turns."""
        rank, now = greenlet.getcurrent().rank, self.env.now
        if self.machine is None:
            self._free_at[rank] = max(now, self._free_at.get(rank, 0.0)) + seconds
            self.sleep(self._free_at[rank] - now)
            return
        self._num_computing += 1
        while seconds > 0:
            part = min(seconds, _TURN_SECONDS)
            self.sleep(part * self.machine.slowdown(self._num_computing))
            seconds -= part
        self._num_computing -= 1

    def connect(self, rank: int) -> None:
        """Have a rank make what reaches the store of objects, if it has not yet."""
        if rank not in self._connected:
            self._connected.add(rank)
            self.compute(self.costs.open_store)

    def in_turn(self, steps: Sequence[Collection[str]]) -> None:
        """Ask the store of objects for one thing after another, or for some at once."""
        for kinds in steps:
            left = list(kinds)
            for failures in range(_MAX_TRIES):
                self.sleep(self.latency)
                left = [kind for kind in left if not self.objects.accepts(kind)]
                if not left:
                    break
                self.sleep(_wait_after(failures))

    def ask_small(self, rank: int, num_requests: int) -> simpy.Event:
        """Ask for footers or columns by the native client, and return when all have come."""
        least = min(64, max(32, 4096 // self.num_ranks))
        client = self._clients.get(rank) or self._clients.setdefault(rank, _Client(self, least))
        return client.ask(num_requests, 0.0, num_requests)

    def fetch(self, num_requests: int, seconds_each: float, first: int) -> None:
        """Ask for ranges by the native client, and wait for the first of them."""
        self.wait(_Client(self, _LEAST).ask(num_requests, seconds_each, first))

    def beside(self, rank: int, act: Callable[[], None]) -> simpy.Event:
        """Have a thread of a rank act, and return its end."""
        return self.env.process(self._process(act, rank))

    @staticmethod
    def wait(event: simpy.Event) -> None:
        """Wait, for the rank that calls."""
        if not event.processed:
            greenlet.getcurrent().parent.switch(event)

    def run(self, rank: Callable[[peers.Peers], None]) -> float:
        """Run all ranks, and return when the last one ended."""
        numbers = tuple(range(self.num_ranks))
        with contextlib.ExitStack() as stack:
            for patch in self._patches():
                stack.enter_context(patch)
            for own in numbers:
                of = peers.Peers(numbers, own, self.store)  # type: ignore[arg-type]
                self.env.process(self._process(partial(rank, of), own))
            self.env.run()
        if self.failures:
            raise self.failures[0]
        return float(self.env.now)

    def _process(self, act: Callable[[], None], rank: int) -> Generator[simpy.Event, Any, None]:
        def guarded() -> None:
            greenlet.getcurrent().rank = rank
            try:
                act()
            except Exception as error:
                self.failures.append(error)

        running = greenlet.greenlet(guarded)
        event = running.switch()
        while not running.dead:
            yield event
            event = running.switch()

    def _patches(self) -> Iterator[Any]:
        """Return what replaces the clock, the processors of a node, and its memory."""
        clock = mock.Mock(monotonic=lambda: self.env.now, sleep=self.sleep)
        yield mock.patch.object(peers, "time", clock)
        yield mock.patch.dict(os.environ, LOCAL_WORLD_SIZE=str(self.ranks_per_node))
        yield mock.patch.object(divided_work, "shared_file", self._shared_file)
        yield mock.patch.object(divided_work, "forget", self._forget)
        yield mock.patch("atexit.register")
        yield mock.patch.object(divided_work, "_VALUE_BYTES", divided_work._VALUE_BYTES // SCALE)

    @contextlib.contextmanager
    def _shared_file(self, name: str) -> Iterator[int]:
        key = greenlet.getcurrent().rank // self.ranks_per_node, name
        if key not in self._files:
            self._files[key] = os.memfd_create(name), simpy.Resource(self.env, 1)
        file, lock = self._files[key]
        with lock.request() as turn:
            self.wait(turn)
            yield file

    def _forget(self, name: str, _: int) -> None:
        file, _lock = self._files.pop((greenlet.getcurrent().rank // self.ranks_per_node, name))
        os.close(file)


def _num_bytes(key: str, value: bytes | None) -> int:
    if value is None:
        return 0
    # Results of work are stand-ins; the rank that takes a part is not.
    is_result = key.startswith("torchparquet/work/") and re.search(r"/\d+/\d+/\d+$", key)
    return len(value) * (SCALE if is_result else 1)


def _wait_after(failures: int) -> float:
    return random.uniform(0.0, min(_MAX_SPAN, _FIRST_SPAN * 2**failures))


@dataclass
class _Asked:
    """Requests that belong together: `come` happens when the first of them have been answered."""

    seconds_each: float
    first: int
    come: simpy.Event

    def answered(self) -> None:
        self.first -= 1
        if self.first == 0:
            self.come.succeed()


class _Client:
    """The native client of one process: how many requests are in flight, and other tries."""

    def __init__(self, world: World, least: int) -> None:
        self._world, self._most = world, max(least, 64 // world.ranks_per_node)
        self._allowed, self._is_new, self._round = max(self._most // 4, 1), True, 0
        self._overloaded_at, self._in_flight = -1.0, 0
        self._queue = deque[tuple[_Asked, int, float]]()  # failures, the first at

    def ask(self, num_requests: int, seconds_each: float, first: int) -> simpy.Event:
        """Queue requests, and return when the first of them have come."""
        asked = _Asked(seconds_each, first, self._world.env.event())
        self._queue.extend([(asked, 0, 0.0)] * num_requests)
        self._begin()
        return asked.come

    def _begin(self) -> None:
        while self._queue and self._in_flight < self._allowed:
            self._in_flight += 1
            # A refusal comes as late as a first byte.
            self._after(self._world.latency, partial(self._answered, *self._queue.popleft()))

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._world.env.timeout(seconds).callbacks.append(lambda _: act())

    def _answered(self, asked: _Asked, failures: int, first_at: float) -> None:
        if self._world.objects.accepts("range"):
            return self._after(asked.seconds_each, partial(self._completed, asked))
        self._in_flight -= 1
        now = self._world.env.now
        if now - self._overloaded_at >= _BURST:
            self._overloaded_at, self._is_new, self._round = now, False, 0
            self._allowed = max(1, self._allowed // 2)
        first_at = first_at or now
        if failures + 1 >= _MAX_TRIES or now >= first_at + _MAX_SECONDS:
            self._world.objects.num_requests["given up"] += 1
            asked.answered()
        else:
            again = partial(self._again, asked, failures + 1, first_at)
            self._after(_wait_after(failures), again)
        return self._begin()

    def _completed(self, asked: _Asked) -> None:
        self._in_flight -= 1
        self._round += 1
        if self._is_new or self._round >= self._allowed:
            self._round, self._allowed = 0, min(self._most, self._allowed + 1)
        asked.answered()
        self._begin()

    def _again(self, *of: Any) -> None:
        self._queue.append(of)
        self._begin()
