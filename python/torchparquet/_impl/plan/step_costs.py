"""Steps of about equal cost on all shares: costs of rows, and how windows are dealt into steps.

A *slot* is the rows of all shares at one place: `slot_rows` rows of each, from row
`slot * slot_rows` of the share on. Costs are integers, so every rank finds the same sums.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.plan.plan_options import Int64Array, PlanOptions
from torchparquet._impl.plan.ranges import Ranges

if TYPE_CHECKING:
    from torchparquet._impl.plan.epoch_plan import EpochPlan

Float64Array = NDArray[np.float64]
# Row groups of a window that rows count: longer ones are cut, so that shares can be evened.
_TURNS = 8
# Noise of the costs by which rows are sorted, as a part of them.
_NOISE = 1 / 16
# Units of a share that may be swapped, and how often shares swap one.
_MOST_SWAPPED, _SWAPS = 32, 16
# Rows whose costs are added up at once: as many wider numbers are held.
_SUMMED_ROWS = 1 << 20


@dataclass(frozen=True, eq=False)
class RowCosts:
    """The cost of each row, of all row groups one after the other.

    Attributes:
        of_row: uint32 `[N]`.
        first: int64 `[G]`, the place of each row group's first row.
        digest: Hex digits that differ for other costs.
    """

    of_row: NDArray[np.uint32]
    first: Int64Array
    digest: str

    def of(self, ranges: Ranges) -> NDArray[np.uint32]:
        """Return the costs of the rows of ranges, in order."""
        begin = self.first[ranges.row_group] + ranges.row_begin
        ends = zip(begin.tolist(), (begin + ranges.num_rows).tolist(), strict=True)
        return np.concatenate([self.of_row[:0], *(self.of_row[at:end] for at, end in ends)])

    def sums(self, ranges: Ranges) -> Int64Array:
        """Return the cost of each range, int64 `[n]`; of a range without rows 0."""
        found = np.zeros(len(ranges.num_rows), np.int64)
        begin = self.first[ranges.row_group] + ranges.row_begin
        filled = np.flatnonzero(ranges.num_rows)
        filled = filled[np.argsort(begin[filled])]
        of_part = np.cumsum(np.diff(begin[filled] // _SUMMED_ROWS, prepend=-1) != 0)
        for some in np.split(filled, np.flatnonzero(np.diff(of_part)) + 1):
            # Every other sum is of the rows between two ranges.
            bounds = np.stack([begin, begin + ranges.num_rows], axis=1)[some].ravel()
            rows = self.of_row[bounds[:1].sum() : bounds[-1:].sum()]
            if len(some):
                bounds = bounds[:-1] - bounds[0]
                found[some] = np.add.reduceat(rows, bounds, dtype=np.int64)[::2]
        return found


def slot_rows(row_group_rows: Int64Array, options: PlanOptions) -> int:
    """Return the rows of a slot of each share: as the largest row groups, in whole batches."""
    chunks, bound = options.shuffle_window, options.window_rows
    rows = int(np.sort(row_group_rows)[-chunks:].sum())
    rows = min(rows, bound or rows)
    batch_rows = options.share_batch_size or 1
    return max(rows - rows % batch_rows, batch_rows)


def longest_unit(rows_of_slot: int) -> int:
    """Return the most rows of a range that is dealt as a whole, where row groups are cut."""
    return -(-rows_of_slot // _TURNS)


def evened_order(
    units: Ranges, costs: RowCosts, num_shares: int, rows_of_slot: int, num_first: int
) -> Ranges:
    """Deal units in turns so that the shares' rows of each slot cost about the same.

    The first units keep their order, and fill whole turns. Of the rest, those of about a slot are
    sorted by what they cost more than so many rows do on the average, up to two turns apart from
    that. Each turn takes the next of them, the costliest for the share that has cost least. Then
    shares swap units. The parts are given to shares, and their turns, in random order.
    """
    rest = units.pick(slice(num_first, None))
    rows, count = rest.num_rows, len(rest.num_rows)
    if not rows.any():
        return units
    sums = costs.sums(rest).astype(np.float64)
    excess = sums - rows * (sums.sum() / rows.sum())
    num_turns = max(1, round(rows_of_slot * count / int(rows.sum())))
    block = num_turns * num_shares
    turns = [np.arange(num_first), np.full(-num_first % num_shares, len(units.num_rows))]
    for begin in range(0, count, block):
        own = excess[begin : begin + block]
        # Units stand in the epoch's random order: by it, one may come up to two turns later.
        by_cost, place = np.argsort(-own, kind="stable"), np.arange(len(own)) / len(own)
        place[by_cost] = np.arange(len(own)) + 2 * num_shares * place[by_cost]
        order = np.argsort(place, kind="stable") + begin
        total, dealt = np.zeros(num_shares), np.full((-(-len(own) // num_shares), num_shares), -1)
        for turn, at in zip(dealt, range(0, len(own), num_shares), strict=True):
            some = order[at : at + num_shares]
            some = some[np.argsort(-excess[some], kind="stable")]
            least = np.argsort(total, kind="stable")[: len(some)]
            turn[least] = some
            total[least] += excess[some]
        num_full = len(own) // num_shares
        _swap(dealt[:num_full], total, excess)
        if num_full:
            # Neither the shares nor the turns of an epoch follow from costs.
            dealt = dealt[:, np.argsort(dealt[0])]
            dealt[:num_full] = dealt[np.argsort(dealt[:num_full, 0])]
        turns.append(np.where(dealt < 0, len(units.num_rows), dealt + num_first).ravel())
    hole = Ranges.whole(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
    return units.then(hole).pick(np.concatenate(turns))


def _swap(dealt: Int64Array, total: Float64Array, excess: Float64Array) -> None:
    """Swap units, dealt in turns `[K, S]`, so that the totals of shares `[S]` become more equal.

    The share that costs most swaps with the one that costs least, the next with the next, and so
    on, those units of which the swap leaves the smallest difference.
    """
    some = dealt[:: -(-len(dealt) // _MOST_SWAPPED) or 1]
    half, width = len(total) // 2, len(some)
    for _ in range(_SWAPS if half and width else 0):
        by_total = np.argsort(-total, kind="stable")
        most, least = by_total[:half], by_total[::-1][:half]
        wanted = (total[most] - total[least]) / 2
        moved = excess[some[:, most].T][:, :, np.newaxis] - excess[some[:, least].T][:, np.newaxis]
        missed = np.abs(moved - wanted[:, np.newaxis, np.newaxis]).reshape(half, -1)
        best = missed.argmin(axis=1)
        better = np.flatnonzero(missed[np.arange(half), best] < wanted)
        if not len(better):
            return
        given, taken = np.divmod(best[better], width)
        most, least = most[better], least[better]
        amount = moved[better, given, taken]
        some[given, most], some[taken, least] = some[taken, least], some[given, most]
        total[most] -= amount
        total[least] += amount


def step_targets(
    shares: Iterable[NDArray[np.uint32]], num_steps: int, batch_rows: int
) -> Float64Array | None:
    """Return what steps of shares are to cost, descending, `[n]`, from the costs of their rows.

    That is even, but for steps that a single row of some share leads: these cost as much as that
    row with the cheapest rows beside it. None without shares.
    """
    leading, cheapest, total, count = np.zeros(num_steps), np.zeros(num_steps + 1), 0.0, 0
    for costs in shares:
        ascending = np.sort(costs)
        leading = np.maximum(leading, ascending[: -num_steps - 1 : -1])
        sums = np.append(0, np.cumsum(ascending, dtype=np.int64))
        # Of the rows beside the leading ones of 0, 1, 2, ... steps.
        cheapest += sums[np.minimum(np.arange(num_steps + 1) * (batch_rows - 1), len(costs))]
        total, count = total + float(sums[-1]), count + 1
    if not count:
        return None
    num_led, _ = _level(leading, total / count)
    leading += cheapest[num_led] / count / max(num_led, 1)
    _, level = _level(leading, total / count)
    found: Float64Array = np.maximum(leading, level)
    return found


def _level(leading: Float64Array, total: float) -> tuple[int, float]:
    """Return how many steps cost as much as they must at least, and what each other costs."""
    rest = total - np.append(0, np.cumsum(leading)[:-1])
    levels = rest / np.arange(len(leading), 0, -1)
    fitting = np.flatnonzero(leading <= levels)
    return (int(fitting[0]), float(levels[fitting[0]])) if len(fitting) else (len(leading), 0.0)


@dataclass(frozen=True, eq=False)
class WindowSteps:
    """How the rows of a window are dealt into steps.

    Attributes:
        plan: The plan of the world that dealt the window.
        slot: The slot whose rows of a share the window is; None if it is another part.
    """

    plan: EpochPlan
    slot: int | None

    def num_steps(self, num_rows: int) -> int:
        """Return the steps of the window, of which the last may have fewer rows."""
        return -(-num_rows // self._batch_rows)

    @property
    def _batch_rows(self) -> int:
        return self.plan.options.share_batch_size or 1

    def dealt(self, chunks: Ranges, permuted: Callable[[int, int], Int64Array]) -> Int64Array:
        """Return the order of the rows of a window's chunks, int64 `[n]`.

        `permuted(n, k)` is permutation k of n numbers, the same on all shares. The steps are
        permuted, but for the last one, which may have fewer rows and is the cheapest.
        """
        of_row = self.plan.row_costs
        assert of_row is not None  # noqa: S101
        costs, batch_rows = of_row.of(chunks), self._batch_rows
        num_rows, num_steps = len(costs), self.num_steps(len(costs))
        turns = np.append(permuted(num_steps - 1, 0), num_steps - 1)
        if batch_rows == 1:
            costliest: Int64Array = np.argsort(~costs, kind="stable")  # ~ of unsigned: descending
            order: Int64Array = costliest[turns]
            return order
        targets = None if self.slot is None else self.plan.slot_targets(self.slot)
        if targets is None or len(targets) != num_steps:
            targets = step_targets([costs], num_steps, batch_rows)
            assert targets is not None  # noqa: S101
        # Rows of nearly equal costs change places, so that others meet in each epoch.
        noisy = costs * (1 + permuted(num_rows, 1) * (_NOISE / num_rows))
        costliest = np.argsort(-noisy, kind="stable")
        last_rows = num_rows - (num_steps - 1) * batch_rows
        of_step = _dealt(costs, costliest, targets, batch_rows, last_rows)
        return np.concatenate([np.sort(of_step[step]) for step in turns.tolist()])


def _dealt(
    costs: NDArray[np.uint32],
    costliest: Int64Array,
    targets: Float64Array,
    batch_rows: int,
    last_rows: int,
) -> list[list[int]]:
    """Return the rows of each step: the costliest first goes to the step that lacks most.

    After Graham, "Bounds on multiprocessing timing anomalies", 1969, with targets and a number of
    rows for each step.
    """
    num_steps = len(targets)
    targets = targets * np.append(np.ones(num_steps - 1), last_rows / batch_rows)
    lacking = -targets * (float(costs.sum(dtype=np.int64)) / max(float(targets.sum()), 1.0))
    heap = list(zip(lacking.tolist(), range(num_steps), strict=True))
    heapq.heapify(heap)
    rows: list[list[int]] = [[] for _ in range(num_steps)]
    room = [batch_rows] * (num_steps - 1) + [last_rows]
    for row, cost in zip(costliest.tolist(), costs[costliest].tolist(), strict=True):
        lack, step = heap[0]
        rows[step].append(row)
        if len(rows[step]) == room[step]:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (lack + cost, step))
    return rows
