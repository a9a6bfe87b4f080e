"""The laws of the epoch plan, against a slow reference that deals one row at a time.

The reference knows rows, lists and the rules; it shares nothing with the plan, not even the
way batches per chunk are cut: there the laws are checked instead (see `check_cut`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from tests.oracles.window_oracle import GOLDEN, MASK64, chunks_of, mix, permuted
from torchparquet._impl.plan.epoch_plan import EpochPlan

# The reference: a row is (row group, row, valid), a chunk is a list of rows.


def deal(row_group_rows: Any, order: Any, num_shares: Any) -> Any:
    shares: Any = [[] for _ in range(num_shares)]
    for position, row_group in enumerate(order):
        rows = [(row_group, row, True) for row in range(row_group_rows[row_group])]
        shares[position % num_shares].append(rows)
    return shares


def flat(chunks: Any) -> Any:
    return [row for chunk in chunks for row in chunk]


def filled(chunks: Any) -> Any:
    return [chunk for chunk in chunks if chunk]


def head(chunks: Any, num_rows: int) -> Any:
    kept = []
    for chunk in chunks:
        kept.append(chunk[:num_rows])
        num_rows -= len(kept[-1])
    return kept


def ceil_div(a: Any, b: Any) -> Any:
    return (a + b - 1) // b


def repeat_rows(chunks: Any, epoch: int, num_rows: int) -> Any:
    """Append rows of `chunks` (of `epoch` if there are none) from the start, up to `num_rows`."""
    source = filled(chunks) or filled(epoch)
    padded, k = list(chunks), 0
    while (missing := num_rows - len(flat(padded))) > 0:
        padded.append([(g, r, False) for g, r, _ in source[k % len(source)][:missing]])
        k += 1
    return padded


def repeat_chunks(chunks: Any, epoch: int, num_chunks: Any) -> Any:
    source = filled(chunks) or filled(epoch)
    padded, k = list(chunks), 0
    while len(filled(padded)) < num_chunks:
        padded.append([(g, r, False) for g, r, _ in source[k % len(source)]])
        k += 1
    return padded


def reference_none(shares: Any, options: Any) -> Any:
    if options.drop_last and options.batch_size is not None:
        sizes = [len(flat(share)) // options.batch_size * options.batch_size for share in shares]
        return [head(share, size) for share, size in zip(shares, sizes, strict=True)]
    return shares


def reference_drop(shares: Any, options: Any) -> Any:
    if options.batch_size is None:
        steps = min(len(filled(share)) for share in shares)
        return [head(share, len(flat(filled(share)[:steps]))) for share in shares]
    totals = [len(flat(share)) for share in shares]
    if options.drop_last:
        steps = min(total // options.batch_size for total in totals)
    else:
        steps = min(ceil_div(total, options.batch_size) for total in totals)
    return [head(share, steps * options.batch_size) for share in shares]


def reference_pad(shares: Any, epoch: int, options: Any) -> Any:
    if options.batch_size is None:
        steps = max(len(filled(share)) for share in shares)
        return [repeat_chunks(share, epoch, steps) for share in shares]
    longest = max(len(flat(share)) for share in shares)
    if options.drop_last:
        longest = longest // options.batch_size * options.batch_size
    return [repeat_rows(head(share, longest), epoch, longest) for share in shares]


def reference_split(shares: Any, epoch: int, options: Any) -> Any:
    """Move rows one at a time, each from the first share with too many to the first short one."""
    part, odd = divmod(len(flat(epoch)), len(shares))
    by_size = sorted(range(len(shares)), key=lambda s: (-len(flat(shares[s])), s))
    target = [part + (s in by_size[:odd]) for s in range(len(shares))]
    stream = [row for s, share in enumerate(shares) for row in flat(share)[target[s] :]]
    balanced = []
    for s, share in enumerate(shares):
        chunks = head(share, target[s])
        missing = target[s] - len(flat(chunks))
        taken, stream = stream[:missing], stream[missing:]
        balanced.append(chunks + [list(rows) for _, rows in groupby(taken, lambda row: row[0])])
    assert not stream
    if options.drop_last:
        size = part if options.batch_size is None else part // options.batch_size
        return [head(share, size * (options.batch_size or 1)) for share in balanced]
    longest = max(target)
    last_rows = [(flat(share)[-1:] or flat(epoch)[:1])[0] for share in balanced]
    repeats = [[(row_group, row, False)] for row_group, row, _ in last_rows]
    return [share + [repeats[s]] * (longest - target[s]) for s, share in enumerate(balanced)]


def reference(row_group_rows: Any, order: Any, options: Any) -> Any:
    """Return each share's chunks, before split cuts any for `batch_size=None`."""
    shares = deal(row_group_rows, order, options.world_size * options.num_workers)
    epoch = deal(row_group_rows, order, 1)[0]
    if options.even == "none":
        return reference_none(shares, options)
    if options.even == "drop":
        return reference_drop(shares, options)
    if options.even == "pad":
        return reference_pad(shares, epoch, options)
    assert options.even == "split"
    return reference_split(shares, epoch, options)


# The checks


def check_cut(chunks: Any, wanted: Any, count: Any) -> None:
    """Check `chunks` against the uncut `wanted`: same rows, `count` pieces, as small as can be."""
    chunks, wanted = filled(chunks), filled(wanted)
    assert flat(chunks) == flat(wanted)
    assert len(chunks) == count
    if count == len(wanted):
        assert chunks == wanted
        return
    bound = 1
    while sum(ceil_div(len(chunk), bound) for chunk in wanted) > count:
        bound += 1
    assert max(map(len, chunks)) == bound
    # The pieces of one chunk differ by one row at most, and small chunks are left whole.
    for chunk in wanted:
        pieces: list[Any] = []
        while sum(pieces) < len(chunk):
            pieces.append(len(chunks.pop(0)))
        assert sum(pieces) == len(chunk)
        assert max(pieces) - min(pieces) <= 1
        assert len(pieces) <= ceil_div(len(chunk), max(bound - 1, 1))


