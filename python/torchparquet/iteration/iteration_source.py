"""What the iterations over a data set share and ask for, in one process."""

from __future__ import annotations

import copy
import hashlib
import warnings
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torchparquet.checks import checked_int
from torchparquet.iteration.dynamic import Cursor, DynamicIteration, row_group_share, shared_cursor
from torchparquet.iteration.iteration import Iteration
from torchparquet.iteration.progress import Progress
from torchparquet.iteration.provenance import BatchOrigin, batch_origin, row_group_origin
from torchparquet.iteration.state import Identity, dump, parse, shortened_names
from torchparquet.metrics.read_totals import ReadTotals
from torchparquet.plan.order import epoch_order
from torchparquet.plan.topology import Topology
from torchparquet.ranks.agreement import Standing, warn_of_early_end
from torchparquet.ranks.sharding import in_worker, is_distributed

if TYPE_CHECKING:
    from torchparquet.batches.transforms import Transforms
    from torchparquet.iteration.planner import EpochPlanner, Place
    from torchparquet.iteration.rank_check import RankCheck
    from torchparquet.plan.plan_options import Int64Array
    from torchparquet.plan.share import Share
    from torchparquet.ranks.membership import Membership
    from torchparquet.reading.batch_stream import BatchStream
    from torchparquet.reading.streams import StreamSource

# What belongs to this process alone: its iterators and what they have read.
_OF_PROCESS = ("_iterations", "_latest", "totals", "latest_totals")


