"""Ranks make sure, before the first batch, that all of them read the same data the same way.

They talk through the key-value store that torch.distributed was initialised with, not by a
collective: a collective waits without a word for a rank that does not come, meets whatever other
collective that rank runs instead, and needs a device under NCCL.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch.distributed as dist

from torchparquet.errors import RankMismatchError
from torchparquet.ranks.sharding import in_worker, is_distributed

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store
    from torch.distributed.device_mesh import DeviceMesh


_WARN_AFTER_SECONDS = 60.0
_SLACK_SECONDS = 10.0
_LONGEST_PAUSE_SECONDS = 0.25
_MAX_SHOWN = 8
_MAX_CHARACTERS = 200

_logger = logging.getLogger("torchparquet")


_Made = TypeVar("_Made")


class Standing(NamedTuple):
    """What one rank tells the others.

    Attributes:
        share: Its data-parallel rank, of `num_shares`.
        num_shares: Data-parallel ranks.
        values: Name and value of all that has to be the same on every rank.
        failure: Why this rank cannot begin; None where it can.
    """

    share: int
    num_shares: int
    values: dict[str, str]
    failure: str | None = None


@dataclass(frozen=True, eq=False)
class Peers:
    """The processes that are compared, and the store that they talk through.

    Attributes:
        ranks: Of torch.distributed's world, ascending; the first of them compares.
        own: The rank of this process.
        store: Shared by all ranks.
    """

    ranks: tuple[int, ...]
    own: int
    store: Store


def find_peers(
    process_group: object | None = None, device_mesh: DeviceMesh | None = None
) -> Peers | None:
    """Return whom this process is to be compared with: the mesh, the group or the world.

    Of a mesh all dimensions count, because model-parallel peers must read the same too.

    Returns:
        None where there is nobody: without an initialised torch.distributed or its store, alone,
        in a DataLoader worker or other child of a rank, outside the group or mesh.
    """
    if in_worker() or not is_distributed():
        return None
    if _inherited and _inherited[0] is dist.group.WORLD:
        return None
    if dist.get_backend() in ("fake", "mpi"):
        return None
    if device_mesh is not None:
        if not hasattr(device_mesh, "mesh"):
            return None
        ranks = sorted(device_mesh.mesh.flatten().tolist())
    elif process_group is not None:
        if not isinstance(process_group, dist.ProcessGroup):
            return None
        ranks = sorted(dist.get_process_group_ranks(process_group))
    else:
        ranks = list(range(dist.get_world_size()))
    if len(ranks) < 2 or dist.get_rank() not in ranks:
        return None
    return Peers(tuple(ranks), dist.get_rank(), default_store())


def default_store() -> Store:
    """Return the store that torch.distributed was initialised with."""
    store: Store = dist.distributed_c10d._get_default_store()
    return store


def begin_together(
    peers: Peers, standing: Callable[[], Standing], begin: Callable[[], _Made]
) -> _Made:
    """Begin on all ranks or on none: every rank calls it, and all learn why one could not.

    Args:
        peers: From `find_peers`.
        standing: Says what is to be compared.
        begin: Makes what is returned. What it raises here, the others learn of.

    Raises:
        RankMismatchError: Ranks differ, another rank could not begin, or one did not come while
            the store's timeout lasted.
        Exception: As `standing` and `begin` raise.
    """
    meeting = _Meeting(peers)
    try:
        own = standing()
        made = begin()
    except Exception as error:
        meeting.excuse(f"{type(error).__name__}: {error}")
        raise
    verdict = meeting.verdict(own)
    if verdict:
        close = getattr(made, "close", None)
        if close is not None:
            close()
        raise RankMismatchError(verdict)
    return made


def disagreement(standings: Mapping[int, Standing]) -> str:
    """Return what differs between ranks, in words; "" where all agree.

    Args:
        standings: By rank of torch.distributed's world.
    """
    failed = {rank: standing.failure for rank, standing in standings.items() if standing.failure}
    if failed:
        return "a rank could not begin: " + _by_value(failed)
    names: dict[str, None] = {}
    for standing in standings.values():
        names |= dict.fromkeys(standing.values)
    found: list[str] = []
    for name in names:
        if name == "columns" and any(text.startswith("column ") for text in found):
            # All that it adds is their order, and details.
            continue
        of_rank = {rank: of.values.get(name, "missing") for rank, of in standings.items()}
        if len(set(of_rank.values())) > 1:
            found.append(f"{name} is {_by_value(of_rank)}")
    found = found or _wrong_shares(standings)
    if not found:
        return ""
    more = f"; and {len(found) - _MAX_SHOWN} more" if len(found) > _MAX_SHOWN else ""
    return (
        "ranks must read the same data in the same order (check_ranks=False skips this "
        f"comparison): {'; '.join(found[:_MAX_SHOWN])}{more}"
    )


def _wrong_shares(standings: Mapping[int, Standing]) -> list[str]:
    """Say which shares too many or too few ranks read; all are to have as many readers."""
    num_shares = next(iter(standings.values())).num_shares
    counts = Counter(standing.share for standing in standings.values())
    if len({counts[share] for share in range(num_shares)}) == 1:
        return []
    held = {rank: str(standing.share) for rank, standing in standings.items()}
    return [f"each data-parallel rank of {num_shares} must be held equally often; it is "
            f"{_by_value(held)}"]  # fmt: skip


def _by_value(of_rank: Mapping[int, str]) -> str:
    """Return "value on ranks ..., value on ranks ...", what most ranks have first."""
    holders = defaultdict(list)
    for rank in sorted(of_rank):
        holders[of_rank[rank]].append(rank)
    groups = sorted(holders.items(), key=lambda item: (-len(item[1]), item[1]))
    shown = [f"{shortened(value)} on {listed(ranks)}" for value, ranks in groups[:_MAX_SHOWN]]
    more = f", and {len(groups) - _MAX_SHOWN} more values" if len(groups) > _MAX_SHOWN else ""
    return ", ".join(shown) + more


def shortened(text: str) -> str:
    """Return `text`, or its two ends where it is long."""
    if len(text) <= _MAX_CHARACTERS:
        return text
    return f"{text[: _MAX_CHARACTERS - 20]} ... {text[-15:]}"


def listed(ranks: Sequence[int]) -> str:
    """Return ascending ranks as in "rank 3" or "ranks 0-5, 9"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    more = f" and {len(texts) - _MAX_SHOWN} more" if len(texts) > _MAX_SHOWN else ""
    word = "rank" if len(ranks) == 1 else "ranks"
    return f"{word} {', '.join(texts[:_MAX_SHOWN])}{more}"


