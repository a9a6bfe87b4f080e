"""The processes that were started together, and what they leave in their store for each other."""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_LONGEST_PAUSE_SECONDS = 0.25
# One process answers every rank; it has 16,000 answers a second and more.
_MOST_LOOKS_PER_SECOND = 4000
# Keys that are asked for, and values that come, at once.
_MANY = 64
# Tell the starts of a job under torchrun apart. Ranks of which torchrun counts other restarts,
# as it may on other nodes, do not know each other by them.
_OF_START = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")

Of = TypeVar("Of")


@dataclass(frozen=True, eq=False)
class Peers:
    """The processes that are compared, and their common store."""

    ranks: tuple[int, ...]  # of torch.distributed's world, ascending; the first of them compares
    own: int
    store: Store

    @property
    def start(self) -> JobStart:
        """What this rank knows of its peers; the same object each time."""
        of_store = _starts.setdefault(self.store, {})
        found = of_store.get((self.ranks, self.own))
        return found or of_store.setdefault((self.ranks, self.own), JobStart(self))

    @property
    def identity(self) -> list[object]:
        """JSON that differs for other ranks and other starts of a job under torchrun."""
        return [self.ranks, [os.environ.get(name) for name in _OF_START]]

    @property
    def timeout_seconds(self) -> float:
        """How long a rank waits for another one."""
        seconds: float = self.store.timeout.total_seconds()  # type: ignore[attr-defined]
        return seconds

    def read(self, key: str) -> str:
        """Return the text of a key, which is there."""
        return bytes(self.store.get(key)).decode()

    def read_all(self, keys: Sequence[str], at_once: int = _MANY) -> list[bytes]:
        """Return the contents of keys, which are all there, by few requests."""
        found: list[bytes] = []
        for begin in range(0, len(keys), at_once):
            found += map(bytes, self.store.multi_get(list(keys[begin : begin + at_once])))
        return found

    def present(self, keys: Collection[str]) -> list[str]:
        """Return the keys that are there, by few requests if most are."""
        check, every, found = self.store.check, list(keys), list[str]()
        for begin in range(0, len(every), _MANY):
            some = every[begin : begin + _MANY]
            found += some if check(some) else [key for key in some if check([key])]
        return found

    def absent(self, keys: Mapping[Of, str]) -> list[Of]:
        """Return those, such as ranks, whose key is not there."""
        present = set(self.present(keys.values()))
        return [of for of, key in keys.items() if key not in present]

    def wait(
        self,
        keys: Mapping[Of, str],
        limit_seconds: float,
        meanwhile: Callable[[float], None] = lambda _: None,
    ) -> list[Of]:
        """Wait for all keys; return those, such as ranks, whose key does not come in time."""
        # A wait of the store would block other threads from the store, and Ctrl-C from this one.
        begun = time.monotonic()
        longest = max(_LONGEST_PAUSE_SECONDS, len(self.ranks) / _MOST_LOOKS_PER_SECOND)
        pause = longest / 250
        while not self.store.check(list(keys.values())):
            waited = time.monotonic() - begun
            if waited > limit_seconds:
                return self.absent(keys)
            meanwhile(waited)
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(2 * pause, longest)
        return []


class JobStart:
    """The knowledge of one rank about the others that were started with it.

    The first rank invents the name. Each other rank leaves a random word in the store, which the
    first one answers with the name: nobody else can have seen the word.
    """

    def __init__(self, peers: Peers) -> None:
        """Know nothing of the others yet."""
        self._place = f"torchparquet/start/{digest(peers.ranks)}"
        self._answered: set[str] = set()
        self._counts: Counter[str] = Counter()
        # Unique among all starts that share the store; "" until it is known.
        self.name = uuid.uuid4().hex if peers.own == peers.ranks[0] else ""
        self.has_met_all = False
        # The latest comparison to come in which this rank has said that it cannot begin.
        self.excused_at = -1

    def number(self, what: str) -> int:
        """Return how often this was called before for the same `what`."""
        self._counts[what] += 1
        return self._counts[what] - 1

    def next_number(self, what: str) -> int:
        """Return what `number` will return."""
        return self._counts[what]

    def learn_name(self, peers: Peers, wait: Callable[[str], bool]) -> bool:
        """Learn the name from the first rank; return False if that did not come."""
        word = uuid.uuid4().hex
        peers.store.set(f"{self._place}/word/{peers.own}", word)
        key = f"{self._place}/answer/{word}"
        if wait(key):
            self.name = peers.read(key)
        return self.name != ""

    def answer(self, peers: Peers) -> None:
        """Tell the name to all who wait for it; for the first rank, whenever it waits."""
        if self.has_met_all:
            return
        words = peers.present([f"{self._place}/word/{rank}" for rank in peers.ranks[1:]])
        # A word may be that of a rank that is gone, and be replaced.
        new = {word.decode() for word in peers.read_all(words)} - self._answered
        if new:
            answers = [f"{self._place}/answer/{word}" for word in new]
            store: Any = peers.store  # whose types leave it out
            store.multi_set(answers, [self.name] * len(answers))
            self._answered |= new


_starts: weakref.WeakKeyDictionary[Store, dict[tuple[tuple[int, ...], int], JobStart]]
_starts = weakref.WeakKeyDictionary()


def digest(identity: object) -> str:
    return hashlib.blake2b(json.dumps(identity).encode(), digest_size=8).hexdigest()
