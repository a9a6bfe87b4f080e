"""Work before an epoch, such as a pass over row groups, which ranks divide through their store.

    its own parts, then any ──► this rank does those that it takes first ──► results in the store
            │ no part is left
            ▼
    the first rank of a node: the results of others ──► a file in the node's memory
            │ a part that does not come is done here too         │
            ▼                                                    ▼
          all parts                                 the other ranks of the node

So a rank that comes late finds what is left, one that comes alone does all, and none waits for a
rank that does not do the same work. The store, one process, sends a result once to each node.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import struct
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, takewhile
from typing import Any, TypeAlias

from torchparquet._impl.files.remote.node_files import forget, shared_file
from torchparquet._impl.processors import num_ranks_here
from torchparquet._impl.ranks.peers import Peers, digest
from torchparquet.errors import one_line

# From the number of a part, and how many there are, to the result.
Work: TypeAlias = Callable[[int, int], bytes]

# Ranks that are faster than others do more of them.
_PARTS_OF_RANK = 4
# Every rank reads every part from one store.
_MOST_PARTS = 128
# A store takes no value above 8 MiB, and the process that holds it has only so much memory.
_VALUE_BYTES = 4 << 20
_MOST_VALUES = 128
_VALUES_AT_ONCE = 16
_WARN_AFTER_SECONDS = 30.0
_NOTHING = b"-"

_logger = logging.getLogger("torchparquet")


def divided(
    peers: Peers | None,
    what: str,
    most_parts: int,
    work: Work,
    is_begun: Callable[[int, int], bool] | None = None,
) -> list[bytes]:
    """Return the results of the parts of `work`, in order, each done by one rank.

    The n-th call of a rank for one `what` belongs to the n-th calls of others. Without peers there
    is one part. `is_begun` tells the parts that this rank has begun with in an earlier work of the
    same ranks, where each part was taken: it takes these alone.
    """
    if peers is None:
        return [work(0, 1)]
    num_parts = max(1, min(most_parts, _PARTS_OF_RANK * len(peers.ranks), _MOST_PARTS))
    told = [*peers.identity, what, num_parts]
    place = f"torchparquet/work/{(of := digest(told))}/{peers.start.number(of)}"
    done = {
        part: _done(peers, f"{place}/{part}", work, part, num_parts)
        for part in _taken(peers, place, num_parts, is_begun)
    }
    found = _once_on_node(peers, place, lambda: _with_others(peers, place, done, num_parts, work))
    if peers.store.add(f"{place}/read", 1) == len(peers.ranks):
        _forget(peers, place, num_parts)
    return [found[part] for part in range(num_parts)]


def _taken(
    peers: Peers, place: str, num_parts: int, is_begun: Callable[[int, int], bool] | None
) -> Iterator[int]:
    """Yield the parts that this rank is the first to take: its own ones, then others.

    Its own are the same in each work, so it holds already what it read of them for the last one.
    """
    num_ranks, index = len(peers.ranks), peers.ranks.index(peers.own)
    own = range(-(-index * num_parts // num_ranks), -(-(index + 1) * num_parts // num_ranks))
    counted = iter(lambda: peers.store.add(f"{place}/taken", 1) - 1, None)
    parts: Iterable[int] = chain(own, takewhile(lambda part: part < num_parts, counted))
    if is_begun is not None:
        parts = (part for part in range(num_parts) if is_begun(part, num_parts))
    tried = set[int]()
    for part in parts:
        taker = bytes(peers.store.compare_set(f"{place}/{part}/rank", "", str(peers.own)))
        if part not in tried and taker.decode() == str(peers.own):
            yield part
        tried.add(part)


def _with_others(
    peers: Peers, place: str, done: dict[int, bytes], num_parts: int, work: Work
) -> dict[int, bytes]:
    """Return all parts, those of others too; one that another left no result of is done here."""
    missing = [part for part in range(num_parts) if part not in done]
    found = done | (_left_by_others(peers, place, missing) if missing else {})
    return found | {part: work(part, num_parts) for part in missing if part not in found}


def _once_on_node(
    peers: Peers, place: str, find: Callable[[], dict[int, bytes]]
) -> dict[int, bytes]:
    """Return what the first rank of this node finds, which the others wait for."""
    here = num_ranks_here()
    num_ranks = sum(rank // here == peers.own // here for rank in peers.ranks)
    if num_ranks == 1:
        return find()
    invented = uuid.uuid4().hex
    # Nobody else's file has that name, or is left from an earlier start.
    name = bytes(peers.store.compare_set(f"{place}/file", "", invented)).decode()
    name += digest(place)
    with shared_file(name) as file:
        found = None if file is None else _read(file)
        if found is None:
            found = find()
            if file is not None and _write(file, found):
                atexit.register(forget, name, os.getpid())
        if file is not None and _num_readers(file) == num_ranks:
            forget(name, os.getpid())
    return found


# A file has the number of its readers, its size, the size of its head, the head and the parts.
_WORDS, _COUNT = struct.Struct("<qqq"), struct.Struct("<q")


def _read(file: int) -> dict[int, bytes] | None:
    """Return the parts that a file has; None if it is new, or was not written to its end."""
    content = os.pread(file, os.fstat(file).st_size, 0)
    if len(content) < _WORDS.size:
        return None
    _, num_bytes, head_bytes = _WORDS.unpack_from(content)
    if len(content) < num_bytes:
        return None
    at = _WORDS.size + head_bytes
    sizes: dict[str, int] = json.loads(content[_WORDS.size : at])
    found = {}
    for part, size in sizes.items():
        found[int(part)] = zlib.decompress(memoryview(content)[at : at + size])
        at += size
    return found


def _write(file: int, parts: dict[int, bytes]) -> bool:
    """Write parts into a file; return False if memory is full, so that others find them too."""
    packed = {part: zlib.compress(content, 1) for part, content in parts.items()}
    sizes = {part: len(content) for part, content in packed.items()}
    head = json.dumps(sizes).encode()
    num_bytes = _WORDS.size + len(head) + sum(sizes.values())
    try:
        with os.fdopen(os.dup(file), "r+b") as to:
            to.write(_WORDS.pack(0, num_bytes, len(head)) + head)
            to.writelines(packed.values())
    except OSError:
        os.ftruncate(file, 0)
    return os.fstat(file).st_size > 0


def _num_readers(file: int) -> int:
    """Count one more reader, and return how many there are."""
    word = os.pread(file, _COUNT.size, 0)
    if not word:
        return 0
    count = int(_COUNT.unpack(word)[0]) + 1
    os.pwrite(file, _COUNT.pack(count), 0)
    return count


def _forget(peers: Peers, place: str, num_parts: int) -> None:
    """Free the store's memory of parts that all ranks have."""
    keys = peers.present([f"{place}/{part}" for part in range(num_parts)])
    for key, left in zip(keys, peers.read_all(keys), strict=True):
        values = 0 if left.startswith(_NOTHING) else int(left)
        for name in (key, f"{key}/rank", *(f"{key}/{number}" for number in range(values))):
            peers.store.delete_key(name)
    for name in ("taken", "file", "read"):
        peers.store.delete_key(f"{place}/{name}")