class _Meeting:
    """One comparison: every rank leaves a note in the store, the first one reads and judges.

    The notes of the n-th comparison of the same ranks belong together, as with collectives, so
    all ranks compare their data sets in one order.
    """

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._first = peers.own == peers.ranks[0]
        number = _num_meetings[peers.ranks]
        _num_meetings[peers.ranks] += 1
        digest = hashlib.blake2b(json.dumps(peers.ranks).encode(), digest_size=8).hexdigest()
        self._place = f"torchparquet/agreement/{digest}/{number}"

    def excuse(self, failure: str) -> None:
        """Tell the others that this rank cannot begin; waits for nobody."""
        note = Standing(0, 1, {}, failure)
        self._leave(note)
        if self._first:
            self._announce(disagreement({self._peers.own: note}))

    def verdict(self, own: Standing) -> str:
        """Return what all ranks are told; "" where they agree."""
        self._leave(own)
        if self._first:
            verdict = self._judge(own)
            self._announce(verdict)
            return verdict
        first = self._peers.ranks[0]
        # Once the first rank is there, it is the one that knows for whom all are waiting.
        absent = self._wait({first: f"{self._place}/{first}"})
        absent = absent or self._wait({first: self._verdict_key}, _SLACK_SECONDS)
        if absent:
            return self._absence(absent)
        return str(json.loads(self._peers.store.get(self._verdict_key)))

    @property
    def _verdict_key(self) -> str:
        return f"{self._place}/verdict"

    def _announce(self, verdict: str) -> None:
        self._peers.store.set(self._verdict_key, json.dumps(verdict))

    def _leave(self, note: Standing) -> None:
        self._peers.store.set(f"{self._place}/{self._peers.own}", json.dumps(note))

    def _judge(self, own: Standing) -> str:
        keys = {rank: f"{self._place}/{rank}" for rank in self._peers.ranks[1:]}
        absent = self._wait(keys)
        if absent:
            return self._absence(absent)
        standings = {self._peers.own: own}
        for rank, key in keys.items():
            standings[rank] = Standing(*json.loads(self._peers.store.get(key)))
        return disagreement(standings)

    def _wait(self, keys: Mapping[int, str], slack_seconds: float = 0.0) -> list[int]:
        """Wait until the keys are there; return the ranks whose key never came.

        The store's timeout and the slack are how long; with a slack no warning is given. It
        looks again and again rather than let the store wait, which would keep other threads
        from the store and Ctrl-C from this one.
        """
        store = self._peers.store
        begun = time.monotonic()
        limit = store.timeout.total_seconds()  # type: ignore[attr-defined]
        limit += slack_seconds
        warned = slack_seconds > 0
        pause = 0.001
        while not store.check(list(keys.values())):
            waited = time.monotonic() - begun
            if waited > limit:
                return self._absent(keys)
            if waited > _WARN_AFTER_SECONDS and not warned:
                warned = True
                _logger.warning(self._absence(self._absent(keys)))
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return []

    def _absent(self, keys: Mapping[int, str]) -> list[int]:
        return [rank for rank, key in keys.items() if not self._peers.store.check([key])]

    def _absence(self, absent: Sequence[int]) -> str:
        return (
            "all ranks must begin to read together for their options to be compared (give rank "
            "and world_size, or check_ranks=False, where only some of them read): "
            f"rank {self._peers.own} waited for {listed(absent)}"
        )


_num_meetings: Counter[tuple[int, ...]] = Counter()

# The default group of the process that this one was forked from, whose sockets it must not use.
_inherited: list[object] = []


def _remember_group() -> None:
    """Note, in a forked child, which group is its parent's."""
    _inherited[:] = [dist.group.WORLD] if is_distributed() else []


if dist.is_available():
    os.register_at_fork(after_in_child=_remember_group)


def warn_of_early_end(own: int, num_steps: Iterable[int]) -> None:
    """Log that this rank ends before others, who must not wait for it; nothing if it does not.

    Args:
        own: The data-parallel rank of this process.
        num_steps: Of each data-parallel rank, known from the plan.
    """
    steps = list(num_steps)
    most = max(steps)
    if steps[own] == most:
        return
    _logger.warning(
        'even="none" lets step counts differ: rank %d ends after %d steps, rank %d goes on to %d. '
        "A collective in each step (gradients of DistributedDataParallel, say) would wait there "
        'for this rank: take even="split", torch.distributed.algorithms.Join, or do without '
        "collectives until all ranks are through",
        own,
        steps[own],
        steps.index(most),
        most,
    )
