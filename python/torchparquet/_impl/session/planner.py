"""Plans the epochs of a data set for worlds, and finds places in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from torchparquet._impl.checks import checked_int
from torchparquet._impl.plan.claims import Claims
from torchparquet._impl.plan.elastic import (
    Leg,
    after_row,
    batches_in,
    end_rows,
    plan_leg,
    rank_rows,
    rows_of_first,
    steps_of_shares,
)
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import Int64Array, PlanOptions, Topology
from torchparquet._impl.plan.share import Share
from torchparquet._impl.plan.step_costs import RowCosts
from torchparquet._impl.reading.window_limits import WindowMemory, window_in_effect
from torchparquet._impl.session.state import State


class Place(NamedTuple):
    """The place of an epoch, for one rank or one of its DataLoader workers."""

    epoch: int
    legs: tuple[Leg, ...]  # the last one of the present world, as this process took it up
    window: tuple[int, int]
    steps: int
    # Batches of the last leg after which this process ends the epoch; with claims, more than there
    # are until the end is met.
    end: int
    num_rows: int = 0
    claims: Claims | None = None  # of the epoch, where nothing is dealt to the rank

    @property
    def steps_before(self) -> int:
        """Batches of each rank in the worlds before the present one, those in part included."""
        return sum(leg.begun_steps for leg in self.legs[:-1])

    def after_batch(self) -> Place:
        """Return the place after the next batch."""
        after = self.steps + 1, self.end, 0, self.claims
        return Place(self.epoch, self.legs, self.window, *after)

    def after_each(self, end: int) -> Iterator[Place]:
        """Return the places after each of the next batches, up to batch `end`, made in C alone."""
        steps = range(self.steps + 1, end + 1)
        before, after = (self.epoch, self.legs, self.window), (self.end, 0, self.claims)
        made = zip(*map(repeat, before), steps, *map(repeat, after), strict=False)
        return map(tuple.__new__, repeat(Place), made)


_NO_END = 2**62


@dataclass
class EpochPlanner:
    """Plans epochs of one data set for any world, and finds places in them; pure arithmetic."""

    row_group_rows: Int64Array
    options: PlanOptions
    requested_window: tuple[int, int] | None
    window_memory: WindowMemory
    limit_steps: int | None
    row_group_bytes: Int64Array | None
    row_costs: RowCosts | None = None
    # The latest two, by epoch and what else they are of.
    _plans: dict[tuple[int, Any], EpochPlan | None] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the plans, which a copy makes anew where it needs them."""
        return self.__dict__ | {"_plans": {}}

    def window(self, num_workers: int = 1) -> tuple[int, int]:
        """Return `(shuffle_window, window_rows)` for a world that begins an epoch."""
        if not self.options.shuffle:
            return 0, 0
        batch_size, canonical = self.options.batch_size, self.options.order.canonical_world_size
        if batch_size is not None and canonical is not None:
            # Each world has ranks of at least so many rows.
            least_rows = int(self.row_group_rows.sum()) // canonical
            self.window_memory.check_two_batches(min(batch_size, least_rows))
            batch_size = max(1, batch_size // canonical)
        return window_in_effect(
            self.requested_window,
            self.row_group_rows,
            share_batch_size=batch_size,
            memory=self.window_memory,
            num_sharers=canonical or num_workers,
        )

    def own_leg(self, topology: Topology) -> Leg:
        """Return the leg of the present world, begun by nobody."""
        return Leg(topology.world_size, topology.num_workers, self.options.batch_size, 0)

    def _plan(self, place: Place) -> EpochPlan | None:
        """Return the plan of the last leg; None where the legs before have left no row."""
        of, epoch = (place.window, *place.legs[:-1], place.legs[-1].world), place.epoch
        if (epoch, of) in self._plans:
            return self._plans[epoch, of]
        # Two, for near its end an epoch's plan is used in turn with the next one's.
        plans = dict(list(self._plans.items())[-1:])
        latest = next((plan for (_, of_latest), plan in plans.items() if of_latest == of), None)
        if latest is not None and not self.options.shuffle:
            made: EpochPlan | None = latest.of_epoch(epoch)
        else:
            chunks, rows = place.window
            options = replace(self.options, epoch=epoch, shuffle_window=chunks, window_rows=rows)
            made = plan_leg(
                self.row_group_rows,
                options,
                place.legs,
                row_group_bytes=self.row_group_bytes,
                row_costs=self.row_costs,
            )
        self._plans = plans | {(epoch, of): made}
        return made

    def present_plan(self, place: Place) -> EpochPlan:
        """Return the plan of the world that is reading."""
        plan = self._plan(place)
        assert plan is not None  # noqa: S101
        return plan

    def begin(self, epoch: int, topology: Topology, step: int = 0) -> Place:
        """Return the place of batch `step` of an epoch that the present world begins."""
        window = self.window(topology.num_workers)
        place = Place(epoch, (self.own_leg(topology),), window, 0, 0)
        return self.sought(place, topology, step)

    def resume(self, state: State, topology: Topology) -> Place | None:
        """Return where a state goes on in the present world; None where the epoch has ended."""
        own, last = self.own_leg(topology), state.legs[-1]
        place = Place(state.epoch, state.legs, state.window, 0, 0)
        if state.taken is not None:
            return self._resume_claims(state, place, topology)
        if state.worker is not None and last.num_workers > 1:
            return self._resume_worker(state, place, topology)
        plan = self._plan(place)
        most = 0 if plan is None else self._limited(int(plan.steps_per_rank().max()), place)
        if last.num_steps > most:
            raise ValueError(f"state counts {last.num_steps} batches of {last}, which has {most}")
        if plan is None or _has_all_rows(plan, last, most) or last.num_steps == most:
            # In a worker the loader itself goes on to the next epoch.
            if state.worker is None:
                return None
            return place._replace(steps=most, end=most)
        if self._same_order(own, last):
            taken_up = own._replace(num_steps=last.num_steps, num_rows=last.num_rows)
            place = place._replace(legs=(*state.legs[:-1], taken_up))
            # With even="none" the state may be of a rank that has more batches than this one.
            steps = min(last.num_steps, self._rank_steps(place, topology))
            place = self.sought(place, topology, place.steps_before + steps)
            return self._after_rows(place, topology, last.num_rows)
        if last.num_rows and last.batch_size is None and self.limit_steps is not None:
            raise ValueError(
                "limit_steps counts batches, and a state after rows of batches that are row "
                f"groups, which ranks differ in, does not: {last}"
            )
        place = place._replace(legs=(*state.legs, own))
        plan = self._plan(place)
        if plan is None or not plan.share_steps.any():
            return None
        return self.sought(place, topology, place.steps_before)

    def _resume_claims(self, state: State, place: Place, topology: Topology) -> Place | None:
        own, last = self.own_leg(topology), state.legs[-1]
        if own != last.world or state.rank != topology.rank:
            raise ValueError(
                f'state is that of rank {state.rank} of {last.world_size} with even="dynamic" and '
                f"batch_size={last.batch_size}; this is rank {topology.rank} of {own.world_size}, "
                f"batch_size={own.batch_size}: each rank needs its own state, and as many ranks "
                "must go on. Else begin the epoch again, by set_epoch(n)"
            )
        if state.has_ended:
            return None
        steps, num_rows, taken = last.num_steps, last.num_rows, list(state.taken or ())
        place = place._replace(legs=(own,))
        place = place._replace(end=self._rank_steps(place, topology))
        order = self.present_plan(place).chunk_order.num_rows
        # Numbers outside the epoch are those of no rows.
        rows = order[[number for number in taken if number < len(order)]]
        rows[: len(state.counts)] = state.counts[: len(rows)]
        size = last.batch_size
        most = np.count_nonzero(rows) if size is None else -(-int(rows.sum()) // size)
        if len(rows) < len(taken) or steps > most:
            raise ValueError(
                f"state is damaged, load an earlier one: it counts {steps} batches, and the "
                f"row groups that it has taken make {most}"
            )
        if size is None:
            # Rows are counted from the first batch, and each batch is a row group.
            more, num_rows = batches_in(rows[rows > 0], num_rows)
            steps += more
        return place._replace(steps=steps, num_rows=num_rows)

    def _resume_worker(self, state: State, place: Place, topology: Topology) -> Place:
        own, last = self.own_leg(topology), state.legs[-1]
        if own != last.world or state.worker != topology.worker_id:
            raise ValueError(
                f"state is that of DataLoader worker {state.worker} of {last.num_workers} at "
                f"world_size={last.world_size}, batch_size={last.batch_size}; this is worker "
                f"{topology.worker_id} of {own.num_workers} at world_size={own.world_size}, "
                f"batch_size={own.batch_size}: states of workers fit the same worker only"
            )
        end = self._end(place, topology)
        if last.num_steps > end:
            raise ValueError(f"state counts {last.num_steps} batches of a worker that has {end}")
        place = place._replace(steps=last.num_steps, end=end)
        return self._after_rows(place, topology, last.num_rows)

    def _after_rows(self, place: Place, topology: Topology, num_rows: int) -> Place:
        if num_rows == 0 or place.steps >= place.end:
            return place
        steps, rows = after_row(self.present_plan(place), topology, place.steps, num_rows)
        if steps >= place.end:
            return place._replace(steps=place.end)
        return place._replace(steps=steps, num_rows=rows)

    def _same_order(self, own: Leg, last: Leg) -> bool:
        """Return whether the present world goes on with the shares of the last."""
        is_canonical = self.options.order.canonical_world_size is not None and last.num_rows == 0
        if not is_canonical or own.batch_size is None or last.batch_size is None:
            return own == last.world
        return own.batch_size * own.world_size == last.batch_size * last.world_size

    def sought(self, place: Place, topology: Topology, step: int) -> Place:
        """Return the place of the epoch's batch `step`, counted from 0 over all worlds."""
        step = checked_int("step", step, 0, 2**62)
        before, rank_steps = place.steps_before, self._rank_steps(place, topology)
        if not before <= step <= before + rank_steps:
            raise ValueError(
                f"step must be >= {before} and <= {before + rank_steps}, the batches of epoch "
                f"{place.epoch} that this rank delivers, got {step}"
            )
        steps = self._own_steps(place, topology, step - before)
        # Only the present batch has been begun.
        num_rows = place.num_rows if steps == place.steps else 0
        return place._replace(steps=steps, end=self._end(place, topology), num_rows=num_rows)

    def state_of(self, place: Place, worker: int | None) -> State:
        """Return the state of a place; `worker` is the DataLoader worker whose place it is."""
        last = place.legs[-1]
        if last.num_rows and last.batch_size is None:
            raise ValueError(
                "a batch that is a row group has no state after ranks began within one: give "
                "batch_size a number, or take the state at the end of the epoch"
            )
        return self._state(place, place.steps, place.num_rows, worker)

    def state_of_row(self, place: Place, num_rows: int, worker: int | None) -> State:
        """Return the state after `num_rows` rows of the present world, the same on all ranks."""
        if self.options.order.canonical_world_size is not None and self.options.steps_may_differ:
            raise ValueError(
                "canonical_world_size has states after rows only where shares are even, got "
                'even="none"'
            )
        batch_size = self.options.batch_size
        steps, rows = (0, num_rows) if batch_size is None else divmod(num_rows, batch_size)
        return self._state(place, steps, rows, worker)

    def _state(self, place: Place, steps: int, rows: int, worker: int | None) -> State:
        last = place.legs[-1]._replace(num_steps=steps, num_rows=rows)
        state = State(place.epoch, (*place.legs[:-1], last), worker, place.window)
        if place.claims is None:
            return state
        # What is taken ahead of the loop is this rank's too.
        taken, counts = tuple(place.claims.taken), tuple(place.claims.counts)
        return replace(state, taken=taken, counts=counts, has_ended=place.steps >= place.end)

    def rows(self, place: Place, topology: Topology) -> tuple[int, int]:
        """Return the rows of the present world up to a place, and those that all ranks can take."""
        plan = self.present_plan(place)
        limited = self.limit_steps is not None
        end = end_rows(plan, topology, place.end, limited=limited)
        rows = rows_of_first(plan, topology, place.steps) + place.num_rows
        return min(rows, end), end

    def shares(self, place: Place, topology: Topology) -> list[Share]:
        """Return what is left to read: shares whose rows stand side by side in each batch."""
        plan = self.present_plan(place)
        if place.claims is not None:
            return [plan.claimed(place.claims).steps(place.steps)]
        of_rank = plan.options.shares_of(topology.rank, topology.worker_id)
        end = None if self.limit_steps is None else place.end
        return [plan.share(index).steps(place.steps, end) for index in of_rank]

    def num_steps(self, place: Place, topology: Topology, *, of_rank: bool) -> int:
        """Return the batches of the epoch, worlds before included, of the rank or the worker."""
        if of_rank or topology.num_workers == 1:
            return place.steps_before + self._rank_steps(place, topology)
        return self._end(place, topology)

    def _own_steps(self, place: Place, topology: Topology, rank_steps: int) -> int:
        """Return the batches of this rank or worker among the first of the present world's."""
        if topology.num_workers == 1:
            return rank_steps
        return int(steps_of_shares(self.present_plan(place), rank_steps)[topology.share_index])

    def _end(self, place: Place, topology: Topology) -> int:
        return self._own_steps(place, topology, self._rank_steps(place, topology))

    def _rank_steps(self, place: Place, topology: Topology) -> int:
        if self.options.even == "dynamic":
            return self._limited(_NO_END, place)
        return self._limited(self.present_plan(place).num_steps(topology.rank), place)

    def _limited(self, num_steps: int, place: Place) -> int:
        if self.limit_steps is None:
            return num_steps
        return min(num_steps, max(self.limit_steps - place.steps_before, 0))


def _has_all_rows(plan: EpochPlan, leg: Leg, most_steps: int) -> bool:
    """Return whether no rank of a leg that ends after a row has a further one."""
    if leg.num_rows == 0 or leg.num_workers > 1:
        return False
    most = int(rank_rows(plan).max())
    rows = leg.num_rows
    if leg.batch_size is not None:
        most = min(most, most_steps * leg.batch_size)
        rows += leg.num_steps * leg.batch_size
    if rows > most:
        raise ValueError(f"state counts {rows} rows of {leg}, which has {most}")
    return rows == most