class IterationSource:
    """What the iterations over a data set share, such as how far they have come, and ask for.

    Attributes:
        membership: Which of the processes that read the data this one is.
        planner: Of epochs.
        rank_check: Whether ranks were compared.
        streams: Opens streams of batches.
        progress: Where the latest iteration stands, and where the next one begins.
        num_epochs: How many epochs one iteration reads; None for all that follow.
        transforms: The user's functions, where there are any.
        totals: What this process has read.
        latest_totals: Thereof, the latest iteration.
    """

    def __init__(
        self,
        membership: Membership,
        planner: EpochPlanner,
        rank_check: RankCheck,
        streams: StreamSource,
        *,
        num_epochs: int | None,
        transforms: Transforms | None,
        is_dynamic: bool,
    ) -> None:
        """Begin before the first iteration; `is_dynamic` ranks claim row groups as they read."""
        self.membership = membership
        self.planner = planner
        self.rank_check = rank_check
        self.streams = streams
        self.progress = Progress(planner)
        self.num_epochs = num_epochs
        self.transforms = transforms
        self._is_dynamic = is_dynamic
        self._identity = self._make_identity()
        self._told_of_early_end = False
        self._begin_in_process()

    def _make_identity(self) -> Identity:
        fields, options = self.streams.fields, self.planner.options
        return Identity(
            self.streams.manifest.content_fingerprint,
            hashlib.blake2b(repr(fields).encode(), digest_size=8).hexdigest(),
            shortened_names([field.name for field in fields]),
            {
                "shuffle": options.shuffle,
                "seed": options.seed,
                "even": options.even,
                "drop_last": options.drop_last,
                "balance": options.balance,
                "shuffle_within_rank": options.shuffle_within_rank,
                "canonical_world_size": self.planner.canonical_world_size,
            },
        )

    def _begin_in_process(self) -> None:
        self._forget_iterations()
        self.totals = ReadTotals()
        self.latest_totals = ReadTotals()

    def _forget_iterations(self) -> None:
        self._iterations: weakref.WeakSet[Iteration] = weakref.WeakSet()
        self._latest: weakref.ref[Iteration] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to this process alone."""
        return {k: v for k, v in self.__dict__.items() if k not in _OF_PROCESS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a copy's place in this process."""
        self.__dict__.update(state)
        self._begin_in_process()

    def __copy__(self) -> IterationSource:
        """Return one for this process that counts epochs by itself."""
        made = IterationSource.__new__(IterationSource)
        made.__setstate__(self.__getstate__())
        made.progress = self.progress.own_copy()
        made.streams = copy.copy(self.streams)
        made.rank_check = copy.copy(self.rank_check)
        return made

    # The iterations of this process.

    def iterate(self) -> Iteration:
        """Return an iteration, which is the latest from now on."""
        iteration = DynamicIteration(self) if self._is_dynamic else Iteration(self)
        self._iterations.add(iteration)
        self._latest = weakref.ref(iteration)
        self.latest_totals = iteration.totals
        if in_worker():
            # All workers of a DataLoader begin, also one that is never asked for a batch.
            iteration.begun()
        return iteration

    def live_iteration(self) -> Iteration | None:
        """Return the latest iteration where it is under way."""
        latest = None if self._latest is None else self._latest()
        return None if latest is None or latest.closed else latest

    def live_place(self) -> Place | None:
        """Return where the iteration under way stands; None where there is none."""
        latest = self.live_iteration()
        return None if latest is None else latest.place

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

    def refuse_dynamic(self, what: str) -> None:
        """Raise TypeError where `what` is not known before it is read."""
        if self._is_dynamic:
            raise TypeError(
                f'even="dynamic" has not {what} that is known beforehand: which rank reads what '
                "is decided while they read"
            )

    # What an iteration asks for; see `iteration.Source` and `dynamic.DynamicSource`.

    def standing(self, num_workers: int = 0) -> Standing:
        """Return what all ranks must agree about in the next iteration."""
        topology = self.membership.topology()
        own = Topology(topology.rank, topology.world_size, 0, max(1, num_workers))
        return self.rank_check.standing(self.planner, self.present_place(own), own)

    def begin_iteration(self) -> Place:
        """Begin the next epoch, or go on with one, on all ranks or on none."""
        place = self.rank_check.begin(self.standing, self._begin_iteration)
        self.progress.begun(place)
        return place

    def _begin_iteration(self, is_awaited: bool) -> Place:
        topology = self.membership.topology()
        place = self.progress.begin(topology)
        if place.end == 0:
            self._warn_of_no_steps(place, topology)
        if is_awaited and place.steps < place.end:
            # Batches that do not fit the memory are to be known while other ranks listen.
            self.open_stream(place).close()
        return place

    def _warn_of_no_steps(self, place: Place, topology: Topology) -> None:
        options, manifest = self.planner.options, self.streams.manifest
        if options.steps_may_differ or place.steps_before:
            return
        warnings.warn(
            "this epoch has no step: the rows do not make one batch for each of "
            f"{topology.world_size * topology.num_workers} shares (even={options.even!r}, "
            f"batch_size={options.batch_size}, drop_last={options.drop_last}, "
            f"{manifest.num_rows} rows in {manifest.num_row_groups} row groups)",
            stacklevel=4,
        )

    def end_epoch(self, place: Place) -> None:
        """Log, once, that other ranks go on when this one has delivered its last batch."""
        if self.planner.options.even != "none" or self._is_dynamic or self._told_of_early_end:
            return
        if not in_worker() and is_distributed():
            self._told_of_early_end = True
            plan, topology = self.planner.present_plan(place), self.membership.topology()
            warn_of_early_end(topology.rank, map(plan.num_steps, range(topology.world_size)))

    def begin_epoch_behind(self, place: Place) -> Place:
        """Begin the epoch behind that of `place`, in the same iteration."""
        return self.progress.begin_behind(place, self.membership.topology())

    def sought(self, place: Place, step: int) -> Place:
        """Return the place of batch `step` of the epoch that stands at `place`."""
        return self.progress.seek(place, self.membership.topology(), step)

    def return_to(self, place: Place, passed: Place) -> None:
        """Take note that the iteration at `passed` stands at `place` again, of an epoch before."""
        self.progress.return_to(place, passed)

    def latest_state(self) -> dict[str, Any]:
        """Return the state of the latest iteration, or that at which the next one begins."""
        self.refuse_dynamic("a state")
        return dump(self.progress.latest_state(self.membership.topology()), self._identity)

    def state_at(self, place: Place | None) -> dict[str, Any]:
        """Return the state of a place; None for that at which the next iteration begins."""
        self.refuse_dynamic("a state")
        return dump(self.progress.state_of(place, self.membership.topology()), self._identity)

    def state_at_row(self, num_rows: int) -> dict[str, Any]:
        """Return the state behind `num_rows` rows of this rank in the present world."""
        self.refuse_dynamic("a state")
        num_rows = checked_int("num_rows", num_rows, 0, 2**62)
        topology = self.membership.topology()
        state = self.progress.state_of_row(self.live_place(), num_rows, topology)
        return dump(state, self._identity)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iteration, and the one under way, go on where `state` was taken."""
        self.refuse_dynamic("a state")
        parsed = parse(state, self._identity, self.planner.requested_window)
        if parsed.worker and not in_worker():
            raise ValueError(
                f"state is that of DataLoader worker {parsed.worker}: load it through torchdata's "
                "StatefulDataLoader"
            )
        self.progress.load(parsed)
        latest = self.live_iteration()
        if latest is not None:
            latest.rewind(None)

    def open_stream(self, place: Place) -> BatchStream:
        """Open what is left of the epoch that stands at `place`."""
        topology = self.membership.topology()
        shares = self.planner.shares(place, topology)
        return self.streams.open(shares, topology.num_workers)

    def origin(self, place: Place, row: int | None = None) -> BatchOrigin:
        """Return where the next batch at `place` is from, or row `row` of it."""
        topology = self.membership.topology()
        return batch_origin(self.streams.manifest, self.planner, place, topology, row)

    def dynamic_order(self, place: Place) -> tuple[Int64Array, Cursor]:
        """Return the row groups of the epoch that have rows, in order, and the cursor over them.

        Raises:
            ValueError: The other processes cannot be told, or are not to share the rows.
        """
        manifest = self.streams.manifest
        options = replace(self.planner.options, epoch=place.epoch)
        rows = manifest.row_group_num_rows
        order = epoch_order(len(rows), options)
        identity = [
            manifest.content_fingerprint,
            repr(self.streams.fields),
            [options.batch_size, options.shuffle, options.seed, options.epoch],
        ]
        return order[rows[order] > 0], shared_cursor(identity, self.membership)

    def open_row_group(self, row_group: int) -> BatchStream:
        """Open one row group, with half of the threads and of the memory."""
        return self.streams.open([self._share_of(row_group)], 2)

    def _share_of(self, row_group: int) -> Share:
        num_rows = int(self.streams.manifest.row_group_num_rows[row_group])
        return row_group_share(row_group, num_rows, self.planner.options.batch_size)

    def origin_in_row_group(
        self, place: Place, row_group: int, step: int, row: int | None = None
    ) -> BatchOrigin:
        """Return where batch `step` of a row group is from, or row `row` of it."""
        origin = BatchOrigin(place.epoch, step, self.membership.topology(), (), row)
        return row_group_origin(self.streams.manifest, self._share_of(row_group), origin)