def _done(peers: Peers, key: str, work: Work, part: int, num_parts: int) -> bytes:
    """Do a part, and leave its result for others; also that there is none, since they wait."""
    left = _NOTHING
    try:
        made = work(part, num_parts)
        packed = zlib.compress(made)
        begins = range(0, len(packed), _VALUE_BYTES)
        if len(begins) <= max(1, _MOST_VALUES // num_parts):
            for value, begin in enumerate(begins):
                # It takes bytes, which its types do not tell.
                content: Any = packed[begin : begin + _VALUE_BYTES]
                peers.store.set(f"{key}/{value}", content)
            left = b"%d" % len(begins)
    except Exception as error:
        left += one_line(error).encode()
        raise
    finally:
        peers.store.set(key, left.decode())
    return made


def _left_by_others(peers: Peers, place: str, parts: Sequence[int]) -> dict[int, bytes]:
    """Return the results of other ranks, without those that do not come in the store's time."""
    keys = {part: f"{place}/{part}" for part in parts}
    warned = False

    def look(waited: float) -> None:
        nonlocal warned
        if waited > _WARN_AFTER_SECONDS and not warned:
            warned = True
            for part in peers.absent(keys)[:1]:
                _logger.warning(
                    "rank %d waits for what rank %s reads before the first epoch, since %d seconds",
                    peers.own,
                    _taker(peers, keys[part]),
                    waited,
                )

    for part in peers.wait(keys, peers.timeout_seconds, look):
        _logger.warning(
            "rank %s has not ended what it reads before the first epoch within the timeout of "
            "torch.distributed's store, %d seconds, so rank %d reads it too",
            _taker(peers, keys.pop(part)),
            peers.timeout_seconds,
            peers.own,
        )
    num_values: dict[int, int] = {}
    for (part, key), left in zip(keys.items(), peers.read_all([*keys.values()]), strict=True):
        if not left.startswith(_NOTHING):
            num_values[part] = int(left)
        elif left != _NOTHING:
            _logger.warning(
                "rank %s failed to read its part before the first epoch, so rank %d reads it too: "
                "%s",
                _taker(peers, key),
                peers.own,
                left[1:].decode(),
            )
    values = [f"{keys[part]}/{at}" for part, count in num_values.items() for at in range(count)]
    contents = iter(peers.read_all(values, _VALUES_AT_ONCE))
    return {
        part: zlib.decompress(b"".join(islice(contents, count)))
        for part, count in num_values.items()
    }


def _taker(peers: Peers, key: str) -> str:
    return peers.read(f"{key}/rank") if peers.store.check([f"{key}/rank"]) else "(unknown)"
