"""Gathers a text of each rank through the store, and gives all ranks what the first makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torchparquet._impl.ranks.agreement import listed, start_of_job
from torchparquet._impl.ranks.peers import Peers
from torchparquet.errors import RankMismatchError

_SLACK_SECONDS = 10.0
# Before the first rank's result.
_MADE, _ABSENT = "+", "-"


def gathered(peers: Peers, what: str, own: str, merged: Callable[[Mapping[int, str]], str]) -> str:
    """Return what the first rank makes of the texts of all ranks, each of which must call this.

    Each rank writes once and reads once, the first one reads all; nothing stays in the store but
    the latest result.
    """
    first, store = peers.ranks[0], peers.store
    root = f"torchparquet/{what}/{start_of_job(peers)}"
    number = peers.start.number(what)
    keys = {rank: f"{root}/{number}/{rank}" for rank in peers.ranks}
    result = f"{root}/{number}/result"
    store.set(keys[peers.own], own)
    if peers.own == first:
        absent = peers.wait(keys, peers.timeout_seconds)
        if not absent:
            texts = [content.decode() for content in peers.read_all(list(keys.values()))]
            found = _MADE + merged(dict(zip(keys, texts, strict=True)))
            store.delete_key(f"{root}/{number - 1}/result")  # all have read it
        else:
            found = _ABSENT + listed(absent)
        store.set(result, found)
        for key in keys.values():
            store.delete_key(key)
    elif peers.wait({first: result}, peers.timeout_seconds + _SLACK_SECONDS):
        found = _ABSENT + listed([first])
    else:
        found = peers.read(result)
    if found.startswith(_ABSENT):
        raise RankMismatchError(
            f"every rank must call it for the {what} of all ranks, and {found[1:]} did not come to "
            f"call {number + 1}"
        )
    return found[1:]