def check_audit(shares: Any, row_group_rows: Any, options: Any) -> None:
    """Check exactly-once on what the shares say, with no reference between."""
    rows = [row for share in shares for row in flat(chunks_of(share)) if row[2]]
    seen = Counter((g, r) for g, r, _ in rows)
    every = {(g, r) for g, count in enumerate(row_group_rows) for r in range(count)}
    assert set(seen) <= every
    assert sum(seen.values()) == len(seen)
    if options.even == "split" and not options.drop_last:
        repeats = sum(share.total_rows for share in shares) - len(rows)
        assert repeats == -len(every) % len(shares)
    # Without full batches to cut to, drop_last shortens split alone, to equal rows.
    cut = options.drop_last and (options.batch_size is not None or options.even == "split")
    if options.even != "drop" and not cut:
        assert set(seen) == every


def check_even(plan: Any, options: Any) -> None:
    steps = plan.share_steps.tolist()
    if options.even != "none":
        assert len(set(steps)) == 1
        assert len({plan.num_steps(rank) for rank in range(options.world_size)}) == 1
    if options.even == "split" or (options.even == "pad" and options.batch_size):
        assert len(set(plan.share_rows.tolist())) == 1
    if options.drop_last and options.batch_size:
        assert all(rows % options.batch_size == 0 for rows in plan.share_rows.tolist())


def check_positions(share: Any, order: Any) -> None:
    """Check that the cursor meets the epoch's own order, and no row group elsewhere is empty."""
    found, further = share.order, share.further
    assert found.row_group.tolist() == order
    assert further.num_rows.all(), "an empty chunk that holds no position"
    own = slice(share.index, None, share.num_shares)
    dealt = replace(share, order=found.pick(own), index=0, num_shares=1)
    assert flat(chunks_of(dealt)) == flat(chunks_of(share))


def check_plan(row_group_rows: Any, options: Any) -> Any:
    """Check all shares of a plan, and return it."""
    plan = EpochPlan(np.array(row_group_rows, dtype=np.int64), options)
    order = plan.order.tolist()
    assert sorted(order) == list(range(len(row_group_rows)))
    assert plan.num_shares == options.world_size * options.num_workers
    assert len(plan.share_rows) == len(plan.share_steps) == plan.num_shares
    expected = reference(row_group_rows, order, options)
    shares = [plan.share(index) for index in range(plan.num_shares)]
    most = max(len(filled(chunks)) for chunks in expected)
    for index, (share, wanted) in enumerate(zip(shares, expected, strict=True)):
        chunks = chunks_of(share)
        assert (share.index, share.num_shares) == (index, plan.num_shares)
        assert share.batch_size == options.batch_size
        assert not chunks or chunks[-1], "an empty tail"
        if options.even == "split" and options.batch_size is None:
            check_cut(chunks, wanted, most)
        else:
            assert filled(chunks) == filled(wanted)
            check_positions(share, order)
        # The plan's figures without laying out a share equal those of the share.
        rows, steps = len(flat(chunks)), len(filled(chunks))
        if options.batch_size is not None:
            steps = ceil_div(rows, options.batch_size)
        assert share.total_rows == plan.share_rows[index] == rows
        assert share.num_steps == plan.share_steps[index] == steps
        assert plan.own_rows[index] == sum(valid for _, _, valid in flat(chunks))
    for rank in range(options.world_size):
        of_rank = [shares[w * options.world_size + rank] for w in range(options.num_workers)]
        assert plan.num_steps(rank) == sum(share.num_steps for share in of_rank)
    check_audit(shares, row_group_rows, options)
    check_even(plan, options)
    return plan


# The order, from its definition alone: what a plan says is not asked for


def philox(options: Any, counter: Any, count: Any) -> Any:
    key = np.array([options.seed, options.epoch], dtype=np.uint64)
    counter = np.array(counter, dtype=np.uint64)
    return np.random.Philox(key=key, counter=counter).random_raw(count).tolist()


def shuffled(num_row_groups: Any, options: Any) -> Any:
    """Return the row groups in the epoch's order."""
    if not options.shuffle:
        return list(range(num_row_groups))
    draws = philox(options, [0, 0, 0, 0], num_row_groups)
    return sorted(range(num_row_groups), key=draws.__getitem__)


def permuted_in_windows(chunks: Any, index: Any, options: Any) -> Any:
    """Return the rows of a share in windows of `shuffle_window` chunks, repeats by themselves."""
    (base,) = philox(options, [0, index, 1, 1], 1)
    rows, number = [], 0
    for _, run in groupby(filled(chunks), key=lambda chunk: chunk[0][2]):
        own = list(run)
        for first in range(0, len(own), options.shuffle_window):
            window = flat(own[first : first + options.shuffle_window])
            number += 1
            places = permuted(mix((base + number * GOLDEN) & MASK64), len(window)).tolist()
            rows += [row for _, row in sorted(zip(places, window, strict=True))]
    return rows


def expected_shares(row_group_rows: Any, options: Any) -> Any:
    """Return every share's rows in the order in which they are delivered."""
    order = shuffled(len(row_group_rows), options)
    shares = reference(row_group_rows, order, options)
    if not options.shuffle_window:
        return [flat(chunks) for chunks in shares]
    return [permuted_in_windows(chunks, i, options) for i, chunks in enumerate(shares)]
