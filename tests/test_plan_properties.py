"""The laws of the epoch plan, against a slow reference that deals one row at a time.

The reference knows rows, lists and the rules; it shares nothing with the plan, not even the
way batches per chunk are cut: there the laws are checked instead (see `check_cut`).
"""

from collections import Counter
from itertools import groupby, product

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import event, given, settings

from torchparquet.plan import EpochPlan
from torchparquet.plan_options import PlanOptions

EVEN = ("split", "drop", "pad", "none")


# The reference: a row is (row group, row, valid), a chunk is a list of rows.


def deal(row_group_rows, order, num_shares):
    shares = [[] for _ in range(num_shares)]
    for position, row_group in enumerate(order):
        rows = [(row_group, row, True) for row in range(row_group_rows[row_group])]
        shares[position % num_shares].append(rows)
    return shares


def flat(chunks):
    return [row for chunk in chunks for row in chunk]


def filled(chunks):
    return [chunk for chunk in chunks if chunk]


def head(chunks, num_rows):
    kept = []
    for chunk in chunks:
        kept.append(chunk[:num_rows])
        num_rows -= len(kept[-1])
    return kept


def ceil_div(a, b):
    return (a + b - 1) // b


def repeat_rows(chunks, epoch, num_rows):
    """Append rows of `chunks` (of `epoch` if there are none) from the start, up to `num_rows`."""
    source = filled(chunks) or filled(epoch)
    padded, k = list(chunks), 0
    while (missing := num_rows - len(flat(padded))) > 0:
        padded.append([(g, r, False) for g, r, _ in source[k % len(source)][:missing]])
        k += 1
    return padded


def repeat_chunks(chunks, epoch, num_chunks):
    source = filled(chunks) or filled(epoch)
    padded, k = list(chunks), 0
    while len(filled(padded)) < num_chunks:
        padded.append([(g, r, False) for g, r, _ in source[k % len(source)]])
        k += 1
    return padded


def reference_none(shares, options):
    if options.drop_last and options.batch_size is not None:
        sizes = [len(flat(share)) // options.batch_size * options.batch_size for share in shares]
        return [head(share, size) for share, size in zip(shares, sizes, strict=True)]
    return shares


def reference_drop(shares, options):
    if options.batch_size is None:
        steps = min(len(filled(share)) for share in shares)
        return [head(share, len(flat(filled(share)[:steps]))) for share in shares]
    totals = [len(flat(share)) for share in shares]
    if options.drop_last:
        steps = min(total // options.batch_size for total in totals)
    else:
        steps = min(ceil_div(total, options.batch_size) for total in totals)
    return [head(share, steps * options.batch_size) for share in shares]


def reference_pad(shares, epoch, options):
    if options.batch_size is None:
        steps = max(len(filled(share)) for share in shares)
        return [repeat_chunks(share, epoch, steps) for share in shares]
    longest = max(len(flat(share)) for share in shares)
    if options.drop_last:
        longest = longest // options.batch_size * options.batch_size
    return [repeat_rows(head(share, longest), epoch, longest) for share in shares]


def reference_split(shares, epoch, options):
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


def reference(row_group_rows, order, options):
    """Return each share's chunks, before split cuts any for `batch_size=None`."""
    shares = deal(row_group_rows, order, options.world_size * options.num_workers)
    epoch = deal(row_group_rows, order, 1)[0]
    if options.even == "none":
        return reference_none(shares, options)
    if options.even == "drop":
        return reference_drop(shares, options)
    if options.even == "pad":
        return reference_pad(shares, epoch, options)
    return reference_split(shares, epoch, options)


# The checks


def delivered(share):
    """Return the chunks of a Share as the reference's."""
    columns = (share.row_group, share.row_begin, share.num_rows, share.valid)
    return [
        [(g, row, valid) for row in range(begin, begin + rows)]
        for g, begin, rows, valid in zip(*(column.tolist() for column in columns), strict=True)
    ]


def check_cut(chunks, wanted, count):
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
        pieces = []
        while sum(pieces) < len(chunk):
            pieces.append(len(chunks.pop(0)))
        assert sum(pieces) == len(chunk)
        assert max(pieces) - min(pieces) <= 1
        assert len(pieces) <= ceil_div(len(chunk), max(bound - 1, 1))


def check_audit(shares, row_group_rows, options):
    """Check exactly-once on what the shares say, with no reference between."""
    rows = [row for share in shares for row in flat(delivered(share)) if row[2]]
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


def check_even(plan, options):
    steps = plan.share_steps.tolist()
    if options.even != "none":
        assert len(set(steps)) == 1
        assert len({plan.num_steps(rank) for rank in range(options.world_size)}) == 1
    if options.even == "split" or (options.even == "pad" and options.batch_size):
        assert len(set(plan.share_rows.tolist())) == 1
    if options.drop_last and options.batch_size:
        assert all(rows % options.batch_size == 0 for rows in plan.share_rows.tolist())


def check_positions(share, wanted, order, row_group_rows):
    """Check that row groups stand where the epoch's order has them, empty ones included."""
    chunks, dealt = delivered(share), order[share.index :: share.num_shares]
    own, added = wanted[: len(dealt)], wanted[len(dealt) :]
    for k, chunk in enumerate(own):
        assert not chunk or chunks[k] == chunk
    assert all(chunks[len(dealt) :]), "an empty chunk that holds no position"
    uncut = len(flat(own)) == sum(row_group_rows[g] for g in dealt)
    if uncut and filled(added):
        assert share.row_group.tolist()[: len(dealt)] == dealt
        assert chunks[: len(dealt)] == own


def check_plan(row_group_rows, options):
    plan = EpochPlan(np.array(row_group_rows, dtype=np.int64), options)
    order = plan.order.tolist()
    assert sorted(order) == list(range(len(row_group_rows)))
    assert plan.num_shares == options.world_size * options.num_workers
    assert len(plan.share_rows) == len(plan.share_steps) == plan.num_shares
    expected = reference(row_group_rows, order, options)
    shares = [plan.share(index) for index in range(plan.num_shares)]
    most = max(len(filled(chunks)) for chunks in expected)
    for index, (share, wanted) in enumerate(zip(shares, expected, strict=True)):
        chunks = delivered(share)
        assert (share.index, share.num_shares) == (index, plan.num_shares)
        assert share.batch_size == options.batch_size
        assert not chunks or chunks[-1], "an empty tail"
        if options.even == "split" and options.batch_size is None:
            check_cut(chunks, wanted, most)
        else:
            assert filled(chunks) == filled(wanted)
            check_positions(share, wanted, order, row_group_rows)
        # What the plan says without laying out a share is what the share holds.
        rows, steps = len(flat(chunks)), len(filled(chunks))
        if options.batch_size is not None:
            steps = ceil_div(rows, options.batch_size)
        assert share.total_rows == plan.share_rows[index] == rows
        assert share.num_steps == plan.share_steps[index] == steps
    for rank in range(options.world_size):
        of_rank = [shares[w * options.world_size + rank] for w in range(options.num_workers)]
        assert plan.num_steps(rank) == sum(share.num_steps for share in of_rank)
    check_audit(shares, row_group_rows, options)
    check_even(plan, options)


small = st.integers(1, 9)
row_counts = st.one_of(
    st.lists(st.integers(0, 12), min_size=1, max_size=24),
    st.lists(st.sampled_from([0, 1, 40]), min_size=1, max_size=12),
    st.builds(lambda n, rows, last: [rows] * n + [last], st.integers(0, 20), small, small),
).filter(any)
plan_options = st.builds(
    PlanOptions,
    st.one_of(st.none(), st.integers(1, 9), st.sampled_from([50, 10**6, 2**63 - 1])),
    shuffle=st.booleans(),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**64 - 1),
    world_size=st.integers(1, 7),
    num_workers=st.integers(1, 4),
    even=st.sampled_from(EVEN),
    drop_last=st.booleans(),
)


@settings(max_examples=1500, deadline=None)
@given(row_counts, plan_options)
def test_plan_equals_the_reference(row_group_rows, options):
    event(f"even={options.even}")
    check_plan(row_group_rows, options)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("even", EVEN)
def test_every_small_plan(even, drop_last):
    """Every data set of up to 4 row groups of 0 to 3 rows, on 1 to 5 shares."""
    for num_row_groups in range(1, 5):
        for rows in product(range(4), repeat=num_row_groups):
            if not any(rows):
                continue
            for num_shares, batch_size in product((1, 2, 3, 5), (1, 2, 3, None)):
                options = PlanOptions(
                    batch_size, world_size=num_shares, even=even, drop_last=drop_last
                )
                check_plan(rows, options)


keys = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))


