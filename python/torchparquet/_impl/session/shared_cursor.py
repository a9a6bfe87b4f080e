"""The cursor that the ranks of `even="dynamic"` share: who is ready takes the next row group.

For work without steps in lockstep. Each position of the epoch's order is taken by one rank, with
an atomic addition in a key-value store that all of them see.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from torchparquet._impl.ranks.agreement import start_of_job
from torchparquet._impl.ranks.gathering import gathered
from torchparquet._impl.ranks.sharding import in_worker
from torchparquet.errors import RankMismatchError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from torchparquet._impl.ranks.peers import Peers
    from torchparquet._impl.ranks.sharding import Membership

_num_passes: Counter[str] = Counter()


class Pass(NamedTuple):
    """What all ranks read in one pass.

    Attributes:
        identity: What must be the same for ranks to share a cursor, as JSON has it.
        taken: The positions that this rank took before the state that it goes on with; None if
            the epoch begins.
    """

    identity: list[Any]
    epoch: int
    num_positions: int
    taken: Sequence[int] | None


def join_pass(of: Pass, membership: Membership) -> tuple[Sequence[int], Iterator[int]]:
    """Join the pass of all ranks, and return the positions to take and the count of those taken.

    The processes of the membership's store share it; without one the ranks of its group, of its
    mesh, which has no other dimensions than the data-parallel ones, or of the world.

    Raises:
        ValueError: This is a DataLoader worker, there is nothing to share by, the mesh has
            processes that are to read the same, or a state is of other ranks.
        RankMismatchError: Other ranks make another pass.
    """
    if in_worker():
        raise ValueError('even="dynamic" needs num_workers=0: workers share no store')
    every, store = range(of.num_positions), membership.ranks.store
    if store is not None:
        if of.taken is not None:
            raise ValueError(
                'a state of even="dynamic" needs ranks whose number is known: with '
                "Ranks(store=...) begin the epoch again, by set_epoch(n)"
            )
        return every, _counter(store, _begun_pass(store, of))
    topology, mesh = membership.topology(), membership.ranks.mesh
    if mesh is not None and mesh.size() > topology.world_size:
        raise ValueError(
            'even="dynamic" gives each process rows of its own, and model-parallel peers need '
            'the same: take even="none"'
        )
    if topology.world_size == 1:
        return _without(every, of.taken), count(1)
    peers = membership.peers()
    if peers is None or len(peers.ranks) != topology.world_size:
        raise ValueError(
            'even="dynamic" needs torch.distributed to be initialised, or a store, for ranks '
            f"to share; got rank {topology.rank} of {topology.world_size}"
        )
    identity = [*of.identity, peers.ranks, start_of_job(peers)]
    key = _begun_pass(peers.store, of._replace(identity=identity))
    taken = None if of.taken is None else _taken_by_all(peers, of.taken)
    return _without(every, taken), _counter(peers.store, key)


def _begun_pass(store: Store, of: Pass) -> str:
    """Begin, or join, the next pass over the same data, and return the key of its counter."""
    digest = hashlib.blake2b(json.dumps(of.identity).encode(), digest_size=16).hexdigest()
    number = _num_passes[digest]
    _num_passes[digest] += 1
    key = f"torchparquet/cursor/{digest}/{number}"
    own = f"epoch {of.epoch}" + (" from its start" if of.taken is None else " from a state")
    of_all = bytes(store.compare_set(f"{key}/epoch", "", own)).decode()
    if of_all != own:
        raise RankMismatchError(
            'ranks must make the same passes with even="dynamic": another one reads '
            f"{of_all} in its pass {number + 1}, this one {own}. A rank that iterates more often "
            "than others, sets another epoch, or alone loads a state takes rows from them"
        )
    return key


def _counter(store: Store, key: str) -> Iterator[int]:
    return map(store.add, repeat(key), repeat(1))


def _taken_by_all(peers: Peers, taken: Sequence[int]) -> list[int]:
    """Tell the other ranks what this one has taken, and return what all of them have."""
    try:
        texts = gathered(peers, "states", json.dumps(list(taken)), _one_list)
    except RankMismatchError as error:
        raise RankMismatchError(
            'all ranks must load a state with even="dynamic", each its own, and go on: another '
            "one did not in time"
        ) from error
    every: list[int] = json.loads(texts)
    twice = [number for number, times in Counter(every).items() if times > 1]
    if twice:
        raise RankMismatchError(
            'the states that ranks load with even="dynamic" must be of one moment of one run, and '
            f"each rank needs its own: row group {twice[0]} of the epoch's order was taken in two"
        )
    return every


def _one_list(texts: Mapping[int, str]) -> str:
    return json.dumps(list(chain(*map(json.loads, texts.values()))))


def _without(positions: Sequence[int], taken: Sequence[int] | None) -> Sequence[int]:
    """Return the positions that no state holds."""
    held = set(taken or ())
    return [position for position in positions if position not in held] if held else positions
