"""Work before an epoch, such as a pass over row groups, which ranks divide through their store.

    next part, counted in the store ──► this rank does it ──► its result in the store
            │ no part is left
            ▼
    the results of other ranks; a part that does not come is done here too

So a rank that comes late finds what is left, one that comes alone does all, and none waits for a
rank that does not do the same work.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import zlib
from collections.abc import Callable
from typing import TypeAlias

from torchparquet._impl.ranks.peers import Peers, digest
from torchparquet.errors import one_line

# From the number of a part, and how many there are, to the result.
Work: TypeAlias = Callable[[int, int], bytes]

# Ranks that are faster than others do more of them.
_PARTS_OF_RANK = 4
# Every rank reads every part from one store.
_MOST_PARTS = 128
# A store takes no value above 8 MiB, and the process that holds it has only so much memory.
_VALUE_CHARACTERS = 4 << 20
_MOST_VALUES = 64
_WARN_AFTER_SECONDS = 30.0
_NOTHING = "-"
# Tell the starts of a job under torchrun apart. Ranks of which torchrun counts other restarts,
# as it may on other nodes, work for themselves.
_OF_START = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")

_logger = logging.getLogger("torchparquet")


def divided(peers: Peers | None, what: str, most_parts: int, work: Work) -> list[bytes]:
    """Return the results of the parts of `work`, in order, each done by one rank.

    The n-th call of a rank for one `what` belongs to the n-th calls of others. Without peers there
    is one part.
    """
    if peers is None:
        return [work(0, 1)]
    num_parts = max(1, min(most_parts, _PARTS_OF_RANK * len(peers.ranks), _MOST_PARTS))
    told = [peers.ranks, what, num_parts, [os.environ.get(name) for name in _OF_START]]
    place = f"torchparquet/work/{(of := digest(told))}/{peers.start.number(of)}"
    done: dict[int, bytes] = {}
    while (part := peers.store.add(f"{place}/taken", 1) - 1) < num_parts:
        done[part] = _done(peers, f"{place}/{part}", work, part, num_parts)
    for part in range(num_parts):
        if part not in done:
            found = _left_by_another(peers, f"{place}/{part}")
            done[part] = work(part, num_parts) if found is None else found
    if peers.store.add(f"{place}/read", 1) == len(peers.ranks):
        _forget(peers, place, num_parts)
    return [done[part] for part in range(num_parts)]


def _forget(peers: Peers, place: str, num_parts: int) -> None:
    """Free the store's memory of parts that all ranks have."""
    for part in range(num_parts):
        key = f"{place}/{part}"
        left = peers.read(key) if peers.has_any([key]) else _NOTHING
        values = 0 if left.startswith(_NOTHING) else json.loads(left)
        for name in (key, f"{key}/rank", *(f"{key}/{number}" for number in range(values))):
            peers.store.delete_key(name)
    peers.store.delete_key(f"{place}/taken")
    peers.store.delete_key(f"{place}/read")


def _done(peers: Peers, key: str, work: Work, part: int, num_parts: int) -> bytes:
    """Do a part, and leave its result for others; also that there is none, since they wait."""
    peers.store.set(f"{key}/rank", str(peers.own))
    left = _NOTHING
    try:
        made = work(part, num_parts)
        packed = base64.b64encode(zlib.compress(made)).decode()
        begins = range(0, len(packed), _VALUE_CHARACTERS)
        if len(begins) <= max(1, _MOST_VALUES // num_parts):
            for value, begin in enumerate(begins):
                peers.store.set(f"{key}/{value}", packed[begin : begin + _VALUE_CHARACTERS])
            left = json.dumps(len(begins))
    except Exception as error:
        left += one_line(error)
        raise
    finally:
        peers.store.set(key, left)
    return made


def _left_by_another(peers: Peers, key: str) -> bytes | None:
    """Return the result of another rank; None if it left none within the store's timeout."""
    warned = False

    def look(waited: float) -> None:
        nonlocal warned
        if waited > _WARN_AFTER_SECONDS and not warned:
            warned = True
            _logger.warning(
                "rank %d waits for what rank %s reads before the first epoch, since %d seconds",
                peers.own,
                _taker(peers, key),
                waited,
            )

    if not peers.wait([key], peers.timeout_seconds, look):
        _logger.warning(
            "rank %s has not ended what it reads before the first epoch within the timeout of "
            "torch.distributed's store, %d seconds, so rank %d reads it too",
            _taker(peers, key),
            peers.timeout_seconds,
            peers.own,
        )
        return None
    left = peers.read(key)
    if left.startswith(_NOTHING):
        if left != _NOTHING:
            _logger.warning(
                "rank %s failed to read its part before the first epoch, so rank %d reads it too: "
                "%s",
                _taker(peers, key),
                peers.own,
                left[1:],
            )
        return None
    values = [peers.read(f"{key}/{number}") for number in range(json.loads(left))]
    return zlib.decompress(base64.b64decode("".join(values)))


def _taker(peers: Peers, key: str) -> str:
    return peers.read(f"{key}/rank") if peers.has_any([f"{key}/rank"]) else "(unknown)"
