"""The session of a `ParquetDataset`: what its iterations share in one process."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, get_args

import numpy as np
from torch.utils.data import get_worker_info

from torchparquet._impl.batches.fields import Field
from torchparquet._impl.functions.batch_seed import mixed_seed
from torchparquet._impl.functions.function_pools import FunctionPool
from torchparquet._impl.metrics.read_totals import ReadTotals
from torchparquet._impl.plan.claims import Claims
from torchparquet._impl.plan.plan_options import Topology
from torchparquet._impl.ranks.agreement import RankNote, warn_of_early_end
from torchparquet._impl.ranks.loaders import refuse_second_sharding
from torchparquet._impl.ranks.sharding import in_worker, is_distributed
from torchparquet._impl.reading.function_stages import AheadStage, FunctionStage
from torchparquet._impl.session.iteration import Iteration, origin_after
from torchparquet._impl.session.planner import Place
from torchparquet._impl.session.session import Session, Start
from torchparquet._impl.session.session_iterator import SessionIterator
from torchparquet._impl.session.shared_cursor import Pass, join_pass
from torchparquet._impl.session.state import (
    OtherData,
    State,
    dump,
    identity_of,
    of_data,
    parse,
)
from torchparquet._impl.text.text_streams import TextOpener
from torchparquet.errors import users_level

if TYPE_CHECKING:
    from torchparquet._impl.batches.tensors import Batch
    from torchparquet._impl.functions.transforms import Transforms
    from torchparquet._impl.ranks.peers import Peers
    from torchparquet._impl.ranks.sharding import Membership
    from torchparquet._impl.reading.function_stages import Surroundings
    from torchparquet._impl.reading.stream import Stream
    from torchparquet._impl.reading.streams import StreamOpener
    from torchparquet._impl.sampling.streams import SampledOpener
    from torchparquet._impl.sequences.by_length import GroupedOpener
    from torchparquet._impl.sequences.dealt_rows import DealtOpener
    from torchparquet._impl.session.planner import EpochPlanner
    from torchparquet._impl.session.rank_check import RankCheck
    from torchparquet.options import Ahead


class DatasetSession(Session[Place]):
    """All that the iterations over one `ParquetDataset` share in one process.

    Attributes:
        membership: The ranks that read the data set, and this process among them.
        num_epochs: How many epochs one iteration reads; None for all that follow.
        looked_at: What the latest iteration reads, and its claims, until it takes its epoch: by
            process, so that a fork does not read what its parent took.
    """

    _of_process = (*Session._of_process, "looked_at", "_pool", "_totals")

    def __init__(
        self,
        membership: Membership,
        planner: EpochPlanner,
        rank_check: RankCheck,
        streams: StreamOpener | GroupedOpener | DealtOpener | SampledOpener | TextOpener,
        *,
        num_epochs: int | None,
        transforms: Transforms | None,
        ahead: Ahead | None = None,
    ) -> None:
        """Stand before the first iteration; see the attributes."""
        self.streams = streams  # whose manifest the first totals need
        super().__init__()
        self.membership = membership
        self.planner = planner
        self.rank_check = rank_check
        self.num_epochs = num_epochs
        self.transforms = transforms
        self.is_dynamic = planner.options.even == "dynamic"
        self._ahead = ahead
        self._identity = identity_of(
            streams.manifest, streams.fields, planner.options, planner.row_costs
        )
        self._told_of_early_end = self._told_of_cuts = False

    def _enter_process(self) -> None:
        super()._enter_process()
        self._totals = self.new_totals()
        self.looked_at: tuple[object, Claims | None] = (None, None)
        self._pool: FunctionPool | None = None

    def __copy__(self) -> Self:
        """Return one for this process that counts epochs by itself."""
        made = super().__copy__()
        made.streams = copy.copy(self.streams)
        made.rank_check = copy.copy(self.rank_check)
        return made

    def marking_repeats(self) -> Self:
        """Return a copy that adds `row.valid` to batches."""
        made = copy.copy(self)
        made.streams.row_valid = True
        return made

    # Iterations.

    @property
    def totals(self) -> ReadTotals:
        """What this process has read."""
        return self._totals

    def rank_and_peers(self) -> tuple[Topology, Peers | None]:
        """Return this process's rank, and the processes that read with it."""
        return self.topology(), self.membership.peers()

    def take_longest_wait(self) -> tuple[float, str]:
        """Return the longest wait since this was last called, in seconds, and what it was for."""
        seconds, place = self.totals.take_longest_wait()
        origin = "" if place is None else origin_after(self, self.topology(), place, 0, None)
        return seconds, str(origin)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The tensors of a batch, `row.id` and `row.valid` aside."""
        return self.streams.fields

    def new_totals(self) -> ReadTotals:
        """Return sums before anything is read."""
        return ReadTotals(excluded=self.streams.manifest.excluded)

    def lead(self, state: Any, epoch: int) -> SessionIterator[Batch, Place]:
        """Return an iterator that a mix leads, begun at a state, or at an epoch if it is None.

        It takes no epoch of the data set. If nothing of the epoch is left, it is in the next one.
        """
        self.refuse_dynamic("length")
        iteration = Iteration(self, (state, epoch))
        iteration.begin()
        return iteration

    @property
    def can_pass_over(self) -> bool:
        """True if it is known which worker has which of a loader's first batches."""
        return self.num_epochs == 1 or self.topology().num_workers == 1

    def close(self) -> None:
        """End all iterations and free their memory."""
        super().close()
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

    def standing(self, num_workers: int = 0, place: Place | None = None) -> RankNote:
        """Return what all ranks must agree about in the iteration at `place`, or the next one."""
        own = self.topology((0, max(1, num_workers)))
        return self.rank_check.standing(self.planner, place or self.present_place(own), own)

    def end_epoch(self, place: Place) -> None:
        """Log once, after the last batch of this rank, that other ranks have more."""
        is_told = self.is_dynamic or self._told_of_early_end
        if not self.planner.options.steps_may_differ or is_told:
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
        for planned in self.planner.shares(place, topology):
            share = planned.chunks
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

    # Places.

    def topology(self, worker: tuple[int, int] | None = None) -> Topology:
        """Return this process's rank and worker, or another worker of the rank."""
        own = self.membership.topology()
        return own if worker is None else Topology(own.rank, own.world_size, *worker)

    def refuse_second_sharding(self) -> None:
        """Raise if a loader of Accelerate would divide the batches among ranks a second time."""
        # A user who declares one process for everything may have a loader divide it.
        if not self.membership.is_alone or self.topology().world_size > 1:
            refuse_second_sharding()

    def worlds(self) -> list[list[int]]:
        """Return the ranks and the DataLoader workers."""
        topology = self.topology()
        return [[topology.world_size, topology.num_workers]]

    def placed(self, state: Any, epoch: int, worker: tuple[int, int] | None = None) -> Place:
        """Return where a state leads to; the start of an epoch if it is None.

        `worker` is another worker than this process: its number, of how many.
        """
        start = None if state is None else Start(None, self.read_state(state))
        return self._resolved(start, epoch, self.topology(worker))

    def next_place(self, topology: Topology | None = None) -> Place:
        """Return where the next iteration begins in a world; None for the present one."""
        start, epoch = self.next_start(), self._ledger.next_epoch
        return self._resolved(start, epoch, topology or self.topology())

    def begun(self, iteration: SessionIterator[Batch, Place], topology: Topology) -> Place:
        """Return where an iteration begins."""
        if iteration.led_at is None:
            resolved = partial(self._resolved, topology=topology)
            place = self.begin(iteration.progress, resolved)
            if place.claims is not None:
                of = os.getpid(), place.epoch, place.claims.before
                self.looked_at = of, place.claims
            return place
        return self.placed(*iteration.led_at)

    def _resolved(self, start: Start | None, epoch: int, topology: Topology) -> Place:
        if start is None or start.state is None:
            step = 0 if start is None else start.step
            return self._claiming(self.planner.begin(epoch, topology, step))
        state = start.state
        place = self.planner.resume(state, topology)
        if place is not None:
            return self._claiming(place, state.taken, state.counts)
        # After the last batch of its epoch a state leads to the next one.
        return self._claiming(self.planner.begin(state.epoch + 1, topology))

    def _claiming(
        self, place: Place, taken: Sequence[int] | None = None, counts: Sequence[int] = ()
    ) -> Place:
        """Return the place with what takes row groups of its epoch, where none are dealt."""
        if not self.is_dynamic:
            return place
        looked_at, of_look = self.looked_at
        if looked_at == (os.getpid(), place.epoch, taken) and not self.has_look:
            return place._replace(claims=of_look)
        options, num_positions = self.planner.options, self.streams.manifest.num_row_groups
        identity = [self._identity, options.batch_size]
        joined = Pass(identity, place.epoch, num_positions, taken)
        claims = Claims(
            partial(join_pass, joined, self.membership),
            taken,
            counts=counts,
            # Not the last texts, which are fewer.
            drops_last=options.drop_last and not isinstance(self.streams, TextOpener),
        )
        return place._replace(claims=claims)

    def begin_after(self, progress: Any, place: Place, topology: Topology) -> Place:
        """Return the start of the epoch after that of `place`, within the same iteration."""
        following = self._claiming(self.planner.begin(place.epoch + 1, topology))
        self.follow_progress(progress)
        self.number_next(progress, following.epoch)
        return following

    def epoch_after(self, start: Start | None) -> int:
        """Return the epoch that the next iteration reads."""
        return self._resolved(start, self._ledger.next_epoch, self.topology()).epoch

    def present_place(self, topology: Topology) -> Place:
        """Return a place of the epoch under way or to come, in a world of this topology."""
        place = self.live_position()
        if place is not None and place.legs[-1].world == self.planner.own_leg(topology):
            return place
        if place is None:
            return self.next_place(topology)
        return self.planner.begin(place.epoch, topology)

    def batches_left(self, position: Place, worker: tuple[int, int] | None = None) -> int:
        """Return the batches of the epoch that are left."""
        return position.end - position.steps

    def steps_of_worker(self, worker: tuple[int, int]) -> int:
        """Return the batches of a DataLoader worker in the epoch that has begun."""
        return self.batches_left(self._resolved(*self._begun_from, self.topology(worker)))

    def rows(
        self, position: Place, worker: tuple[int, int] | None = None
    ) -> tuple[int, int | None]:
        """Return the rows of the epoch before a position, and those that all ranks can take."""
        packed = self.streams.manifest.packed
        if packed is not None and packed.unit == "batch":
            raise ValueError(
                "a data set with batch_size=ByLength(...) or unique= has no rows one by one, and "
                "no mix within batches; give it a number of rows, without unique="
            )
        if position.claims is not None:
            share = self.planner.present_plan(position).claimed(position.claims)
            return share.rows_of_first(position.steps) + position.num_rows, None
        return self.planner.rows(position, self.topology(worker))

    def end_rows(self, num_workers: int) -> int:
        """Return the rows of this rank's workers in the epoch under way or to come."""
        self.refuse_dynamic("length")
        workers = [(worker, num_workers) for worker in range(0 if in_worker() else num_workers)]
        topologies = [self.topology(worker) for worker in workers] or [self.topology()]
        return sum(self.planner.rows(self.present_place(of), of)[1] for of in topologies)

    def num_steps(self, topology: Topology, *, of_rank: bool) -> int:
        """Return the batches of the epoch under way or to come, of the rank or the worker."""
        place = self.present_place(topology)
        return self.planner.num_steps(place, topology, of_rank=of_rank)

    def seek(self, step: int) -> None:
        """Make batch `step` of the epoch the next one."""
        latest = self.live_iterator()
        if latest is not None:
            latest.seek(step)
        else:
            self.move(step)

    # States.

    def refuse_dynamic(self, what: str) -> None:
        """Raise TypeError where nobody knows `what` before it is read."""
        if self.is_dynamic:
            raise TypeError(
                f'even="dynamic" has no {what}: which rank reads what is decided while reading'
            )

    def state_of_start(self, start: Start | None) -> dict[str, Any]:
        """Return the state of the next iteration's beginning."""
        if start is not None and start.state is not None:
            return dump(start.state, self._identity)
        return self.state_of(self.next_place())

    def state_of(self, position: Place) -> dict[str, Any]:
        """Return the state of a place."""
        return self._dumped(self.planner.state_of(position, _own_worker()))

    def state_of_row(self, position: Place, used: int, taken: int) -> dict[str, Any]:
        """Return a state for mixes of rows: of a place's epoch after `taken` rows of the world."""
        return {"state": self._dumped(self.planner.state_of_row(position, taken, _own_worker()))}

    def _dumped(self, state: State) -> dict[str, Any]:
        own = replace(state, rank=self.topology().rank) if self.is_dynamic else state
        return dump(own, self._identity)

    def read_state(self, state: Any) -> State:
        """Return what a state, or one of rows, says; see `parse`."""
        parsed = parse(state, self._identity, self.planner.requested_window)
        if parsed.worker and not in_worker():
            raise ValueError(
                f"state is that of DataLoader worker {parsed.worker}: load it through torchdata's "
                "StatefulDataLoader"
            )
        return parsed

    def load_state_dict(self, state: dict[str, Any], other_data: OtherData = "error") -> None:
        """Make the next iteration, and the one under way, resume at `state`."""
        if other_data not in get_args(OtherData):
            raise ValueError(f'other_data must be "error" or "next_epoch", got {other_data!r}')
        known = state if other_data == "error" else of_data(state, self._identity)
        parsed = self.read_state(known)
        if known is state or state.get("data") == self._identity["data"]:
            self.load(parsed)
            return
        is_unread = all(leg.num_steps == leg.num_rows == 0 for leg in parsed.legs)
        live = self.live_iterator()
        self.begin_epoch(parsed.epoch if is_unread else parsed.epoch + 1)
        if live is not None:
            live.progress.move(None)


def _own_worker() -> int | None:
    worker = get_worker_info()
    return None if worker is None else worker.id
