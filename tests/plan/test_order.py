"""The order of rows is frozen: an upgrade may not change it, nor threads, memory or loaders."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.datasets import opener
from tests.fixtures.parquet_files import numbered_files
from tests.oracles.window_oracle import rows_of_share
from torchparquet import Order, ParquetDataset
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions

ROWS = [97, 3, 250, 41, 0, 180, 66, 128, 5, 211, 74, 90]

# Windows of one bucket and of many, with strips and tails.
LARGE_ROWS = [30_011, 2048, 9000, 70_007, 1, 8192, 123, 41_000, 16_384]

# Digests of the order of all rows of share 1 of 3 at windows of 4, by (seed, epoch): first of ROWS,
# then of share 0 of 2 of LARGE_ROWS.
GOLDEN = {
    (0, 0): ("941e84ef03764447", "8666d412bbedafbd"),
    (0, 1): ("7bf57591b1e45d0c", "f15c52f352575b1b"),
    (0, 2): ("b05dd9471661a5c0", "e049ac90d230ef93"),
    (0, 7): ("9a7711d0de8b3fca", "4ce7c86925d14573"),
    (0, 1000000): ("91db68f4dcf809e0", "0b9d07738af6c49e"),
    (1, 0): ("5232fa1bdb824265", "5601d5a593818f00"),
    (1, 1): ("f5b2d336afc5d42b", "f9e1da008c6f270b"),
    (1, 2): ("868ea0ba841173cc", "7d25a969ce684eaa"),
    (1, 7): ("ba15ca676e744a97", "54b538a6a21681df"),
    (1, 1000000): ("64742fbd074a0792", "ef20ad692f465831"),
    (4294967297, 0): ("da799905625431c3", "f02651e155cb7628"),
    (4294967297, 1): ("04955a72e720a9d7", "6e0875c86c2a6818"),
    (4294967297, 2): ("1ffba34b94906d25", "189854f91b767e24"),
    (4294967297, 7): ("f3a5838413bd86d9", "e42bdaefaec649c6"),
    (4294967297, 1000000): ("9916545e2c161847", "b6d1c98880ba3127"),
    (18446744073709551615, 0): ("6f86722b955149a6", "f21aacf62d76bd7e"),
    (18446744073709551615, 1): ("c7c23a2e45fd33e1", "1374d7311ddd1e80"),
    (18446744073709551615, 2): ("6898fb1617623ce6", "6757ef7829099538"),
    (18446744073709551615, 7): ("b559f65ece08bf7b", "9a858626667e6ab0"),
    (18446744073709551615, 1000000): ("5e3859e7ef83b490", "f31964436bc680dc"),
}


def digest_of(rows: Any) -> Any:
    return hashlib.blake2b(np.asarray(rows, dtype="<i8").tobytes(), digest_size=8).hexdigest()


@pytest.mark.mostly_long(every=4)
@pytest.mark.parametrize(("seed", "epoch"), list(GOLDEN))
def test_the_order_of_an_epoch_never_changes(seed: int, epoch: int) -> None:
    options = PlanOptions(32, shuffle=True, seed=seed, epoch=epoch, shuffle_window=4, world_size=3)
    share = EpochPlan(np.array(ROWS), options).share(1)
    order = [(group, row) for group, row, _ in rows_of_share(share)]
    large = replace(options, world_size=2)
    share = EpochPlan(np.array(LARGE_ROWS), large).share(0)
    order_of_large = [(group, row) for group, row, _ in rows_of_share(share)]
    assert (digest_of(order), digest_of(order_of_large)) == GOLDEN[seed, epoch]


@pytest.fixture(scope="module")
def data(tmp_path_factory: Any) -> Any:
    root = tmp_path_factory.mktemp("order")
    return numbered_files(root, ROWS[:4], ROWS[4:8], ROWS[8:], number="x", text="name")


make = opener(batch_size=32, columns=["x"], shuffle=True, seed=9, rank=1, world_size=3)


def rows_of(batches: Any) -> Any:
    return [row for batch in batches for row in batch["x"].tolist()]


@pytest.mark.parametrize("window", [0, 1, 4, 100])
@pytest.mark.parametrize("even", ["split", "drop", "pad", "none"])
@pytest.mark.parametrize("batch_size", [1, 32, None])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.mostly_long(every=2)
def test_files_are_read_in_the_order_of_the_plan(
    data: Any, window: int, even: str, batch_size: int | None, drop_last: bool
) -> None:
    options = {"even": even, "batch_size": batch_size, "drop_last": drop_last}
    dataset = make(data, shuffle_window=window, **options)
    first_row = np.cumsum(ROWS) - ROWS
    share = dataset.plan().share(1)
    delivered = list(rows_of_share(share))
    expected = [int(first_row[group]) + row for group, row, _ in delivered]
    assert len(expected) == share.total_rows
    batches = list(dataset)
    assert rows_of(batches) == expected
    if even == "pad":
        valid = [flag for batch in batches for flag in batch["row.valid"].tolist()]
        assert valid == [bool(valid) for _, _, valid in delivered]


def test_large_windows_are_read_in_the_order_of_the_plan(tmp_path: Path) -> None:
    """Windows of many strips and buckets, cut by row groups, and resumed within."""
    rng = np.random.default_rng(3)
    columns = {
        "x": np.arange(sum(LARGE_ROWS)),
        "far": rng.integers(-(2**62), 2**62, sum(LARGE_ROWS)),
        "float": rng.random(sum(LARGE_ROWS), dtype=np.float32),
        "short": rng.integers(0, 2**16, sum(LARGE_ROWS)).astype(np.uint16),
        "flag": rng.random(sum(LARGE_ROWS)) < 0.5,
        "wide": pa.FixedSizeListArray.from_arrays(np.arange(3 * sum(LARGE_ROWS)), 3),
        "name": [str(i) for i in range(sum(LARGE_ROWS))],
    }
    table = pa.table(columns)
    with pq.ParquetWriter(tmp_path / "large.parquet", table.schema) as writer:
        for end, rows in zip(np.cumsum(LARGE_ROWS), LARGE_ROWS, strict=True):
            writer.write_table(table.slice(end - rows, rows))
    dataset = make(tmp_path, columns=None, batch_size=5000, shuffle_window=4, rank=0, world_size=2)
    first_row = np.cumsum(LARGE_ROWS) - LARGE_ROWS
    order = [
        int(first_row[group]) + row for group, row, _ in rows_of_share(dataset.plan().share(0))
    ]
    batches = list(dataset)
    assert rows_of(batches) == order
    for name in ("far", "float", "short", "flag"):
        found = np.concatenate([batch[name].numpy() for batch in batches])
        assert np.array_equal(found, columns[name][order])
    wide = np.concatenate([batch["wide"].numpy() for batch in batches])
    assert np.array_equal(wide, np.arange(3 * sum(LARGE_ROWS)).reshape(-1, 3)[order])
    assert [name for batch in batches for name in batch["name"].to_str()] == list(map(str, order))
    dataset.set_epoch(0)
    dataset.seek(7)
    assert rows_of(dataset) == order[7 * 5000 :]


def test_rows_of_a_window_mix(data: Any) -> None:
    """Row groups meet in batches: what shuffling is for."""
    group_of = np.repeat(np.arange(len(ROWS)), ROWS)
    met = []
    for window in (4, 0):
        whole = make(data, shuffle_window=window, rank=0, world_size=1)
        met.append(np.mean([len(set(group_of[batch["x"].numpy()])) for batch in whole]))
    assert met[0] > 2.5
    assert met[1] < 2


def test_a_window_that_does_not_fit_says_what_does(data: Any) -> None:
    with pytest.raises(ValueError, match=r"shuffle_window=\d+ fits"):
        next(iter(make(data, shuffle_window=12, max_memory=24_000)))
    with pytest.raises(ValueError, match="needs shuffle=True"):
        make(data, shuffle=False, shuffle_window=3)


def test_shares_side_by_side_need_no_more_than_two_batches(data: Any) -> None:
    """And what does not hold two is refused before anything is read."""
    order = Order(canonical_world_size=4)
    options = {"order": order, "rank": 0, "world_size": 1, "shuffle_window": None}
    slab_bytes = 32 * 8
    dataset = make(data, **options, max_memory=2 * slab_bytes)
    rows = rows_of(dataset)
    assert sorted(set(rows)) == list(range(sum(ROWS)))
    assert len(rows) == 4 * -(-sum(ROWS) // 4)  # shares of one length: some rows twice
    with pytest.raises(
        ValueError, match=r"at least two batches, 512 bytes .* 32 rows; got max_memory=511"
    ):
        make(data, **options, max_memory=2 * slab_bytes - 1)


@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("num_threads", [1, 4])
def test_shares_side_by_side_take_turns(data: Any, window: int, num_threads: int) -> None:
    """Each batch has the next eight rows of each of four shares, in the order of the plan."""
    order = Order(canonical_world_size=4)
    options = {"shuffle_window": window, "num_threads": num_threads, "order": order}
    dataset = make(data, rank=0, world_size=1, **options)
    first_row = np.cumsum(ROWS) - ROWS
    shares = [
        [int(first_row[group]) + row for group, row, _ in rows_of_share(dataset.plan().share(i))]
        for i in range(4)
    ]
    turns = range(0, max(map(len, shares)), 8)
    batches = [batch["x"].tolist() for batch in dataset]
    assert batches == [[row for own in shares for row in own[at : at + 8]] for at in turns]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"world_size": 3, "rank": 0}, "world_size must divide canonical_world_size, got 3 and 4"),
        ({"batch_size": 30}, "must divide batch_size . world_size, got 4, 30 and 1"),
        ({"batch_size": None}, "must divide batch_size . world_size, got 4, None and 1"),
        # Shares that end one by one would leave batches of the others' rows alone.
        ({"drop_last": True, "even": "none"}, 'drop_last=True .*needs even="split", "drop" or'),
    ],
)
def test_what_a_canonical_world_cannot_have_is_refused(
    data: Any, options: dict[str, Any], message: str
) -> None:
    dataset = make(
        data, **{"rank": 0, "world_size": 1, "order": Order(canonical_world_size=4)} | options
    )
    with pytest.raises(ValueError, match=message):
        next(iter(dataset))


@pytest.mark.parametrize(
    ("even", "canonical"), [("split", 4), ("drop", 4), ("pad", 4), ("none", 1)]
)
def test_a_canonical_world_drops_what_is_not_a_full_batch(
    data: Any, even: str, canonical: int
) -> None:
    world = {"rank": 0, "world_size": 1, "order": Order(canonical_world_size=canonical)}
    dataset = make(data, **world, even=even, drop_last=True)
    lengths = {len(batch["x"]) for batch in dataset}
    assert lengths == {32}


def test_within_a_rank_the_row_groups_stay_and_their_order_does_not(data: Any) -> None:
    dataset = make(data, order=Order(within_rank=True), even="none", shuffle_window=0)
    read = []
    for epoch in range(4):
        dataset.set_epoch(epoch)
        read.append(dataset.get_shard_distribution_info()["assigned_shards"])
    assert all(sorted(groups) == sorted(read[0]) for groups in read)
    assert len({tuple(groups) for groups in read}) > 1


def test_the_order_within_a_rank_never_changes() -> None:
    # Row groups without rows have places in it, also at the end of what a share is dealt.
    rows = np.array([20, 1, 15, 2, 9, 3, 8, 0, 7, 0])
    found = []
    for epoch in range(3):
        options = PlanOptions(
            4, shuffle=True, seed=3, epoch=epoch, world_size=2, order=Order(within_rank=True)
        )
        chunks = EpochPlan(rows, options).share(1).chunks.without_empty()
        found.append(chunks.row_group.tolist())
    assert found == [
        [2, 4, 6, 1, 3, 8, 5, 8],
        [2, 5, 6, 1, 4, 3, 8, 8],
        [8, 2, 5, 4, 3, 6, 1, 8],
    ]


def test_balance_by_bytes(tmp_path: Path) -> None:
    """Few heavy row groups and many light ones: equal bytes, all rows once."""
    rng = np.random.default_rng(0)
    for number in range(24):
        rows = 4000 if number % 6 == 0 else 200
        table = pa.table({"x": rng.integers(0, 2**60, rows), "unread": rng.random(rows)})
        pq.write_table(table, tmp_path / f"{number:02}.parquet")
    options: Any = {"columns": ["x"], "world_size": 3, "even": "none"}
    infos = []
    for rank in range(3):
        dataset = ParquetDataset(
            tmp_path, batch_size=100, rank=rank, order=Order(balance="bytes"), **options
        )
        infos.append(dataset.get_shard_distribution_info())
    groups = [group for info in infos for group in info["assigned_shards"]]
    assert sorted(groups) == list(range(24))
    read = [info["bytes"] for info in infos]
    assert max(read) - min(read) <= 1.05 * max(dataset.manifest.row_group_num_bytes.tolist())
    with pytest.raises(ValueError, match='balance="bytes" needs even='):
        ParquetDataset(tmp_path, batch_size=100, order=Order(balance="bytes"))
