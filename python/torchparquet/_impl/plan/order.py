"""The order in which row groups are dealt, and in which a share reads its own."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.plan.plan_options import Int64Array, PlanOptions
from torchparquet._impl.plan.ranges import Ranges

# The step between the states of SplitMix64.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def epoch_order(num_units: int, options: PlanOptions) -> Int64Array:
    """Return the permutation of row groups, or parts, by `(seed, epoch)` alone, int64 `[n]`."""
    if not options.shuffle or options.order.within_rank:
        return np.arange(num_units, dtype=np.int64)
    return _sorted_by(philox(options, 0, 0, 0).random_raw(num_units))


def order_within_share(chunks: Ranges, options: PlanOptions, share: int) -> Ranges:
    """Return a share's chunks permuted by (seed, epoch, share), with repeats at the end."""
    draws = philox(options, share, 0, 2).random_raw(len(chunks.num_rows))
    own = np.flatnonzero(chunks.valid)
    return chunks.pick(np.concatenate([own[_sorted_by(draws[own])], np.flatnonzero(~chunks.valid)]))


def balanced_order(units: Ranges, costs: Int64Array, num_shares: int) -> Ranges:
    """Deal each unit in turn to the share that has cost least so far."""
    dealt: list[list[int]] = [[] for _ in range(num_shares)]
    least = [(0, share) for share in range(num_shares)]
    for unit, cost in enumerate(costs.tolist()):
        total, share = least[0]
        dealt[share].append(unit)
        heapq.heapreplace(least, (total + cost, share))
    num_turns = max(len(own) for own in dealt)
    table = np.full((num_shares, num_turns), len(costs), dtype=np.int64)
    for share, own in enumerate(dealt):
        table[share, : len(own)] = own
    hole = Ranges.whole(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
    return units.then(hole).pick(table.T.ravel())


def split_mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the outputs of SplitMix64 (Steele, Lea and Flood, 2014) at these states."""
    mixed = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    out: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return out


def philox(options: PlanOptions, share: int, leg: int, purpose: int) -> np.random.Philox:
    """Return Philox4x64-10 keyed by (seed, epoch), with a stream for each other argument.

    See Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
    """
    key = np.array([options.seed, options.epoch], dtype=np.uint64)
    return np.random.Philox(key=key, counter=np.array([0, share, leg, purpose], dtype=np.uint64))


def _sorted_by(draws: NDArray[np.uint64]) -> Int64Array:
    return np.argsort(draws, kind="stable").astype(np.int64)
