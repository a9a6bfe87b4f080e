"""All that the iterations over one data set share in one process."""

from __future__ import annotations

import copy
import os
import warnings
import weakref
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any, Protocol, get_args

import numpy as np

from torchparquet._impl.batches.fields import columns_digest
from torchparquet._impl.checks import checked_int
from torchparquet._impl.functions.batch_seed import mixed_seed
from torchparquet._impl.functions.function_pools import FunctionPool
from torchparquet._impl.metrics.read_totals import ReadTotals
from torchparquet._impl.plan.topology import Topology
from torchparquet._impl.ranks.agreement import Standing, warn_of_early_end
from torchparquet._impl.ranks.sharding import in_worker, is_distributed
from torchparquet._impl.reading.function_stages import AheadStage, FunctionStage
from torchparquet._impl.session.course import Course
from torchparquet._impl.session.planner import Place
from torchparquet._impl.session.progress import Progress
from torchparquet._impl.session.state import (
    Identity,
    OtherData,
    dump,
    of_data,
    parse,
    shortened_names,
)
from torchparquet.errors import users_level

if TYPE_CHECKING:
    from torchparquet._impl.functions.transforms import Transforms
    from torchparquet._impl.ranks.membership import Membership
    from torchparquet._impl.reading.function_stages import Surroundings
    from torchparquet._impl.reading.stream import Stream
    from torchparquet._impl.reading.streams import StreamOpener
    from torchparquet._impl.sequences.grouped_streams import GroupedOpener
    from torchparquet._impl.session.planner import EpochPlanner
    from torchparquet._impl.session.rank_check import RankCheck
    from torchparquet.options import Ahead

# These belong to this process alone: its iterators, and the sums of their reading.
_OF_PROCESS = (
    *("_iterations", "_latest", "_looks", "looked_at"),
    *("totals", "latest_totals", "_pool"),
)


# A look or two are usual.
_MANY_LOOKS = 4


class Followed(Protocol):
    """An iterator as the data set sees it."""

    course: Course[Place]
    totals: ReadTotals

    @property
    def closed(self) -> bool:
        """True if the iterator was closed or has ended."""

    def seek(self, step: int) -> None:
        """Make batch `step` of the epoch the next one."""

    @property
    def is_look(self) -> bool:
        """True if it began, here or in a worker's parent, and has not taken its epoch."""

    def take_epoch(self) -> None:
        """Begin the iteration where it has not begun, and take its epoch."""

    def close(self) -> None:
        """End it, and give up what is in flight."""


