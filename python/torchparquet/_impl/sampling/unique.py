"""Batches, or steps of all ranks, without a key twice.

The rows of a block, sorted by key, are dealt to its batches. Equal keys are neighbours then, so
they go to different batches, as long as a block has no more of them than batches. The few rows
beyond that are exchanged with rows of other blocks first. Across ranks, `spreading` deals them.
"""

from __future__ import annotations

from itertools import count

import numpy as np

from torchparquet._impl.native import sort_random_keys
from torchparquet._impl.plan.order import split_mix
from torchparquet._impl.plan.plan_options import Int64Array
from torchparquet._impl.sampling.policy import Policy, RowOrder
from torchparquet._impl.sampling.spreading import MOST_STEPS, Keys, Steps, places_in_runs, spread

_PARTS = 16  # of all keys, which are sorted one after the other to save memory
# The rows of all ranks in a block, at most, if it has more steps than this: they are spread in
# about 60 bytes each.
_MOST_ROWS, _FEW_STEPS = 1 << 22, 16


class UniqueKeys(Policy):
    """Every row once, in batches of different keys; the plan counts batches.

    A block has rows of all ranks: those of rank r in each of its steps are part r, which the plan
    sees as a block of its own. With one rank each block has one part.
    """

    def __init__(
        self,
        order: RowOrder,
        keys: Keys,
        batch_size: int,
        block_batches: int,
        *,
        most_equal: int,
        num_ranks: int,
        drop_last: bool,
    ) -> None:
        """Take hashes of the keys, uint64 `[n]`; the most frequent is there `most_equal` times."""
        self.order, self._keys, self.rows_of_unit = order, keys, batch_size
        self._num_ranks, self._most_equal = num_ranks, most_equal
        step_rows = num_ranks * batch_size
        num_full, rest = divmod(len(keys), step_rows)
        if num_ranks == 1:
            num_whole = -(-num_full // block_batches)
            steps = np.diff(np.arange(num_whole + 1) * num_full // max(num_whole, 1))
        else:
            most = max(_FEW_STEPS, _MOST_ROWS // step_rows)
            steps = _powers_of_two(num_full, min(block_batches, most, MOST_STEPS))
        self._num_whole = len(steps)  # blocks, without one of a short batch
        self.steps = np.append(steps, 1) if rest and not drop_last else steps
        ends = np.minimum(np.cumsum(self.steps) * step_rows, len(keys))
        self.begins = np.append(0, ends)
        parts = np.diff(self.begins)[:, None] * np.arange(num_ranks) // num_ranks
        self.bounds = np.append((self.begins[:-1, None] + parts).reshape(-1), self.begins[-1])
        self._latest: tuple[int, Int64Array, Int64Array] | None = None
        # By epoch and block, of the latest ones. Replaced whole, as other threads read it.
        self._spread: dict[tuple[int, int], Steps] = {}
        if num_ranks > 1:
            most_rows = step_rows * int(self.steps.max(initial=1))
            self.most_threads = max(1, min(self.most_threads, _MOST_ROWS // most_rows))

    def rows(self, epoch: int, block: int) -> Int64Array:
        """Return the rows of a part, batch after batch."""
        of, rank = divmod(block, self._num_ranks)
        num_steps, word = int(self.steps[of]), self.order.word(epoch, of)
        if self._num_ranks == 1:
            rows = self._placed(epoch, *self.begins[of : of + 2])
            # Row i of the sorted ones goes to batch i % num_steps.
            by_key = sort_random_keys(split_mix(self._keys[rows] ^ np.uint64(word)))
            dealt = by_key.reshape(-1, num_steps).T
            if not self.order.options.shuffle:
                dealt = np.sort(dealt, axis=1)
            return rows[dealt.reshape(-1)]
        own = self.chosen(epoch, block)
        steps = np.zeros(len(own), np.uint16)
        if num_steps > 1:
            steps = self._steps_of(epoch, of, word).reshape(self._num_ranks, -1)[rank]
        in_turn = self.order.permuted(np.arange(len(own)), word)
        return own[in_turn[np.argsort(steps[in_turn], kind="stable")]]

    def _steps_of(self, epoch: int, of: int, word: int) -> Steps:
        """Return the step of each row of a block, which a rank may read several parts of."""
        found = self._spread.get((epoch, of))
        if found is None:
            keys = self._keys[self._placed(epoch, *self.begins[of : of + 2])]
            found = spread(keys, self._num_ranks, int(self.steps[of]), word)
            latest = [*self._spread.items(), ((epoch, of), found)]
            self._spread = dict(latest[-self.most_threads :])
        return found

    def chosen(self, epoch: int, block: int) -> Int64Array:
        """Return the rows of a part in any order."""
        return self._placed(epoch, *self.bounds[block : block + 2])

    def begin(self, epoch: int) -> None:
        """Exchange rows."""
        self._moved(epoch)

    def num_moved(self, epoch: int) -> int:
        """Return how many rows are in another block than the order of rows has them in."""
        return len(self._moved(epoch)[0])

    def _placed(self, epoch: int, begin: int, end: int) -> Int64Array:
        """Return the rows at places of the order after rows were exchanged."""
        rows = self.order.rows_between(epoch, int(begin), int(end))
        places, now = self._moved(epoch)
        first, stop = np.searchsorted(places, [begin, end])
        rows[places[first:stop] - begin] = now[first:stop]
        return rows

    def _moved(self, epoch: int) -> tuple[Int64Array, Int64Array]:
        """Return the places in the order where another row stands, ascending, and that row."""
        latest = self._latest
        if latest is None or latest[0] != epoch:
            latest = epoch, np.zeros(0, np.int64), np.zeros(0, np.int64)
            if (self.steps < self._most_equal).any():
                latest = epoch, *_Exchange(self, epoch).run()
            self._latest = latest
        return latest[1:]


class _Exchange:
    """Exchanges rows until no block has a key more often than batches.

    While one has, some block has the key less often than batches, and a row that may go back: one
    whose key the first block can take, or of which the other block has too many itself. For the
    other block has as many rows as batches times rows of a batch, and fewer than that are of the
    keys that the first block has as often as batches, unless it has too many of one of them. So
    each exchange leaves fewer rows too many.
    """

    def __init__(self, policy: UniqueKeys, epoch: int) -> None:
        """Begin with the rows in order."""
        self._policy, self._epoch = policy, epoch
        num_rows = len(policy._keys)
        self._now = np.empty(int(policy.begins[-1]), np.min_scalar_type(num_rows))
        for block in range(len(policy.steps)):
            self._rows(block)[:] = self._before(block)

    def run(self) -> tuple[Int64Array, Int64Array]:
        """Return the places in the order where another row stands, ascending, and that row."""
        num_blocks = len(self._policy.steps)
        for block in np.flatnonzero(self._policy.steps < self._policy._most_equal).tolist():
            rows = self._rows(block)
            surplus = self._surplus(block, rows)
            start = self._policy.order.word(self._epoch, num_blocks + block)
            for step in count():
                if not len(surplus):
                    break
                other = (start + step) % self._policy._num_whole
                if other != block and self._trade(block, rows, surplus, other):
                    surplus = self._surplus(block, rows)
        places = [
            np.flatnonzero(self._rows(block) != self._before(block)) + self._policy.begins[block]
            for block in range(num_blocks)
        ]
        moved = np.concatenate(places)
        return moved, self._now[moved].astype(np.int64)

    def _rows(self, block: int) -> Int64Array:
        """Return the rows of a block, which may be changed."""
        begin, end = self._policy.begins[block : block + 2].tolist()
        return self._now[begin:end]

    def _before(self, block: int) -> Int64Array:
        begin, end = self._policy.begins[block : block + 2].tolist()
        return self._policy.order.rows_between(self._epoch, begin, end)

    def _surplus(self, block: int, rows: Int64Array) -> Int64Array:
        """Return the indices of rows that are of a key beyond the batches of a block, by key."""
        most = int(self._policy.steps[block])
        if most >= self._policy._most_equal:
            return np.zeros(0, np.int64)
        keys = self._policy._keys[rows]
        in_order = np.sort(keys)
        if not (in_order[most:] == in_order[:-most]).any():
            return np.zeros(0, np.int64)
        by_key = np.argsort(keys, kind="stable")
        found: Int64Array = by_key[places_in_runs(keys[by_key]) >= most]
        return found

    def _trade(self, block: int, rows: Int64Array, surplus: Int64Array, other: int) -> bool:
        """Exchange what can be between two blocks; return whether anything was."""
        policy, theirs = self._policy, self._rows(other)
        keys, their_keys = policy._keys[rows], policy._keys[theirs]
        own_sorted, their_sorted = np.sort(keys), np.sort(their_keys)
        leaving_keys = keys[surplus]
        room = int(policy.steps[other]) - _counts(their_sorted, leaving_keys)
        leaving = surplus[places_in_runs(leaving_keys) < room]
        if not len(leaving):
            return False
        # As many as are needed, of different keys; only if few can go, all are looked at.
        for num_tried in (8 * len(leaving) + 64, len(theirs)):
            start = policy.order.word(self._epoch, block) % len(theirs)
            tried = (start + np.arange(min(num_tried, len(theirs)))) % len(theirs)
            tried = tried[np.sort(np.unique(their_keys[tried], return_index=True)[1])]
            coming = their_keys[tried]
            may_come = _counts(own_sorted, coming) < int(policy.steps[block])
            may_come |= _counts(their_sorted, coming) > int(policy.steps[other])
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


def _powers_of_two(num_steps: int, most: int) -> Int64Array:
    """Return numbers of steps that are powers of two, most of them the largest up to `most`."""
    exponent = most.bit_length() - 1
    rest = [1 << bit for bit in reversed(range(exponent)) if num_steps >> bit & 1]
    return np.array([1 << exponent] * (num_steps >> exponent) + rest, np.int64)


def _counts(sorted_keys: Keys, keys: Keys) -> Int64Array:
    """Return how often each key is among sorted ones."""
    counts: Int64Array = np.searchsorted(sorted_keys, keys, side="right") - np.searchsorted(
        sorted_keys, keys
    )
    return counts
