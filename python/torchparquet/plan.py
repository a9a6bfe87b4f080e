"""The epoch plan: which rows each share reads, in which order, as arithmetic on row counts.

Nothing here reads a file, and no share asks another: all of it follows from the row counts in
the footers and from `PlanOptions`, so every rank computes the same plan alone.

Words: a *share* is what one DataLoader worker of one rank reads (one per rank without workers).
A *position* is a place in the epoch's order of row groups; position `i` is dealt to share
`i % num_shares`. Array shapes: `[G]` row groups, `[S]` shares, `[K]` the most chunks any share
is dealt, `[n]` the chunks of one share. Every count and offset is in rows.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Even = Literal["split", "drop", "pad", "none"]
Int64Array = NDArray[np.int64]


def checked_int(name: str, value: object, low: int, high: int) -> int:
    """Return `value` as an int in `[low, high)`, or say what `name` must be.

    Raises:
        TypeError: `value` is not an integer (a bool is none).
        ValueError: `value` lies outside the range.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if not low <= value < high:
        raise ValueError(f"{name} must be >= {low} and < {high}, got {value}")
    return int(value)


@dataclass(frozen=True)
class PlanOptions:
    """All that shapes an epoch's order beside the row counts.

    Attributes:
        batch_size: Rows per batch; None for one batch per chunk.
        shuffle: Permute the row groups.
        seed: Key of the permutation, `0 <= seed < 2**64`.
        epoch: Second key of the permutation, `0 <= epoch < 2**64`.
        world_size: Data-parallel ranks.
        num_workers: DataLoader workers per rank; 1 when there are none.
        even: How shares are made to take the same number of steps.
        drop_last: Leave out a batch that is not full.
    """

    batch_size: int | None
    shuffle: bool = False
    seed: int = 0
    epoch: int = 0
    world_size: int = 1
    num_workers: int = 1
    even: Even = "split"
    drop_last: bool = False

    def __post_init__(self) -> None:
        """Check every field; integers of numpy become plain ones."""
        bounds = {
            "seed": (0, 2**64),
            "epoch": (0, 2**64),
            "world_size": (1, 2**31),
            "num_workers": (1, 2**31),
        }
        if self.batch_size is not None:
            bounds["batch_size"] = (1, 2**63)
        for name, (low, high) in bounds.items():
            object.__setattr__(self, name, checked_int(name, getattr(self, name), low, high))
        for name in ("shuffle", "drop_last"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be a bool, got {getattr(self, name)!r}")
        if self.even not in get_args(Even):
            raise ValueError(f"even must be one of {get_args(Even)}, got {self.even!r}")


@dataclass(frozen=True, eq=False)
class Share:
    """What one worker of one rank reads in one epoch, in order.

    Chunk `k` stands at position `k * num_shares + index` of the sequence that the cursor walks.

    Attributes:
        index: `worker_id * world_size + rank`.
        num_shares: `world_size * num_workers`.
        batch_size: Rows per batch; None for one batch per non-empty chunk.
        row_group: int64 `[n]`, global row group number.
        row_begin: int64 `[n]`, first row within the row group.
        num_rows: int64 `[n]`; 0 where a row group without rows holds its position.
        valid: bool `[n]`; False for the repeats of `even="pad"`.
    """

    index: int
    num_shares: int
    batch_size: int | None
    row_group: Int64Array
    row_begin: Int64Array
    num_rows: Int64Array
    valid: NDArray[np.bool_]

    @property
    def total_rows(self) -> int:
        """Rows delivered, repeats included."""
        return int(self.num_rows.sum())

    @property
    def num_steps(self) -> int:
        """Batches delivered."""
        if self.batch_size is None:
            return int(np.count_nonzero(self.num_rows))
        return -(-self.total_rows // self.batch_size)


class EpochPlan:
    """The division of one epoch's rows among all shares.

    Attributes:
        options: The options given.
        order: int64 `[G]`, position to row group; row groups without rows included.
        num_shares: `world_size * num_workers`.
        share_rows: int64 `[S]`, rows that each share delivers, repeats included.
        share_steps: int64 `[S]`, batches that each share delivers.
    """

    def __init__(self, row_group_rows: Int64Array, options: PlanOptions) -> None:
        """Plan an epoch.

        Args:
            row_group_rows: Integers `[G]`, rows of each row group in file order.
            options: What shapes the order.

        Raises:
            TypeError: `row_group_rows` does not hold integers.
            ValueError: It is not one-dimensional, has a negative count, or sums to no row or
                to `2**62` and more.
        """
        rows = _checked_rows(row_group_rows)
        self.options = options
        self.num_shares = options.world_size * options.num_workers
        self.order = _epoch_order(len(rows), options)
        dealt = _Dealt(_Ranges.whole(self.order, rows[self.order]), self.num_shares)
        self._division = _DIVISIONS[options.even](dealt, options)
        self.share_rows = self._division.rows
        self.share_steps = self._division.steps

    def share(self, index: int) -> Share:
        """Return share `index`, in time and memory proportional to its own chunks.

        Raises:
            ValueError: `index` is not in `[0, num_shares)`.
        """
        index = checked_int("index", index, 0, self.num_shares)
        chunks = self._division.chunks(index).without_empty_tail()
        return Share(
            index,
            self.num_shares,
            self.options.batch_size,
            chunks.row_group,
            chunks.row_begin,
            chunks.num_rows,
            chunks.valid,
        )

    def num_steps(self, rank: int) -> int:
        """Return the batches that all workers of `rank` deliver together.

        Raises:
            ValueError: `rank` is not in `[0, world_size)`.
        """
        world_size = self.options.world_size
        rank = checked_int("rank", rank, 0, world_size)
        return int(self.share_steps[rank::world_size].sum())


def _checked_rows(row_group_rows: Int64Array) -> Int64Array:
    rows = np.asarray(row_group_rows)
    if rows.ndim != 1:
        raise ValueError(f"row_group_rows must have one dimension, got {rows.ndim}")
    if rows.size and rows.dtype.kind not in "iu":
        raise TypeError(f"row_group_rows must hold integers, got {rows.dtype}")
    if rows.size and rows.min() < 0:
        raise ValueError(f"row_group_rows must be >= 0, got {rows.min()}")
    # The sum in float64 cannot wrap round, so it is trusted about the exact one.
    if not 0 < rows.sum(dtype=np.float64) < 2**62:
        raise ValueError(f"rows in all must be >= 1 and < 2**62, got {sum(rows.tolist())}")
    return rows.astype(np.int64)


def _epoch_order(num_row_groups: int, options: PlanOptions) -> Int64Array:
    """Return the permutation keyed by `(seed, epoch)` and nothing else, int64 `[G]`.

    Row groups are sorted by raw outputs of Philox4x64-10 (Salmon et al., "Parallel random
    numbers: as easy as 1, 2, 3", 2011). numpy keeps a bit generator's raw stream the same in
    every release, which it does not promise for `Generator.permutation`.
    """
    if not options.shuffle:
        return np.arange(num_row_groups, dtype=np.int64)
    key = np.array([options.seed, options.epoch], dtype=np.uint64)
    draws = np.random.Philox(key=key).random_raw(num_row_groups)
    return np.argsort(draws, kind="stable").astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Ranges:
    """Row ranges in order, one array `[n]` per property; rows are counted across them."""

    row_group: Int64Array
    row_begin: Int64Array
    num_rows: Int64Array
    valid: NDArray[np.bool_]

    @staticmethod
    def whole(row_group: Int64Array, num_rows: Int64Array) -> _Ranges:
        return _Ranges(row_group, np.zeros_like(num_rows), num_rows, np.ones(len(num_rows), bool))

    @cached_property
    def ends(self) -> Int64Array:
        return np.cumsum(self.num_rows)

    def pick(self, which: slice | NDArray[np.intp]) -> _Ranges:
        return _Ranges(
            self.row_group[which], self.row_begin[which], self.num_rows[which], self.valid[which]
        )

    def rows(self, begin: int, end: int) -> _Ranges:
        """Return the ranges of rows `[begin, end)`, the first and last one cut to fit.

        From row 0 on, leading empty ranges are kept, so that chunks keep their positions.
        """
        if begin >= end:
            return self.pick(slice(0))
        first = int(np.searchsorted(self.ends, begin, side="right")) if begin else 0
        stop = int(np.searchsorted(self.ends, end, side="left")) + 1
        row_begin, num_rows = self.row_begin[first:stop].copy(), self.num_rows[first:stop].copy()
        skipped = begin - (self.ends[first] - num_rows[0])
        row_begin[0] += skipped
        num_rows[0] -= skipped
        num_rows[-1] -= self.ends[stop - 1] - end
        return _Ranges(self.row_group[first:stop], row_begin, num_rows, self.valid[first:stop])

    def then(self, other: _Ranges) -> _Ranges:
        return _Ranges(
            np.concatenate((self.row_group, other.row_group)),
            np.concatenate((self.row_begin, other.row_begin)),
            np.concatenate((self.num_rows, other.num_rows)),
            np.concatenate((self.valid, other.valid)),
        )

    def without_empty(self) -> _Ranges:
        return self.pick(np.flatnonzero(self.num_rows))

    def without_empty_tail(self) -> _Ranges:
        filled = np.flatnonzero(self.num_rows)
        return self.pick(slice(filled[-1] + 1 if filled.size else 0))

    def repeated(self, num_rows: int) -> _Ranges:
        """Return `num_rows` rows, read round and round; none is valid."""
        rounds, rest = divmod(num_rows, int(self.ends[-1]))
        ranges = self.pick(np.tile(np.arange(len(self.ends)), rounds)).then(self.rows(0, rest))
        return replace(ranges, valid=np.zeros_like(ranges.valid))

    def cut_into(self, count: int) -> _Ranges:
        """Return `count` ranges of the same rows, the largest cut into near-equal pieces.

        Pieces are as small as the count asks for: `longest` is the least bound for which
        cutting every range into pieces within it takes at most `count`. Pieces still to spare
        go to the ranges, from the first on, that a bound of `longest - 1` would cut further.
        `count` is at least the number of non-empty ranges and at most the number of rows;
        empty ranges are left out.
        """

        def pieces_within(bound: int) -> Int64Array:
            return -(-self.num_rows // bound)

        by_size = np.sort(self.num_rows)[::-1]
        low, high, spare = 1, int(by_size[0]), count - np.count_nonzero(by_size)
        if spare < len(by_size):
            # At most `spare` ranges can be cut, so the next largest fits the bound whole; and
            # a bound of half the largest cuts none of them more than once.
            low = max(int(by_size[spare]), 1)
            high = max(low, -(-high // 2))
        bounds = range(low, high + 1)
        longest = bounds[bisect_left(bounds, True, key=lambda b: pieces_within(b).sum() <= count)]
        pieces = pieces_within(longest)
        further = pieces_within(max(longest - 1, 1)) - pieces
        pieces += np.clip(count - pieces.sum() - (np.cumsum(further) - further), 0, further)

        source = np.repeat(np.arange(len(pieces)), pieces)
        place = np.arange(count) - (np.cumsum(pieces) - pieces)[source]
        size, larger = np.divmod(self.num_rows[source], pieces[source])
        begin = self.row_begin[source] + place * size + np.minimum(place, larger)
        return _Ranges(self.row_group[source], begin, size + (place < larger), self.valid[source])


class _Dealt:
    """The epoch's row groups dealt in turn, position `i` to share `i % num_shares`."""

    def __init__(self, epoch: _Ranges, num_shares: int) -> None:
        self.epoch = epoch
        self.num_shares = num_shares
        num_turns = -(-len(epoch.num_rows) // num_shares)
        table = np.zeros(num_turns * num_shares, dtype=np.int64)
        table[: len(epoch.num_rows)] = epoch.num_rows
        # [S, K], one line per share; zero where the last turn does not reach a share.
        self.table = np.ascontiguousarray(table.reshape(num_turns, num_shares).T)
        self.totals: Int64Array = self.table.sum(axis=1)

    @cached_property
    def filled(self) -> _Ranges:
        """The epoch without its empty row groups, for shares that are dealt no row."""
        return self.epoch.without_empty()

    def chunks(self, index: int) -> _Ranges:
        return self.epoch.pick(slice(index, None, self.num_shares))

    def kept(self, rows: Int64Array) -> Int64Array:
        """Return how much of each chunk lies in the first `rows[s]` rows of its share, `[S, K]`."""
        starts = np.cumsum(self.table, axis=1) - self.table
        kept: Int64Array = np.clip(rows[:, np.newaxis] - starts, 0, self.table)
        return kept

    def chunk_counts(self, rows: Int64Array) -> Int64Array:
        """Return how many non-empty chunks hold the first `rows[s]` rows of each share, `[S]`."""
        counts: Int64Array = np.sum(self.kept(rows) > 0, axis=1, dtype=np.int64)
        return counts

    def rows_of_first(self, count: Int64Array) -> Int64Array:
        """Return the rows of the first `count[s]` non-empty chunks of each share, `[S]`."""
        within = np.cumsum(self.table > 0, axis=1) <= count[:, np.newaxis]
        rows: Int64Array = np.sum(self.table, axis=1, where=within)
        return rows


class _Division:
    """`even="none"`: a share delivers what it is dealt, every row once.

    The other ways of `even=` derive from it: they set `rows` and `steps` anew and may override
    `chunks`, which returns the chunks of one share that hold its `rows[index]` rows.
    """

    rows: Int64Array  # [S], as EpochPlan.share_rows
    steps: Int64Array  # [S], as EpochPlan.share_steps

    def __init__(self, dealt: _Dealt, options: PlanOptions) -> None:
        self._dealt = dealt
        self._options = options
        self._deliver(dealt.totals)

    def _deliver(self, rows: Int64Array) -> None:
        """Set `rows` and `steps`, with whole batches only where `drop_last` asks for it."""
        batch_size = self._options.batch_size
        if batch_size is None:
            self.rows, self.steps = rows, self._dealt.chunk_counts(rows)
        else:
            self.rows = rows - rows % batch_size if self._options.drop_last else rows
            self.steps = -(-self.rows // batch_size)

    def chunks(self, index: int) -> _Ranges:
        return self._dealt.chunks(index).rows(0, int(self.rows[index]))


class _Drop(_Division):
    """`even="drop"`: every share stops after the fewest steps that any takes alone."""

    def __init__(self, dealt: _Dealt, options: PlanOptions) -> None:
        super().__init__(dealt, options)
        fewest = self.steps.min()
        if options.batch_size is None:
            self.rows = dealt.rows_of_first(np.full_like(self.steps, fewest))
        else:
            self.rows = np.minimum(self.rows, min(int(fewest) * options.batch_size, 2**62))
        self.steps = np.full_like(self.steps, fewest)


class _Pad(_Division):
    """`even="pad"`: short shares wrap round; a share dealt no row wraps round the epoch."""

    def __init__(self, dealt: _Dealt, options: PlanOptions) -> None:
        super().__init__(dealt, options)
        most = self.steps.max()
        if options.batch_size is None:
            # Chunk by chunk: whole rounds of a share, then the first chunks of one more.
            rounds, rest = np.divmod(most, np.maximum(self.steps, 1))
            wrapped = rounds * dealt.totals + dealt.rows_of_first(rest)
            self.rows = np.where(self.steps > 0, wrapped, dealt.filled.num_rows[:most].sum())
        else:
            self.rows = np.full_like(self.rows, self.rows.max())
        self.steps = np.full_like(self.steps, most)

    def chunks(self, index: int) -> _Ranges:
        missing = int(self.rows[index] - self._dealt.totals[index])
        if missing <= 0:
            return super().chunks(index)
        own = self._dealt.chunks(index)
        source = own.without_empty() if self._dealt.totals[index] else self._dealt.filled
        return own.then(source.repeated(missing))


class _Split(_Division):
    """`even="split"`: over-full shares give row ranges off their tails to short ones.

    The rows given, in donor order and each donor's own order, are one stream; the recipients,
    in their order, take from it in turn. So who gets what is a pair of running sums.
    """

    def __init__(self, dealt: _Dealt, options: PlanOptions) -> None:
        super().__init__(dealt, options)
        target = self._targets(dealt.totals)
        self._stream = self._given(target)
        taken = np.maximum(target - dealt.totals, 0)
        self._taken_begin = np.cumsum(taken) - taken
        self._deliver(np.full_like(target, target.min() if options.drop_last else target.max()))
        # What a share has of its own and of the stream; a repeated row makes up the rest.
        self._held = np.minimum(target, self.rows)
        if options.batch_size is None:
            self.steps = np.full_like(target, self._chunk_counts().max())

    @staticmethod
    def _targets(totals: Int64Array) -> Int64Array:
        """Return an equal part each; the odd rows go to the largest shares, so few rows move."""
        part, odd = divmod(int(totals.sum()), len(totals))
        target = np.full_like(totals, part)
        target[np.argsort(-totals, kind="stable")[:odd]] += 1
        return target

    def _given(self, target: Int64Array) -> _Ranges:
        """Return the stream: the rows beyond each share's target."""
        table, kept = self._dealt.table, self._dealt.kept(target)
        share, turn = np.nonzero(table - kept)  # by share, then by turn
        row_group = self._dealt.epoch.row_group[turn * self._dealt.num_shares + share]
        begin = kept[share, turn]
        return _Ranges(row_group, begin, table[share, turn] - begin, np.ones(len(share), bool))

    def _chunk_counts(self) -> Int64Array:
        """Return the non-empty chunks of each share before any is cut into pieces, `[S]`."""
        taken = np.maximum(self._held - self._dealt.totals, 0)
        first = np.searchsorted(self._stream.ends, self._taken_begin, side="right")
        last = np.searchsorted(self._stream.ends, self._taken_begin + taken, side="left")
        counts = self._dealt.chunk_counts(self._held) + (self._held < self.rows)
        return counts + np.where(taken > 0, last - first + 1, 0)

    def chunks(self, index: int) -> _Ranges:
        chunks, held = self._dealt.chunks(index), int(self._held[index])
        taken, begin = held - int(self._dealt.totals[index]), int(self._taken_begin[index])
        if taken < 0:
            chunks = chunks.rows(0, held)
        elif taken > 0:
            chunks = chunks.then(self._stream.rows(begin, begin + taken))
        if held < self.rows[index]:
            source, end = (chunks.without_empty(), held) if held else (self._dealt.filled, 1)
            chunks = chunks.then(source.rows(end - 1, end))
        count = int(self.steps[index])
        if self._options.batch_size is None and np.count_nonzero(chunks.num_rows) < count:
            chunks = chunks.cut_into(count)
        return chunks


_DIVISIONS: dict[Even, type[_Division]] = {
    "split": _Split,
    "drop": _Drop,
    "pad": _Pad,
    "none": _Division,
}
