"""The comparison of ranks: of all before the second batch, of epochs within each epoch."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable
from dataclasses import asdict, astuple
from typing import Any, TypeVar

from torchparquet._impl.batches.fields import Field
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.plan.plan_options import Topology
from torchparquet._impl.ranks.agreement import RankNote, begin_together, shortened, tell_failure
from torchparquet._impl.ranks.peers import Peers
from torchparquet._impl.ranks.sharding import Membership
from torchparquet._impl.session.planner import EpochPlanner, Place
from torchparquet.errors import users_level

_BETWEEN = "-"  # the note of a rank that has ended an epoch
_MAX_COLUMNS = 64  # that are compared one by one

_Made = TypeVar("_Made")


class RankCheck:
    """Compares ranks once; a pickled copy has not compared yet."""

    def __init__(
        self,
        membership: Membership,
        manifest: Manifest,
        fields: tuple[Field, ...],
        options: dict[str, Any],
    ) -> None:
        """Prepare to compare these, and the order; not what a transform makes of the fields."""
        self._membership = membership
        self._manifest = manifest
        self._fields = fields
        self._options = options
        self._agreed = False
        self._epochs: _Epochs | None = None

    def begin(self, begin: Callable[[bool], _Made]) -> _Made:
        """Begin an iteration, without a wait; the ranks that compare next hear of a failure."""
        peers = self._peers_to_compare()
        try:
            return begin(peers is not None)
        except Exception as error:
            if peers is not None:
                tell_failure(peers, error)
            raise

    def agree(self, standing: Callable[[], RankNote]) -> None:
        """Compare, if the ranks have not compared before."""
        if self._peers_to_compare() is not None:
            self.compare(standing)

    def _peers_to_compare(self) -> Peers | None:
        of = self._membership
        return None if self._agreed or not of.ranks.check or of.is_alone else of.peers()

    def compare(self, standing: Callable[[], RankNote]) -> None:
        """Compare now, if this rank has peers."""
        peers = self._membership.peers()
        if peers is not None:
            begin_together(peers, standing)
            self._agreed = True
            self._epochs = _Epochs(peers)

    def note_epoch(self, epoch: int | None) -> None:
        """Leave a note that this rank begins an epoch, or has ended one (None)."""
        self._with_epochs(lambda epochs: epochs.note(epoch))

    def check_epoch(self, epoch: int) -> None:
        """Warn once if another rank, read in step with this one, reads another epoch."""
        self._with_epochs(lambda epochs: epochs.check(epoch))

    def _with_epochs(self, act: Callable[[_Epochs], None]) -> None:
        # A forked child, such as a worker, would take answers that its parent waits for.
        if self._epochs is None or self._epochs.owner_pid != os.getpid():
            return
        try:
            act(self._epochs)
        except RuntimeError:
            # The rank that holds the store may have ended before this one.
            self._epochs = None

    def standing(self, planner: EpochPlanner, place: Place, topology: Topology) -> RankNote:
        """Return what all ranks must agree about in the iteration that stands at `place`."""
        options = asdict(planner.present_plan(place).options)
        options |= {
            "limit_steps": planner.limit_steps,
            "worlds before": [tuple(leg) for leg in place.legs[:-1]],
            # Ranks that take what they read are each at a batch of their own.
            "next batch": None if place.claims is not None else _next_batch(place),
        }
        values = {name: repr(value) for name, value in (options | self._options).items()}
        return RankNote(topology.rank, topology.world_size, self._data_values() | values)

    def _data_values(self) -> dict[str, str]:
        """Return what has to be the same of files, apart from times of change, and of columns."""
        manifest, fields = self._manifest, self._fields
        text = repr([astuple(field) for field in fields])
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        names = ", ".join(field.name for field in fields)
        files = f"{len(manifest.files)} files with {manifest.num_rows} rows in "
        files += f"{manifest.num_row_groups} row groups ({manifest.content_fingerprint})"
        columns = {
            f"column {field.name!r}": shortened(field.description)
            for field in fields[:_MAX_COLUMNS]
        }
        return {"files": files, **columns, "columns": f"{shortened(names)} ({digest})"}

    def __getstate__(self) -> dict[str, Any]:
        """Forget: a copy may go to another rank."""
        return self.__dict__ | {"_agreed": False, "_epochs": None}


class _Epochs:
    """The epochs that ranks are in: each leaves a note, and looks at that of the next rank."""

    def __init__(self, peers: Peers) -> None:
        """Begin after all ranks have compared, so that all count the same comparisons."""
        start = peers.start
        self._peers = peers
        self._place = f"torchparquet/epochs/{start.name}/{start.number('epochs')}"
        self.owner_pid = os.getpid()
        self._has_told = False
        self._noted: int | None = None

    def note(self, epoch: int | None) -> None:
        self._noted = epoch
        text = _BETWEEN if epoch is None else str(epoch)
        self._peers.store.set(f"{self._place}/{self._peers.own}", text)

    def check(self, epoch: int) -> None:
        if self._has_told or epoch != self._noted:  # another iteration is in that epoch
            return
        own, ranks = self._peers.own, self._peers.ranks
        other = ranks[(ranks.index(own) + 1) % len(ranks)]
        key = f"{self._place}/{other}"
        is_known = self._peers.store.check([key])
        theirs = bytes(self._peers.store.get(key)).decode() if is_known else _BETWEEN
        if theirs in (str(epoch), _BETWEEN):
            return
        self._has_told = True
        warnings.warn(
            "ranks read different epochs at the same time: if they train in step, rows are read "
            "twice and others not at all. An iteration of some ranks alone takes an epoch there, "
            "if it asks for a second batch: call dataset.set_epoch(n) before each epoch; to read "
            "on one rank alone, make a data set with rank=0, world_size=1. "
            f"Rank {own} is in epoch {epoch}, rank {other} in epoch {theirs}",
            stacklevel=users_level(),
        )


def _next_batch(place: Place) -> tuple[int, int]:
    """Return the batch that comes next and the rows of it that were delivered before."""
    begun = place.legs[-1]
    if begun.num_rows and begun.batch_size is None:
        # At the same row ranks stand in different batches.
        return place.steps_before + begun.num_steps, begun.num_rows
    return place.steps_before + place.steps, place.num_rows
