"""The metrics of all ranks, made of those of each, and the slowest rank."""

from __future__ import annotations

import functools
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torchparquet._impl.metrics.read_metrics import Metrics, Ring, SlowestRank, added
from torchparquet._impl.ranks.gathering import gathered
from torchparquet._impl.ranks.peers import Peers
from torchparquet._impl.reading.waits import Waits

# Of these, ranks in step have about the same.
_OF_LOOP = (
    *("elapsed_seconds", "wait_seconds", "first_wait_seconds", "function_seconds", "next_seconds"),
)


@dataclass(frozen=True)
class Late:
    """A rank's time since ranks were last compared; see `SlowestRank`."""

    next_seconds: float
    max_wait_seconds: float
    origin: str


def of_all_ranks(peers: Peers | None, share: int, own: Metrics, late: Late) -> Metrics:
    """Return the metrics of all ranks; each must call this, with the number of its share."""
    rank = 0 if peers is None else peers.own
    slowest = SlowestRank(rank, socket.gethostname(), **asdict(late))
    bare = replace(own, columns={}, codecs={}, sources=(), slowest=slowest)
    note = json.dumps([share, asdict(bare)])
    if peers is None:
        return _metrics_of(_merged({rank: note}))
    return _metrics_of(gathered(peers, "metrics", note, _merged))


def _metrics_of(text: str) -> Metrics:
    return _read(json.loads(text)[1])


def _read(parts: dict[str, Any]) -> Metrics:
    waits = parts["waits"]
    made = {
        "ring": Ring(**parts["ring"]),
        "waits": Waits(tuple(waits["counts"]), waits["max_seconds"]),
        "slowest": SlowestRank(**parts["slowest"]),
        "sources": (),
    }
    return Metrics(**(parts | made))


def _merged(notes: Mapping[int, str]) -> str:
    """Return a note of all ranks; what those of one share have read is counted once."""
    found = [json.loads(notes[rank]) for rank in sorted(notes)]
    of_shares: dict[int, Metrics] = {}
    for share, parts in found:
        of_shares.setdefault(share, _read(parts))
    merged = _summed(list(of_shares.values()))
    told = [SlowestRank(**parts["slowest"]) for _, parts in found]
    slowest = max(told, key=lambda one: one.next_seconds)
    return json.dumps([0, asdict(replace(merged, slowest=slowest))])


def _summed(of_shares: Sequence[Metrics]) -> Metrics:
    total: Metrics = functools.reduce(added, of_shares)
    means = {name: getattr(total, name) / len(of_shares) for name in _OF_LOOP}
    return replace(total, **means)