class Feed:
    """All that the iterations over one data set share in one process.

    Attributes:
        membership: The ranks that read the data set, and this process among them.
        progress: The position of the latest iteration, and the start of the next one.
        num_epochs: How many epochs one iteration reads; None for all that follow.
        looked_at: The pass of the latest iteration of `even="dynamic"`, until it takes its epoch.
    """

    def __init__(
        self,
        membership: Membership,
        planner: EpochPlanner,
        rank_check: RankCheck,
        streams: StreamOpener | GroupedOpener,
        *,
        num_epochs: int | None,
        transforms: Transforms | None,
        is_dynamic: bool,
        ahead: Ahead | None = None,
    ) -> None:
        """Stand before the first iteration; see the attributes."""
        self.membership = membership
        self.planner = planner
        self.rank_check = rank_check
        self.streams = streams
        self.progress = Progress(planner, membership)
        self.num_epochs = num_epochs
        self.transforms = transforms
        self.is_dynamic = is_dynamic
        self._ahead = ahead
        self._identity = self._make_identity()
        self._told_of_early_end = self._told_of_cuts = False
        self._begin_in_process()

    def _make_identity(self) -> Identity:
        fields = self.streams.fields
        options, manifest = self.planner.options, self.streams.manifest
        return Identity(
            manifest.content_fingerprint,
            columns_digest(fields),
            shortened_names([field.name for field in fields]),
            table="" if manifest.table is None else manifest.table.identity,
            files={
                "files": len(manifest.files),
                "row groups": manifest.num_row_groups,
                "rows": manifest.num_rows,
                "names": shortened_names(manifest.names),
            },
            order={
                "shuffle": options.shuffle,
                "seed": options.seed,
                "even": options.even,
                "drop_last": options.drop_last,
                "balance": options.order.balance,
                "within_rank": options.order.within_rank,
                "canonical_world_size": options.order.canonical_world_size,
            },
        )

    # Those of the process that a DataLoader worker was spawned by.
    _courses_of_looks: tuple[Course[Place], ...] = ()

    def _begin_in_process(self) -> None:
        self._forget_iterations()
        self.totals = ReadTotals()
        self.latest_totals = ReadTotals()
        self.looked_at: Any = None
        self._pool: FunctionPool | None = None

    def _forget_iterations(self) -> None:
        self._looks: tuple[Place | None, int] = (None, 0)
        self._iterations: weakref.WeakSet[Followed] = weakref.WeakSet()
        self._latest: weakref.ref[Followed] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to this process alone."""
        state = {k: v for k, v in self.__dict__.items() if k not in _OF_PROCESS}
        # A worker that is forked finds the looks themselves.
        looks = list(self._iterations) if get_spawning_popen() is not None else []
        return state | {"_courses_of_looks": tuple(one.course for one in looks if one.is_look)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a copy's place in this process."""
        self.__dict__.update(state)
        self._begin_in_process()

    def __copy__(self) -> Feed:
        """Return one for this process that counts epochs by itself."""
        made = Feed.__new__(Feed)
        made.__setstate__(self.__getstate__())
        made.progress = self.progress.own_copy()
        made.streams = copy.copy(self.streams)
        made.rank_check = copy.copy(self.rank_check)
        return made

    def mark_repeats(self) -> None:
        """Add `row.valid` to batches."""
        self.streams.row_valid = True

    # The iterations of this process.

    def follow(self, iteration: Followed) -> None:
        """Take note of an iteration, which is the latest from now on."""
        self._iterations.add(iteration)
        self._latest = weakref.ref(iteration)
        self.latest_totals = iteration.totals
        if in_worker():
            # All workers of a DataLoader begin, also one that is never asked for a batch.
            iteration.take_epoch()

    def take_epochs_of_looks(self) -> None:
        """Let iterators that are still in use keep their epochs, as another one begins."""
        courses = [one.course for one in list(self._iterations) if one.is_look]
        if in_worker():  # A rank that is spawned begins by itself.
            courses += self._courses_of_looks
        self._courses_of_looks = ()
        for course in courses:
            self.progress.commit(course)

    @property
    def has_look(self) -> bool:
        """True if an iterator is in use that has not taken its epoch."""
        return any(iteration.is_look for iteration in self._iterations)

    def count_look(self, place: Place | None) -> None:
        """Count the iterations in a row that looked at one batch; None for one that went on."""
        num_looks = self._looks[1] + 1 if place is not None and place == self._looks[0] else 1
        self._looks = (place, num_looks)
        if num_looks == _MANY_LOOKS:
            warnings.warn(
                f"{_MANY_LOOKS} iterations in a row asked for one batch, and each begins with the "
                "same: an iteration takes its epoch when its second batch is asked for. For the "
                "next batch keep one iterator and call next() on it; for other rows call "
                "set_epoch() first",
                stacklevel=users_level(),
            )

    def live_iteration(self) -> Followed | None:
        """Return the latest iteration where it is under way."""
        latest = None if self._latest is None else self._latest()
        return None if latest is None or latest.closed else latest

    def live_place(self) -> Place | None:
        """Return where the iteration under way stands; None if none is."""
        latest = self.live_iteration()
        return None if latest is None else latest.course.position

    def present_place(self, topology: Topology) -> Place:
        """Return a place of the epoch under way or to come, in a world of this topology."""
        place = self.live_place()
        if place is not None and place.legs[-1].world == self.planner.own_leg(topology):
            return place
        if place is None:
            return self.progress.next_place(topology)
        return self.planner.begin(place.epoch, topology)

    def close(self) -> None:
        """End all iterations and free their memory."""
        for iteration in list(self._iterations):
            iteration.close()
        self._forget_iterations()
        self.streams.forget()
        pool, self._pool = self._pool, None
        if pool is not None and pool.owner_pid == os.getpid():
            pool.close()

    def staged(self, stream: Stream, around: Surroundings) -> Stream:
        """Return the last stage after a stream that decodes."""
        if self.transforms is not None:
            if self._ahead is None:
                stream = FunctionStage(stream, self.transforms, around)
            else:
                if self._pool is None or self._pool.owner_pid != os.getpid():
                    self._pool = FunctionPool(self.transforms, self._ahead)
                stream = AheadStage(stream, self._pool, around)
        return self.streams.delivering(stream)

    def seed_at(self, topology: Topology, place: Place, num_after: int = 0) -> int:
        """Return the seed of the batch at a place, or of one after it, on one rank and worker."""
        return mixed_seed(
            self.planner.options.seed,
            place.epoch,
            *(topology.rank, topology.world_size, topology.worker_id, topology.num_workers),
            *(place.steps_before, place.steps + num_after),
        )

    def standing(self, num_workers: int = 0, place: Place | None = None) -> Standing:
        """Return what all ranks must agree about in the iteration at `place`, or the next one."""
        topology = self.membership.topology()
        own = Topology(topology.rank, topology.world_size, 0, max(1, num_workers))
        return self.rank_check.standing(self.planner, place or self.present_place(own), own)

    def end_epoch(self, place: Place) -> None:
        """Log once, after the last batch of this rank, that other ranks have more."""
        if not self.planner.options.steps_may_differ or self._told_of_early_end:
            return
        if not in_worker() and is_distributed():
            self._told_of_early_end = True
            plan, topology = self.planner.present_plan(place), self.membership.topology()
            warn_of_early_end(topology.rank, map(plan.num_steps, range(topology.world_size)))

    def warn_of_cut_row_groups(self, topology: Topology, place: Place) -> None:
        """Warn once where a batch is to be a row group, and `even` cuts row groups."""
        options = self.planner.options
        if options.batch_size is not None or options.even != "split" or self._told_of_cuts:
            return
        rows = self.streams.manifest.row_group_num_rows
        for share in self.planner.shares(place, topology):
            cut = np.flatnonzero((share.num_rows > 0) & (share.num_rows < rows[share.row_group]))
            if len(cut) and not place.window[1]:
                self._told_of_cuts = True
                row_group = int(share.row_group[cut[0]])
                warnings.warn(
                    'with batch_size=None a batch is a row group, but even="split" cuts row '
                    "groups so that all ranks and workers read equally many rows. Give "
                    'even="none", "drop" or "pad" to keep them whole, or a batch_size. The first '
                    f"of this rank that is cut is row group {row_group}, of {rows[row_group]} "
                    f"rows, {share.num_rows[cut[0]]} of them here",
                    stacklevel=users_level(),
                )
                return

    # States.

    def refuse_dynamic(self, what: str) -> None:
        """Raise TypeError where nobody knows `what` before it is read."""
        if self.is_dynamic:
            raise TypeError(
                f'even="dynamic" has no {what}: which rank reads what is decided while reading'
            )

    def latest_state(self) -> dict[str, Any]:
        """Return the state of the latest iteration, or that at which the next one begins."""
        self.refuse_dynamic("state")
        return dump(self.progress.latest_state(), self._identity)

    def state_at(self, place: Place | None) -> dict[str, Any]:
        """Return the state of a place; None for that at which the next iteration begins."""
        self.refuse_dynamic("state")
        return dump(self.progress.state_of(place), self._identity)

    def state_at_row(self, num_rows: int) -> dict[str, Any]:
        """Return the state after `num_rows` rows of this rank in the present world."""
        self.refuse_dynamic("state")
        num_rows = checked_int("num_rows", num_rows, 0, 2**62)
        return dump(self.progress.state_of_row(self.live_place(), num_rows), self._identity)

    def load_state_dict(self, state: dict[str, Any], other_data: OtherData = "error") -> None:
        """Make the next iteration, and the one under way, resume at `state`."""
        self.refuse_dynamic("state")
        if other_data not in get_args(OtherData):
            raise ValueError(f'other_data must be "error" or "next_epoch", got {other_data!r}')
        known = state if other_data == "error" else of_data(state, self._identity)
        parsed = parse(known, self._identity, self.planner.requested_window)
        if parsed.worker and not in_worker():
            raise ValueError(
                f"state is that of DataLoader worker {parsed.worker}: load it through torchdata's "
                "StatefulDataLoader"
            )
        if known is not state and state.get("data") != self._identity.data:
            is_unread = all(leg.num_steps == leg.num_rows == 0 for leg in parsed.legs)
            self.progress.begin_at(parsed.epoch if is_unread else parsed.epoch + 1)
        else:
            self.progress.load(parsed)
        latest = self.live_iteration()
        if latest is not None:
            latest.course.move(None)
