"""Spreads rows over steps so that no key is in a step twice, and every rank has equally many.

Rows are the edges of a graph between ranks and keys. With n = 2^l steps, n * b rows of each rank
and at most n rows of each key, l halvings give each step b rows of each rank and a key at most
once: each halving pairs the rows of a rank, and those of a key, and parts all pairs. This is always
possible, as links between pairs form paths and cycles of even length. See Gabow, "Using Euler
partitions to edge color bipartite multigraphs", 1976.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.native import window_order
from torchparquet._impl.plan.order import split_mix
from torchparquet._impl.plan.plan_options import Int64Array

Keys: TypeAlias = NDArray[np.uint64]
# Numbers of rows of a block, and of their steps.
_Rows: TypeAlias = NDArray[np.uint32]
Steps: TypeAlias = NDArray[np.uint16]
MOST_STEPS = 1 << 16


def places_in_runs(values: NDArray[np.generic]) -> Int64Array:
    """Return the place of each among equal ones that follow one another, from 0."""
    is_first = np.ones(len(values), bool)
    is_first[1:] = values[1:] != values[:-1]
    begins = np.flatnonzero(is_first)
    places: Int64Array = np.arange(len(values)) - np.repeat(
        begins, np.diff(np.append(begins, len(values)))
    )
    return places


def spread(keys: Keys, num_ranks: int, num_steps: int, word: int) -> Steps:
    """Return the step of each row, uint16 `[n]`; the rows of each rank follow one another.

    `num_steps` is a power of two up to `MOST_STEPS`, which divides the rows of each rank; no key is
    there more often.
    """
    steps = np.zeros(len(keys), np.uint16)
    # Rows of equal keys, key by key; and all rows in a random order, rank by rank.
    by_key = np.argsort(keys, kind="stable").astype(np.uint32)
    key = np.cumsum(np.append(False, np.diff(keys[by_key]) != 0), dtype=np.uint32)
    is_met_again = np.append(key[1:] == key[:-1], False)
    is_met_again[1:] |= is_met_again[:-1]
    by_key, key = by_key[is_met_again], key[is_met_again]
    in_rank = len(keys) // num_ranks
    drawn: _Rows = window_order(word, len(keys))
    by_rank: _Rows = drawn[
        np.argsort((drawn // np.uint32(in_rank)).astype(np.uint16), kind="stable")
    ]
    for level in range(num_steps.bit_length() - 1):
        partner = _linked_by_key(by_key, steps, key, len(keys))
        beside = _linked_by_rank(by_rank.reshape(num_ranks << level, -1), partner)
        steps = 2 * steps + _halves(partner, beside, word + level + 1)
        order = np.argsort(steps[by_key], kind="stable")
        by_key, key = by_key[order], key[order]
        by_rank = by_rank[np.argsort(steps[by_rank], kind="stable")]
    return steps


def _linked_by_key(by_key: _Rows, steps: Steps, key: _Rows, num_rows: int) -> _Rows:
    """Return for each row another one of its key and steps; itself for one that is left over."""
    partner = np.arange(num_rows, dtype=np.uint32)
    cells = key.astype(np.uint64) << np.uint64(16) | steps[by_key]
    odd = np.flatnonzero(places_in_runs(cells) % 2)
    first, second = by_key[odd - 1], by_key[odd]
    partner[first], partner[second] = second, first
    return partner


def _linked_by_rank(cells: _Rows, partner: _Rows) -> _Rows:
    """Return for each row another one of its rank and steps; `cells` has a line for each of these.

    Rows with a partner of their key are linked to rows without as long as there are some, so that
    paths are short.
    """
    is_free = partner[cells] == cells
    num_free = np.count_nonzero(is_free, axis=1, keepdims=True)
    free_before = np.cumsum(is_free, axis=1, dtype=np.int64) - is_free
    index = np.where(is_free, free_before, np.arange(cells.shape[1]) - free_before)
    both = np.minimum(num_free, cells.shape[1] - num_free)
    place = np.where(index < both, 2 * index + is_free, both + index)
    paired = np.empty_like(cells)
    np.put_along_axis(paired, place, cells, axis=1)
    pairs = paired.reshape(-1, 2)
    beside = np.empty_like(partner)
    beside[pairs] = pairs[:, ::-1]
    return beside


def _halves(partner: _Rows, beside: _Rows, word: int) -> Steps:
    """Return 0 or 1 for each row, so that those that are linked differ."""
    # Two links lead to a row of the same half: to the end of a path, or round a cycle. The half is
    # named by its end, or by the least row of the cycle.
    rows = np.arange(len(partner), dtype=np.uint32)
    is_end = partner[beside] == beside
    following = np.where(is_end, rows, partner[beside])
    name = np.where(is_end, rows, rows + np.uint32(len(rows)))
    while True:
        least = np.minimum(name, name[following])
        if (least == name).all():
            break
        name, following = least, following[following]
    other = name[beside]
    drawn = split_mix(np.minimum(name, other) ^ split_mix(np.array([word % 2**64], np.uint64)))
    halves: Steps = ((name < other) ^ (drawn >> np.uint64(63)).astype(bool)).astype(np.uint16)
    return halves
