"""How the rows of an epoch are divided among shares: the policies of `even=`.

Array shapes: `[S]` shares, `[K]` the most chunks any share is dealt. All counts are in rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.plan.plan_options import Even, Int64Array, PlanOptions
from torchparquet._impl.plan.ranges import Arrays, Ranges
from torchparquet._impl.plan.share import Share
from torchparquet.options import Order

Float64Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RowCounts(Arrays):
    """The entries of a sparse matrix of shares by row groups, in no order.

    For reports on jobs of very many ranks, for which making each share in turn takes minutes.
    """

    share: Int64Array
    row_group: Int64Array
    num_rows: Float64Array  # not whole where a share delivers a part of a permuted window
    valid: NDArray[np.bool_]

    @classmethod
    def of_share(cls, share: Share) -> RowCounts:
        """Return the entries of one share."""
        chunks, counts = share.in_windows()
        rows = chunks.num_rows.astype(np.float64)
        if share.windows is not None:
            rows *= np.repeat(share.windows.num_rows / share.windows.stored_rows, counts)
        shares = np.full_like(chunks.row_group, share.index)
        return cls(shares, chunks.row_group, rows, chunks.valid)

    def repeats(self, times: Int64Array | int = 1) -> RowCounts:
        """Return entries of as many rows, `times` over, that are all repeats."""
        rows = self.num_rows * times
        return replace(self, num_rows=rows, valid=np.zeros_like(self.valid))

    def row_groups_by(self, holder: Int64Array, num_holders: int) -> Int64Array:
        """Return how many row groups each holder reads rows of, repeats excluded."""
        read = self.pick(self.valid & (self.num_rows > 0))
        num_row_groups = int(read.row_group.max(initial=0)) + 1
        pairs = np.unique(holder[read.share] * num_row_groups + read.row_group)
        return np.bincount(pairs // num_row_groups, minlength=num_holders)

    def sums(self, of_row: Float64Array, num_shares: int) -> Int64Array:
        """Return the sum of a quantity over the rows of each share, int64 `[S]`."""
        weights = self.num_rows * of_row[self.row_group]
        sums: Int64Array = np.rint(np.bincount(self.share, weights, num_shares)).astype(np.int64)
        return sums


class Dealt:
    """The epoch's row groups dealt in turn, position `i` to share `i % num_shares`."""

    def __init__(self, epoch: Ranges, num_shares: int) -> None:
        """Deal the ranges of `epoch`, one for each position."""
        self.epoch = epoch
        self.num_shares = num_shares
        num_turns = -(-len(epoch.num_rows) // num_shares)
        table = np.zeros(num_turns * num_shares, dtype=np.int64)
        table[: len(epoch.num_rows)] = epoch.num_rows
        # [S, K], one line per share; zero if the last turn does not reach the share.
        self.table = np.ascontiguousarray(table.reshape(num_turns, num_shares).T)
        self.totals: Int64Array = self.table.sum(axis=1)

    @cached_property
    def filled(self) -> Ranges:
        """The epoch without its empty row groups, for shares without rows."""
        return self.epoch.without_empty()

    def chunks(self, index: int) -> Ranges:
        """Return the chunks that share `index` is dealt."""
        return self.epoch.pick(slice(index, None, self.num_shares))

    def kept(self, rows: Int64Array) -> Int64Array:
        """Return the rows of each chunk among the first `rows[s]` rows of its share, `[S, K]`."""
        starts = np.cumsum(self.table, axis=1) - self.table
        kept: Int64Array = np.clip(rows[:, np.newaxis] - starts, 0, self.table)
        return kept

    def counts_of_first(self, rows: Int64Array) -> RowCounts:
        """Return the first `rows[s]` rows of each share."""
        kept = self.kept(rows)
        share, turn = np.nonzero(kept)
        row_group = self.epoch.row_group[turn * self.num_shares + share]
        counts = kept[share, turn].astype(np.float64)
        return RowCounts(share, row_group, counts, np.ones(len(share), bool))

    def chunk_counts(self, rows: Int64Array) -> Int64Array:
        """Return how many non-empty chunks hold the first `rows[s]` rows of each share, `[S]`."""
        counts: Int64Array = np.sum(self.kept(rows) > 0, axis=1, dtype=np.int64)
        return counts

    def rows_of_first(self, count: Int64Array) -> Int64Array:
        """Return the rows of the first `count[s]` non-empty chunks of each share, `[S]`."""
        within = np.cumsum(self.table > 0, axis=1) <= count[:, np.newaxis]
        rows: Int64Array = np.sum(self.table, axis=1, where=within)
        return rows


class Division:
    """`even="none"`: a share delivers the rows that it is dealt, each once.

    The other policies of `even=` derive from it. They set `rows` and `steps` anew and may override
    `part`, which returns how many of the rows dealt to a share it keeps, and what comes after.
    """

    rows: Int64Array  # [S], as EpochPlan.share_rows
    steps: Int64Array  # [S], as EpochPlan.share_steps

    @property
    def own_rows(self) -> Int64Array:
        """The rows of each share that are not repeats, `[S]`; they come first."""
        return self.rows

    def __init__(self, dealt: Dealt, options: PlanOptions) -> None:
        """Divide the rows that were dealt."""
        self._dealt = dealt
        self._options = options
        self._deliver(dealt.totals)

    def _deliver(self, rows: Int64Array) -> None:
        """Set `rows` and `steps`; with `drop_last` count whole batches only."""
        batch_size = self._options.share_batch_size
        if batch_size is None:
            self.rows, self.steps = rows, self._dealt.chunk_counts(rows)
        else:
            self.rows = rows - rows % batch_size if self._options.drop_last else rows
            self.steps = -(-self.rows // batch_size)

    def part(self, index: int) -> tuple[int, Ranges]:
        """Return the first rows dealt to share `index` that it delivers, and ranges after them."""
        return int(self.rows[index]), Ranges.none()

    def row_counts(self) -> RowCounts:
        """Return what `part` says, for all shares, without the order of rows."""
        return self._dealt.counts_of_first(self.rows)


class _Drop(Division):
    """`even="drop"`: every share stops after the fewest steps that any takes alone."""

    def __init__(self, dealt: Dealt, options: PlanOptions) -> None:
        super().__init__(dealt, options)
        fewest = self.steps.min()
        batch_size = options.share_batch_size
        if batch_size is None:
            self.rows = dealt.rows_of_first(np.full_like(self.steps, fewest))
        else:
            self.rows = np.minimum(self.rows, min(int(fewest) * batch_size, 2**62))
        self.steps = np.full_like(self.steps, fewest)


class _Pad(Division):
    """`even="pad"`: short shares start over; a share without rows repeats the epoch."""

    def __init__(self, dealt: Dealt, options: PlanOptions) -> None:
        super().__init__(dealt, options)
        most = self.steps.max()
        if options.batch_size is None:
            # By chunks: whole rounds of a share, then the first chunks of one more round.
            rounds, rest = np.divmod(most, np.maximum(self.steps, 1))
            wrapped = rounds * dealt.totals + dealt.rows_of_first(rest)
            self.rows = np.where(self.steps > 0, wrapped, dealt.filled.num_rows[:most].sum())
        else:
            self.rows = np.full_like(self.rows, self.rows.max())
        self.steps = np.full_like(self.steps, most)

    @property
    def own_rows(self) -> Int64Array:
        return np.minimum(self.rows, self._dealt.totals)

    def part(self, index: int) -> tuple[int, Ranges]:
        total = int(self._dealt.totals[index])
        missing = int(self.rows[index]) - total
        if missing <= 0:
            return super().part(index)
        source = self._dealt.chunks(index).without_empty() if total else self._dealt.filled
        return total, source.repeated(missing)

    def row_counts(self) -> RowCounts:
        dealt = self._dealt
        missing = np.maximum(self.rows - dealt.totals, 0)
        rounds, rest = np.divmod(missing, np.maximum(dealt.totals, 1))
        whole = dealt.counts_of_first(dealt.totals)
        parts = [
            dealt.counts_of_first(self.rows),
            whole.repeats(rounds[whole.share]),
            dealt.counts_of_first(np.where(dealt.totals > 0, rest, 0)).repeats(),
        ]
        without_rows = np.flatnonzero((dealt.totals == 0) & (missing > 0))
        if len(without_rows):
            # They all repeat the same rows.
            same = dealt.filled.repeated(int(missing[without_rows[0]]))
            row_group, inverse = np.unique(same.row_group, return_inverse=True)
            rows = np.zeros(len(row_group))
            np.add.at(rows, inverse, same.num_rows)
            times = len(without_rows)
            share = np.repeat(without_rows, len(row_group))
            invalid = np.zeros(len(share), bool)
            parts.append(RowCounts(share, np.tile(row_group, times), np.tile(rows, times), invalid))
        return RowCounts.joined(parts)


class _Split(Division):
    """`even="split"`: over-full shares give row ranges from their ends to short ones.

    The given rows form one stream, in the order of donors and of each donor's rows. Recipients
    take from it in their order. So two running sums determine the rows of each.
    """

    def __init__(self, dealt: Dealt, options: PlanOptions) -> None:
        super().__init__(dealt, options)
        target = self._targets(dealt.totals, options.rows_together)
        self._stream = self._given(target)
        taken = np.maximum(target - dealt.totals, 0)
        self._taken_begin = np.cumsum(taken) - taken
        self._deliver(np.full_like(target, target.min() if options.drop_last else target.max()))
        # Own rows and rows from the stream; repeated rows make up the difference.
        self._held = np.minimum(target, self.rows)
        if options.batch_size is None:
            self.steps = np.full_like(target, self._chunk_counts().max())

    @property
    def own_rows(self) -> Int64Array:
        return self._held

    @staticmethod
    def _targets(totals: Int64Array, together: int) -> Int64Array:
        """Return equal targets; odd rows go to the largest shares, so few rows move.

        All are multiples of `together`, but for the first with odd rows, which has those left.
        """
        units, left = divmod(int(totals.sum()), together)
        part, odd = divmod(units, len(totals))
        target = np.full_like(totals, part * together)
        largest_first = np.argsort(-totals, kind="stable")
        target[largest_first[:odd]] += together
        target[largest_first[odd]] += left
        return target

    def _given(self, target: Int64Array) -> Ranges:
        """Return the stream: the rows beyond each share's target."""
        table, kept = self._dealt.table, self._dealt.kept(target)
        share, turn = np.nonzero(table - kept)  # by share, then by turn
        whole = self._dealt.epoch.pick(turn * self._dealt.num_shares + share)
        left = kept[share, turn]
        return replace(whole, row_begin=whole.row_begin + left, num_rows=whole.num_rows - left)

    def _chunk_counts(self) -> Int64Array:
        """Return the non-empty chunks of each share before any is cut into pieces, `[S]`."""
        taken = np.maximum(self._held - self._dealt.totals, 0)
        first = np.searchsorted(self._stream.ends, self._taken_begin, side="right")
        last = np.searchsorted(self._stream.ends, self._taken_begin + taken, side="left")
        counts = self._dealt.chunk_counts(self._held) + (self._held < self.rows)
        return counts + np.where(taken > 0, last - first + 1, 0)

    def part(self, index: int) -> tuple[int, Ranges]:
        dealt, held = self._dealt.chunks(index), int(self._held[index])
        own = min(held, int(self._dealt.totals[index]))
        begin = int(self._taken_begin[index])
        further = self._stream.rows(begin, begin + held - own)
        chunks = dealt.rows(0, own).then(further)
        if held < self.rows[index]:
            missing = int(self.rows[index]) - held
            source, end = (chunks.without_empty(), held) if held else (self._dealt.filled, missing)
            last = source.rows(max(end - missing, 0), end).repeated(missing)
            further, chunks = further.then(last), chunks.then(last)
        count = int(self.steps[index])
        if self._options.batch_size is None and np.count_nonzero(chunks.num_rows) < count:
            return 0, chunks.cut_into(count)
        return own, further

    def row_counts(self) -> RowCounts:
        own, taken = self._dealt.counts_of_first(self._held), self._taken_counts()
        held = RowCounts.joined([own, taken])
        # A share repeats the last rows that it holds or, without any, the first of the epoch.
        last_group = np.full(len(self.rows), self._dealt.filled.row_group[0])
        for part in (own, taken):
            last_group[part.share] = part.row_group  # both go by share, then by row
        short = np.flatnonzero(self._held < self.rows)
        rows = (self.rows - self._held)[short].astype(np.float64)
        repeats = RowCounts(short, last_group[short], rows, np.zeros(len(short), bool))
        return RowCounts.joined([held, repeats])

    def _taken_counts(self) -> RowCounts:
        """Return the rows of the stream that each share takes, by share, then by row."""
        taken = np.maximum(self._held - self._dealt.totals, 0)
        share = np.flatnonzero(taken)
        begin, ends = self._taken_begin[share], self._stream.ends
        end = begin + taken[share]
        cuts = np.unique(np.concatenate([begin, end, ends - self._stream.num_rows, ends]))
        cuts, rows = cuts[:-1], np.diff(cuts)
        taker = np.searchsorted(begin, cuts, side="right") - 1
        is_taken = taker >= 0
        is_taken[is_taken] = cuts[is_taken] < end[taker[is_taken]]
        row_group = self._stream.row_group[np.searchsorted(ends, cuts[is_taken], side="right")]
        counts = rows[is_taken].astype(np.float64)
        return RowCounts(share[taker[is_taken]], row_group, counts, np.ones(len(counts), bool))


_OF_ONE_RANK: dict[str, Any] = {"world_size": 1, "ranks_together": 0, "order": Order()}


class Together(Division):
    """Row groups in parts, one for each share: all deliver their part of the same ones, in step.

    They are divided among the workers of one rank, by the policy of `even=`.
    """

    def __init__(self, dealt: Dealt, options: PlanOptions) -> None:
        self._num_ranks = num_ranks = options.ranks_together
        whole = dealt.epoch.pick(slice(None, None, num_ranks))
        whole = replace(whole, row_group=whole.row_group // num_ranks)
        of_rank = Dealt(whole, dealt.num_shares // num_ranks)
        divided = DIVISIONS[options.even] if of_rank.num_shares > 1 else Division
        self._of_rank = divided(of_rank, replace(options, batch_size=1, **_OF_ONE_RANK))
        self.rows, self.steps = (
            np.repeat(of, num_ranks) for of in (self._of_rank.rows, self._of_rank.steps)
        )

    @property
    def own_rows(self) -> Int64Array:
        return np.repeat(self._of_rank.own_rows, self._num_ranks)

    def part(self, index: int) -> tuple[int, Ranges]:
        worker, rank = divmod(index, self._num_ranks)
        own, further = self._of_rank.part(worker)
        return own, replace(further, row_group=further.row_group * self._num_ranks + rank)

    def row_counts(self) -> RowCounts:
        counts, ranks = self._of_rank.row_counts(), range(self._num_ranks)
        return RowCounts.joined(
            [
                replace(
                    counts,
                    share=counts.share * self._num_ranks + rank,
                    row_group=counts.row_group * self._num_ranks + rank,
                )
                for rank in ranks
            ]
        )


DIVISIONS: dict[Even, type[Division]] = {
    "split": _Split,
    "drop": _Drop,
    "pad": _Pad,
    "none": Division,
    "dynamic": Division,
}
