"""The name of this start of a job, which only its own ranks know.

A launcher may keep one store over all starts of a job, as torchrun does. It then holds notes of
processes that are gone, and a note of this start must be told from those. No variable of the
launcher does that: torchrun counts the restarts of each node by itself.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_LONGEST_PAUSE_SECONDS = 0.25


@dataclass(frozen=True, eq=False)
class Peers:
    """The processes that are compared, and their common store."""

    ranks: tuple[int, ...]  # of torch.distributed's world, ascending; the first of them compares
    own: int
    store: Store


class JobStart:
    """The knowledge of one rank about the others that were started with it.

    The first rank invents the name. Each other rank leaves a random word in the store, which the
    first one answers with the name. A rank that finds an answer to its own word knows that it comes
    from this start: nobody else can have seen the word.

    Attributes:
        name: Unique among all starts that share the store; "" until it is known.
        excused_at: The number of the latest comparison to come of which this rank has said that it
            cannot begin; -1 for none.
    """

    def __init__(self, peers: Peers) -> None:
        """Know nothing of the others yet."""
        digest = hashlib.blake2b(json.dumps(peers.ranks).encode(), digest_size=8).hexdigest()
        self._place = f"torchparquet/start/{digest}"
        self._others = peers.ranks[1:]
        self._answered: dict[int, bytes] = {}
        self._counts: Counter[str] = Counter()
        self.name = uuid.uuid4().hex if peers.own == peers.ranks[0] else ""
        self.has_met_all = False
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
            self.name = bytes(peers.store.get(key)).decode()
        return self.name != ""

    def answer(self, store: Store) -> None:
        """Tell the name to all who wait for it; for the first rank, whenever it waits."""
        if self.has_met_all:
            return
        for rank in self._others:
            key = f"{self._place}/word/{rank}"
            # The word may be that of a rank that is gone, and be replaced.
            if store.check([key]) and self._answered.get(rank) != (word := bytes(store.get(key))):
                store.set(f"{self._place}/answer/{word.decode()}", self.name)
                self._answered[rank] = word


def job_start(peers: Peers) -> JobStart:
    """Return what this rank knows of its peers; the same object each time."""
    of_store = _starts.setdefault(peers.store, {})
    found = of_store.get((peers.ranks, peers.own))
    return found or of_store.setdefault((peers.ranks, peers.own), JobStart(peers))


def await_keys(
    store: Store,
    keys: Collection[str],
    limit_seconds: float,
    meanwhile: Callable[[float], None] = lambda _: None,
) -> bool:
    """Wait for all keys; return False if they do not come in time."""
    # A wait of the store would block other threads from the store, and Ctrl-C from this one.
    begun = time.monotonic()
    pause = 0.001
    while not store.check(list(keys)):
        waited = time.monotonic() - begun
        if waited > limit_seconds:
            return False
        meanwhile(waited)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    return True


_starts: weakref.WeakKeyDictionary[Store, dict[tuple[tuple[int, ...], int], JobStart]]
_starts = weakref.WeakKeyDictionary()