def epoch_order(key, num_row_groups):
    options = PlanOptions(1, shuffle=True, seed=key[0], epoch=key[1])
    return EpochPlan(np.ones(num_row_groups, dtype=np.int64), options).order.tolist()


@settings(max_examples=200, deadline=None)
@given(keys, st.integers(1, 300))
def test_shuffled_orders_are_reproducible_permutations(key, num_row_groups):
    order = epoch_order(key, num_row_groups)
    assert sorted(order) == list(range(num_row_groups))
    assert order == epoch_order(key, num_row_groups)


@settings(max_examples=200, deadline=None)
@given(st.lists(keys, min_size=2, max_size=6, unique=True))
def test_seeds_and_epochs_give_different_orders(several):
    orders = {tuple(epoch_order(key, 64)) for key in several}
    assert len(orders) == len(several)


def test_every_place_is_equally_likely():
    """Count where each of 8 row groups lands in 4,000 epochs: 500 each, 21 standard deviation."""
    counts = np.zeros((8, 8), dtype=int)
    for epoch in range(4000):
        counts[np.arange(8), epoch_order((5, epoch), 8)] += 1
    assert abs(counts - 500).max() < 5 * 21


def test_shares_partition_a_large_plan():
    """Cover every row once with ranges alone, at a size no row-wise reference can reach."""
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 1_000, 5_000)
    plan = EpochPlan(rows, PlanOptions(256, shuffle=True, world_size=64, num_workers=4))
    shares = [plan.share(index) for index in range(256)]
    group = np.concatenate([share.row_group for share in shares])
    begin = np.concatenate([share.row_begin for share in shares])
    count = np.concatenate([share.num_rows for share in shares])
    repeats = int(-rows.sum() % 256)
    assert count.sum() == rows.sum() + repeats
    first_row = np.cumsum(rows) - rows
    marks = np.zeros(rows.sum() + 1, dtype=np.int64)
    np.add.at(marks, first_row[group] + begin, 1)
    np.add.at(marks, first_row[group] + begin + count, -1)
    cover = np.cumsum(marks)[:-1]
    assert cover.min() == 1
    assert (cover - 1).sum() == repeats
