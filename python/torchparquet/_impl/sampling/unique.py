"""Batches without a key twice: the rows of a block, sorted by key, are dealt to its batches.

Equal keys are neighbours then, so they go to different batches, as long as a block has no more of
them than batches. The few rows beyond that are exchanged with rows of other blocks first.
"""

from __future__ import annotations

from itertools import count
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.native import sort_random_keys
from torchparquet._impl.plan.order import split_mix
from torchparquet._impl.plan.plan_options import Int64Array
from torchparquet._impl.sampling.policy import Policy, RowOrder

Keys: TypeAlias = NDArray[np.uint64]

_PARTS = 16  # of all keys, which are sorted one after the other to save memory


class UniqueKeys(Policy):
    """Every row once, in batches of different keys; the plan counts batches.

    `most_equal` is how often the most frequent key is there; a full batch must have each.
    """

    def __init__(
        self,
        order: RowOrder,
        keys: Keys,
        most_equal: int,
        batch_size: int,
        block_batches: int,
        *,
        drop_last: bool,
    ) -> None:
        """Take hashes of the keys, uint64 `[n]`."""
        self.order, self._keys, self.rows_of_unit = order, keys, batch_size
        num_full, rest = divmod(len(keys), batch_size)
        self._num_whole = -(-num_full // block_batches)  # blocks, without one of a short batch
        bounds = np.arange(self._num_whole + 1) * num_full // max(self._num_whole, 1) * batch_size
        self.bounds = np.append(bounds, len(keys)) if rest and not drop_last else bounds
        self._most_equal = most_equal
        self._may_exceed = most_equal > int(self.units.min(initial=most_equal))
        self._latest: tuple[int, Int64Array, Int64Array] | None = None

    def rows(self, epoch: int, block: int) -> Int64Array:
        """Return the rows of a block, batch after batch."""
        rows, num_batches = self._placed(epoch, block), int(self.units[block])
        word = np.uint64(self.order.word(epoch, block))
        # Row i of the sorted ones goes to batch i % num_batches.
        by_key = sort_random_keys(split_mix(self._keys[rows] ^ word))
        dealt = by_key.reshape(-1, num_batches).T
        if not self.order.options.shuffle:
            dealt = np.sort(dealt, axis=1)
        return rows[dealt.reshape(-1)]

    def begin(self, epoch: int) -> None:
        """Exchange rows."""
        self._moved(epoch)

    def num_moved(self, epoch: int) -> int:
        """Return how many rows are in another block than the order of rows has them in."""
        return len(self._moved(epoch)[0])

    def _placed(self, epoch: int, block: int) -> Int64Array:
        """Return the rows of a block after rows were exchanged."""
        begin, end = self.bounds[block : block + 2].tolist()
        rows = self.order.rows_between(epoch, begin, end)
        places, now = self._moved(epoch)
        first, stop = np.searchsorted(places, [begin, end])
        rows[places[first:stop] - begin] = now[first:stop]
        return rows

    def _moved(self, epoch: int) -> tuple[Int64Array, Int64Array]:
        """Return the places in the order where another row stands, ascending, and that row."""
        if self._latest is None or self._latest[0] != epoch:
            none = np.zeros(0, np.int64)
            self._latest = epoch, none, none
            if self._may_exceed:
                before = self.order.rows_between(epoch, 0, int(self.bounds[-1]))
                now = _Exchange(self, epoch, before.copy()).run()
                places = np.flatnonzero(now != before)
                self._latest = epoch, places, now[places]
        return self._latest[1:]


class _Exchange:
    """Exchanges rows until no block has a key more often than batches.

    While one has, some block has the key less often than batches, and a row that may go back: one
    whose key the first block can take, or of which the other block has too many itself. For the
    other block has as many rows as batches times rows of a batch, and fewer than that are of the
    keys that the first block has as often as batches, unless it has too many of one of them. So
    each exchange leaves fewer rows too many.
    """

    def __init__(self, policy: UniqueKeys, epoch: int, rows: Int64Array) -> None:
        """Begin with the rows in order, which are changed."""
        self._policy, self._epoch, self._now = policy, epoch, rows

    def run(self) -> Int64Array:
        """Return, by place, the row that stands there now."""
        num_blocks = len(self._policy.units)
        for block in range(num_blocks):
            rows = self._rows(block)
            surplus = self._surplus(block, rows)
            start = self._policy.order.word(self._epoch, num_blocks + block)
            for step in count():
                if not len(surplus):
                    break
                other = (start + step) % self._policy._num_whole
                if other != block and self._trade(block, rows, surplus, other):
                    surplus = self._surplus(block, rows)
        return self._now

    def _rows(self, block: int) -> Int64Array:
        begin, end = self._policy.bounds[block : block + 2].tolist()
        return self._now[begin:end]

    def _surplus(self, block: int, rows: Int64Array) -> Int64Array:
        """Return the indices of rows that are of a key beyond the batches of a block, by key."""
        most = int(self._policy.units[block])
        if most >= self._policy._most_equal:
            return np.zeros(0, np.int64)
        keys = self._policy._keys[rows]
        in_order = np.sort(keys)
        if not (in_order[most:] == in_order[:-most]).any():
            return np.zeros(0, np.int64)
        by_key = np.argsort(keys, kind="stable")
        found: Int64Array = by_key[_places_in_runs(keys[by_key]) >= most]
        return found

    def _trade(self, block: int, rows: Int64Array, surplus: Int64Array, other: int) -> bool:
        """Exchange what can be between two blocks; return whether anything was."""
        policy, theirs = self._policy, self._rows(other)
        keys, their_keys = policy._keys[rows], policy._keys[theirs]
        own_sorted, their_sorted = np.sort(keys), np.sort(their_keys)
        leaving_keys = keys[surplus]
        room = int(policy.units[other]) - _counts(their_sorted, leaving_keys)
        leaving = surplus[_places_in_runs(leaving_keys) < room]
        if not len(leaving):
            return False
        # As many as are needed, of different keys; only if few can go, all are looked at.
        for num_tried in (8 * len(leaving) + 64, len(theirs)):
            start = policy.order.word(self._epoch, block) % len(theirs)
            tried = (start + np.arange(min(num_tried, len(theirs)))) % len(theirs)
            tried = tried[np.sort(np.unique(their_keys[tried], return_index=True)[1])]
            coming = their_keys[tried]
            may_come = _counts(own_sorted, coming) < int(policy.units[block])
            may_come |= _counts(their_sorted, coming) > int(policy.units[other])
            tried = tried[may_come][: len(leaving)]
            if len(tried) == len(leaving):
                break
        leaving = leaving[: len(tried)]
        rows[leaving], theirs[tried] = theirs[tried], rows[leaving]
        return len(tried) > 0


def most_frequent(keys: Keys) -> tuple[int, int]:
    """Return how often the most frequent key is there, and the index of its first row."""
    most, found = 0, np.uint64(0)
    for part in range(_PARTS):
        low, width = (np.uint64(of * (2**64 // _PARTS)) for of in (part, 1))
        pieces = np.array_split(keys, _PARTS)
        some = np.sort(np.concatenate([piece[piece - low < width] for piece in pieces]))
        bounds = np.append(np.flatnonzero(np.diff(some, prepend=~some[:1])), len(some))
        if len(some) and (sizes := np.diff(bounds)).max() > most:
            most, found = int(sizes.max()), some[bounds[sizes.argmax()]]
    return most, int(np.flatnonzero(keys == found)[0])


def _places_in_runs(sorted_keys: Keys) -> Int64Array:
    """Return the place of each among equal ones that follow one another, from 0."""
    is_first = np.diff(sorted_keys, prepend=~sorted_keys[:1]) != 0
    begins = np.flatnonzero(is_first)
    places: Int64Array = np.arange(len(sorted_keys)) - np.repeat(
        begins, np.diff(np.append(begins, len(sorted_keys)))
    )
    return places


def _counts(sorted_keys: Keys, keys: Keys) -> Int64Array:
    """Return how often each key is among sorted ones."""
    counts: Int64Array = np.searchsorted(sorted_keys, keys, side="right") - np.searchsorted(
        sorted_keys, keys
    )
    return counts
