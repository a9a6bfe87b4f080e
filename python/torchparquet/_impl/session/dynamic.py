"""`even="dynamic"`: ranks take row groups from one shared cursor, so that fast ones take more.

For work without steps in lockstep. Each position of the epoch's order is claimed by one rank,
with an atomic addition in a key-value store that all of them see.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from torchparquet._impl.batches.fields import columns_digest
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.functions.batch_seed import mixed_seed
from torchparquet._impl.plan.order import epoch_order
from torchparquet._impl.plan.plan_options import Int64Array
from torchparquet._impl.plan.share import Share
from torchparquet._impl.ranks.agreement import start_of_job
from torchparquet._impl.ranks.sharding import in_worker
from torchparquet._impl.reading.function_stages import Surroundings
from torchparquet._impl.session.iteration import Iteration
from torchparquet._impl.session.provenance import batch_origin
from torchparquet.errors import RankMismatchError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from torchparquet._impl.files.manifest import Manifest
    from torchparquet._impl.plan.plan_options import Topology
    from torchparquet._impl.ranks.sharding import Membership
    from torchparquet._impl.reading.stream import Stream
    from torchparquet._impl.session.dataset_session import DatasetSession
    from torchparquet._impl.session.planner import Place


class Cursor(Protocol):
    """Hands out 0, 1, 2, ..., each number once over all who claim."""

    def claim(self) -> int:
        """Return the next number."""


class OwnCursor:
    """The cursor of a process that reads alone."""

    def __init__(self) -> None:
        """Begin at 0."""
        self._next = 0

    def claim(self) -> int:
        """Return the next number."""
        self._next += 1
        return self._next - 1


class StoreCursor:
    """A cursor in a store of torch.distributed.

    The n-th pass over the same data is the same cursor in all processes, and that of no other
    pass. All must read the same epoch in it.
    """

    def __init__(self, store: Store, identity: Any, epoch: int) -> None:
        """Begin, or join, the next pass; raises if other ranks read another epoch in theirs."""
        digest = hashlib.blake2b(json.dumps(identity).encode(), digest_size=16).hexdigest()
        number = _num_passes[digest]
        self._key = f"torchparquet/cursor/{digest}/{number}"
        self._store = store
        _num_passes[digest] += 1
        of_all = bytes(store.compare_set(f"{self._key}/epoch", "", str(epoch))).decode()
        if of_all != str(epoch):
            raise RankMismatchError(
                'ranks must make the same passes with even="dynamic": another one reads epoch '
                f"{of_all} in its pass {number + 1}, this one epoch {epoch}. A rank that iterates "
                "more often than others, or sets another epoch, takes rows from them"
            )

    def claim(self) -> int:
        """Return the next number."""
        return int(self._store.add(self._key, 1)) - 1


_num_passes: Counter[str] = Counter()


class Pass:
    """A pass over the rows of an epoch, as far as this process takes part in it."""

    def __init__(self, epoch: int, order: Int64Array, cursor: Cursor) -> None:
        """Claim nothing yet."""
        self._of = (os.getpid(), epoch)
        self.order = order
        self._cursor = cursor
        self._claimed: list[int] = []
        self._num_used = 0

    def next_row_group(self) -> int | None:
        """Claim a row group; None if no one is left."""
        if self._num_used == len(self._claimed):
            self._claimed.append(self._cursor.claim())
        position = self._claimed[self._num_used]
        self._num_used += 1
        return int(self.order[position]) if position < len(self.order) else None

    def is_of(self, epoch: int) -> bool:
        """True if this process can go on with the pass, and it is one over that epoch."""
        return self._of == (os.getpid(), epoch)

    def begin_again(self) -> None:
        """Begin with what this process has claimed, after a look at it."""
        self._num_used = 0


def shared_cursor(identity: list[Any], epoch: int, membership: Membership) -> Cursor:
    """Return the cursor of a pass, which all ranks share.

    Args:
        membership: The processes of its store share; without one the ranks of its group, of its
            mesh, which has no other dimensions than the data-parallel ones, or of the world.

    Raises:
        ValueError: This is a DataLoader worker, there is nothing to share by, or the mesh has
            processes that are to read the same.
    """
    if in_worker():
        raise ValueError('even="dynamic" needs num_workers=0: workers share no store')
    if membership.ranks.store is not None:
        return StoreCursor(membership.ranks.store, identity, epoch)
    topology, mesh = membership.topology(), membership.ranks.mesh
    if mesh is not None and mesh.size() > topology.world_size:
        raise ValueError(
            'even="dynamic" gives each process rows of its own, and model-parallel peers need '
            'the same: take even="none"'
        )
    if topology.world_size == 1:
        return OwnCursor()
    peers = membership.peers()
    if peers is None or len(peers.ranks) != topology.world_size:
        raise ValueError(
            'even="dynamic" needs torch.distributed to be initialised, or a store, for ranks '
            f"to share; got rank {topology.rank} of {topology.world_size}"
        )
    return StoreCursor(peers.store, [*identity, peers.ranks, start_of_job(peers)], epoch)


class DynamicIteration(Iteration):
    """The batches of one epoch of `even="dynamic"` that this process delivers.

    While a row group is delivered the next one is claimed and its first batch awaited on a thread,
    so that claiming and reading overlap with the user's work.
    """

    _pass: Pass | None = None

    def __init__(self, session: DatasetSession, led_at: tuple[Any, int] | None = None) -> None:
        """Prepare to iterate; claims and reads nothing yet."""
        self._ahead: tuple[Stream, Future[None], int] | None = None
        self._at = (0, 0)  # row group and batch of it
        self._thread: ThreadPoolExecutor | None = None
        self._thread_ident: list[int] = []
        self._failure: BaseException | None = None
        super().__init__(session, led_at)

    def _fetch(self) -> tuple[Batch, Place]:
        """Return the next batch, and where the epoch began: nothing counts batches here."""
        if self._failure is not None:
            raise self._failure
        self._check_usable()
        try:
            batch = self._next_batch()
        except BaseException as error:
            if isinstance(error, Exception):
                self._failure = error
            self.close()
            raise
        if batch is None:
            self.take_epoch()
            self.progress.has_ended = True
            self._end_thread()
            raise StopIteration
        return batch, self.begin()

    def take_epoch(self) -> None:
        """Take the epoch, and what was claimed of it, which the next iteration does not read."""
        super().take_epoch()
        if self._session.looked_at is self._pass:
            self._session.looked_at = None

    def _next_batch(self) -> Batch | None:
        if self._pass is None:
            self._pass = self._begin_pass()
            ident = self._thread_ident
            self._thread = ThreadPoolExecutor(
                1, "torchparquet-dynamic", lambda: ident.append(threading.get_ident())
            )
            self._look_ahead()
        if self._stream is not None:
            batch = next(self._stream, None)
            if batch is not None:
                self._at = (self._at[0], self._at[1] + 1)
                return batch
        if self._ahead is None:
            return None
        self._stream, first, row_group = self._ahead
        self._at = (row_group, 0)
        begin = time.perf_counter()
        first.result()
        self.totals.add(self._stream, begin, waited=time.perf_counter() - begin)
        self._look_ahead()
        return next(self._stream)

    def _look_ahead(self) -> None:
        """Claim the next row group and begin to read it."""
        assert self._pass is not None  # noqa: S101
        assert self._thread is not None  # noqa: S101
        row_group = self._pass.next_row_group()
        self._ahead = None
        if row_group is not None:
            stream = self._open_row_group(row_group)
            reader = stream.reader
            reader.start()
            self._ahead = (stream, self._thread.submit(reader.wait_for_first), row_group)

    def _begin_pass(self) -> Pass:
        """Begin a pass of which all ranks agree, or that of an iteration that only looked.

        Claims cannot be undone, so the next iteration of this process reads what a look claimed.
        """
        session, place = self._session, self.begin()
        self._agree(place)
        begun: Pass | None = session.looked_at
        if begun is None or not begun.is_of(place.epoch) or session.has_look:
            begun = self._new_pass(place)
        begun.begin_again()
        session.looked_at, self._looks = begun, True
        return begun

    def _new_pass(self, place: Place) -> Pass:
        """Return a pass over the row groups of the epoch that have rows."""
        session, manifest = self._session, self._session.streams.manifest
        options = replace(session.planner.options, epoch=place.epoch)
        rows = manifest.row_group_num_rows
        order = epoch_order(len(rows), options)
        identity = [
            manifest.content_fingerprint,
            columns_digest(session.streams.fields),
            [options.batch_size, options.shuffle, options.seed],
        ]
        cursor = shared_cursor(identity, place.epoch, session.membership)
        return Pass(place.epoch, order[rows[order] > 0], cursor)

    def _open_row_group(self, row_group: int) -> Stream:
        """Open one row group of two, with half of the threads and of the memory."""
        session, share, epoch = self._session, self._share_of(row_group), self.begin().epoch
        around = Surroundings(
            partial(mixed_seed, session.planner.options.seed, epoch, row_group),
            partial(_origin_in, session.streams.manifest, share, epoch, self.topology),
            partial(self.totals.add_seconds, "function_seconds"),
        )
        return session.staged(session.streams.open([share], 2), around)

    def _share_of(self, row_group: int) -> Share:
        session = self._session
        num_rows = int(session.streams.manifest.row_group_num_rows[row_group])
        return row_group_share(row_group, num_rows, session.planner.options.batch_size)

    def seek(self, step: int) -> None:
        """Refuse: nobody knows beforehand which rank reads what."""
        self._session.refuse_dynamic("step to go to")

    def origin(self, row: int | None = None) -> object:
        """Return where the latest batch is from, or row `row` of it, to be shown."""
        (row_group, step), manifest = self._at, self._session.streams.manifest
        share, epoch = self._share_of(row_group), self.begin().epoch
        return _origin_in(manifest, share, epoch, self.topology, step, row)

    def close(self) -> None:
        """Join the threads and give up what is in flight; row groups claimed stay claimed."""
        super().close()
        self._end_thread()

    def _end_thread(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead[0].close()
        if self._thread is not None:
            # Garbage may be collected on that thread, which cannot join itself.
            self._thread.shutdown(wait=threading.get_ident() not in self._thread_ident)

    def __del__(self) -> None:
        """Join the threads of an iterator that was broken off."""
        if getattr(self, "_thread", None) is not None:
            self._end_thread()


def _origin_in(
    manifest: Manifest,
    share: Share,
    epoch: int,
    topology: Topology,
    step: int,
    row: int | None = None,
) -> object:
    return batch_origin(manifest, [share.steps(step)], (epoch, step), topology, row)


def row_group_share(row_group: int, num_rows: int, batch_size: int | None) -> Share:
    """Return the share of one whole row group."""
    return Share(
        0,
        1,
        num_rows if batch_size is None else min(batch_size, num_rows),
        np.array([row_group], dtype=np.int64),
        np.zeros(1, dtype=np.int64),
        np.array([num_rows], dtype=np.int64),
        np.ones(1, dtype=bool),
        None,
        np.zeros(0, dtype=np.int64),
    )
