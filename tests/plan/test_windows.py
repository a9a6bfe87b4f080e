"""Shuffle windows and shares that are read side by side, against the definition in NumPy."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from tests.oracles.window_oracle import permuted
from torchparquet import Column, ParquetDataset
from torchparquet._impl.native import ReaderMemory
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.plan.share import Share, Windows
from torchparquet._impl.reading.batch_stream import BatchStream
from torchparquet._impl.reading.stream_parts import StreamParts
from torchparquet.errors import CorruptFileError

Int64Array = NDArray[np.int64]


def windowed(share: Share, rng: np.random.Generator, chunks: int, *, cut: bool = False) -> Share:
    """The share in windows of so many chunks, of which some deliver only a part."""
    bounds = [*range(0, len(share.num_rows), chunks), len(share.num_rows)]
    sizes = np.array([share.num_rows[a:b].sum() for a, b in pairwise(bounds)])
    begin, end = np.zeros_like(sizes), sizes.copy()
    if cut:
        begin = rng.integers(0, sizes + 1)
        end = rng.integers(begin, sizes + 1)
    windows = Windows(np.diff(bounds), rng.integers(0, 2**63, len(sizes), np.uint64), begin, end)
    return replace(share, windows=windows)


def planned_rows(dataset: ParquetDataset, share: Any) -> Int64Array:
    """The global numbers of the rows that the share delivers, in order."""
    first = dataset.manifest.row_group_first_row[share.row_group] + share.row_begin
    ids = [np.arange(a, a + n) for a, n in zip(first, share.num_rows, strict=True)]
    if share.windows is None:
        return np.concatenate(ids)
    rows, chunk = [np.zeros(0, np.int64)], 0
    windows = share.windows
    for w, num_chunks in enumerate(windows.num_chunks):
        stored = np.concatenate(ids[chunk : chunk + num_chunks])
        chunk += num_chunks
        ordered = np.empty_like(stored)
        ordered[permuted(int(windows.key[w]), len(stored))] = stored
        rows.append(ordered[windows.begin[w] : windows.end[w]])
    return np.concatenate(rows)


def stream_of(dataset: ParquetDataset, share: Any, **options: Any) -> BatchStream:
    given = {"num_threads": 3, "max_memory_bytes": 1 << 30} | options
    return BatchStream(
        StreamParts(dataset.manifest, dataset.fields, row_ids=True, row_valid=True),
        share,
        pin_memory=False,
        memory=ReaderMemory(),
        **given,
    )


def shares_of(dataset: ParquetDataset, batch_size: int | None, num_shares: int = 1) -> list[Share]:
    plan = EpochPlan(
        dataset.manifest.row_group_num_rows, PlanOptions(batch_size, world_size=num_shares)
    )
    return [plan.share(index) for index in range(num_shares)]


NUM_ROWS = 1200


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(3)
    n = NUM_ROWS
    words = [None if i % 11 == 0 else "w" * int(k) for i, k in enumerate(rng.integers(0, 9, n))]
    lists = [
        None if i % 13 == 0 else list(range(int(k))) for i, k in enumerate(rng.integers(0, 5, n))
    ]
    nested = [[[str(j)] * (i % 3) for j in range(i % 4)] for i in range(n)]
    maps = [[(str(j), i + j) for j in range(i % 3)] for i in range(n)]
    return pa.table(
        {
            "plain": pa.array(rng.integers(0, 2**40, n)),
            "masked": pa.array(rng.random(n), mask=rng.random(n) < 0.2),
            "x": pa.array(rng.random(n, np.float32)),
            "y": pa.array(rng.random(n, np.float32)),
            "fixed": pa.array(
                [bytes(rng.integers(0, 256, 5, np.uint8)) for _ in range(n)], pa.binary(5)
            ),
            "triple": pa.array(rng.integers(0, 99, (n, 3)).tolist(), pa.list_(pa.int32(), 3)),
            "word": pa.array(words),
            "list": pa.array(lists, pa.list_(pa.int16())),
            "nested": pa.array(nested, pa.list_(pa.list_(pa.string()))),
            "map": pa.array(maps, pa.map_(pa.string(), pa.int64())),
        }
    )


@pytest.fixture(scope="module")
def dataset(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> ParquetDataset:
    folder = tmp_path_factory.mktemp("windows")
    for i, begin in enumerate(range(0, NUM_ROWS, 400)):
        part = table.slice(begin, 400)
        pq.write_table(part, folder / f"{i}.parquet", row_group_size=[70, 133, 36][i])
    columns: dict[str, Any] = {
        "plain": "plain",
        "masked": Column("masked", nulls="mask"),
        "pair": ["x", "y"],
        "fixed": "fixed",
        "triple": Column("triple", length=3),
        "word": Column("word", nulls="mask"),
        "list": Column("list", nulls="mask"),
        "nested": "nested",
        "key": "map.key",
        "value": "map.value",
    }
    return ParquetDataset(folder, batch_size=64, columns=columns)


def as_lists(batch: dict[str, Any]) -> dict[str, list[Any]]:
    """Every tensor as one Python value per row."""
    lists = {}
    for name, value in batch.items():
        if name.endswith(".values.valid"):
            bounds = batch[name.removesuffix(".values.valid")].offsets.tolist()
            flags = value.tolist()
            lists[name] = [flags[a:b] for a, b in pairwise(bounds)]
        else:
            lists[name] = value.tolist() if hasattr(value, "tolist") else value.to_list()
    return lists


def rows_of(batches: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Every row by its global number."""
    found = {}
    for batch in map(as_lists, batches):
        for i, row in enumerate(batch["row.id"]):
            found[row] = {name: values[i] for name, values in batch.items()}
    return found


@pytest.fixture(scope="module")
def plain(dataset: ParquetDataset) -> dict[int, dict[str, Any]]:
    """The values of each row by a pass in the order of the files."""
    return rows_of(list(stream_of(dataset, shares_of(dataset, 512)[0])))


def assert_rows(
    batches: list[dict[str, Any]], plain: dict[int, dict[str, Any]], rows: Int64Array
) -> None:
    """Batches hold those rows in that order, and each row what a plain pass gives it."""
    order = [row for batch in batches for row in batch["row.id"].tolist()]
    assert order == rows.tolist()
    found = rows_of(batches)
    for row in set(order):
        assert repr(found[row]) == repr(plain[row])


@pytest.mark.parametrize("batch_size", [3, 64, 5000])
@pytest.mark.parametrize("chunks", [1, 100])
def test_rows_stand_where_the_definition_says(
    dataset: ParquetDataset, plain: dict[int, dict[str, Any]], batch_size: int, chunks: int
) -> None:
    rng = np.random.default_rng(batch_size)
    for cut in (False, True):
        share = windowed(shares_of(dataset, batch_size)[0], rng, chunks, cut=cut)
        batches = list(stream_of(dataset, share))
        rows = planned_rows(dataset, share)
        assert_rows(batches, plain, rows)
        sizes = [len(batch["row.id"]) for batch in batches]
        assert sizes[:-1] == [batch_size] * (len(sizes) - 1)
        if not cut:
            assert sorted(rows) == list(range(NUM_ROWS))
            assert rows.tolist() != sorted(rows)


@pytest.mark.parametrize("num_threads", [1, 2, 4])
def test_threads_and_lent_slabs_change_nothing(
    dataset: ParquetDataset, plain: dict[int, dict[str, Any]], num_threads: int
) -> None:
    share = windowed(shares_of(dataset, 50)[0], np.random.default_rng(0), 5)
    rows = planned_rows(dataset, share)
    for lend_slabs in (False, True):
        stream = stream_of(dataset, share, num_threads=num_threads, lend_slabs=lend_slabs)
        assert_rows(list(stream), plain, rows)


def test_batches_of_given_sizes(dataset: ParquetDataset, plain: dict[int, dict[str, Any]]) -> None:
    share = windowed(shares_of(dataset, None)[0], np.random.default_rng(1), 3)
    sizes = np.array([0, 400, 1, 600, 0, 199])
    sized = replace(share, batch_size=None, batch_sizes=sizes)
    batches = list(stream_of(dataset, sized))
    assert [len(batch["row.id"]) for batch in batches] == [400, 1, 600, 199]
    assert_rows(batches, plain, planned_rows(dataset, share))


@pytest.mark.parametrize("num_lanes", [2, 3, 4])
@pytest.mark.parametrize("shuffled", [False, True])
def test_shares_side_by_side(
    dataset: ParquetDataset, plain: dict[int, dict[str, Any]], num_lanes: int, *, shuffled: bool
) -> None:
    rng = np.random.default_rng(num_lanes)
    lanes: list[Any] = list(shares_of(dataset, 20, num_lanes))
    if shuffled:
        lanes = [windowed(lane, rng, 3) for lane in lanes]
    lane_rows = [planned_rows(dataset, lane) for lane in lanes]
    steps = range(0, max(map(len, lane_rows)), 20)
    expected = [np.concatenate([rows[k : k + 20] for rows in lane_rows]) for k in steps]
    for num_threads in (1, 4):
        batches = list(stream_of(dataset, lanes, num_threads=num_threads))
        assert [len(batch["row.id"]) for batch in batches] == [len(rows) for rows in expected]
        assert_rows(batches, plain, np.concatenate(expected))


def test_a_window_that_does_not_fit_is_refused(dataset: ParquetDataset) -> None:
    share = windowed(shares_of(dataset, 50)[0], np.random.default_rng(0), 100)
    with pytest.raises(ValueError, match="max_memory must hold the batches of a shuffle window"):
        stream_of(dataset, share, max_memory_bytes=50_000)


def test_an_early_end_leaves_nothing_behind(dataset: ParquetDataset) -> None:
    share = windowed(shares_of(dataset, 50)[0], np.random.default_rng(0), 5)
    stream = stream_of(dataset, share)
    next(stream)
    stream.close()
    with pytest.raises(RuntimeError, match="closed"):
        next(stream)


def test_a_damaged_file_fails_in_the_same_way(tmp_path: Path) -> None:
    table = pa.table({"plain": np.arange(2800), "x": np.arange(2800) / 7})
    for i in range(4):
        part = table.slice(700 * i, 700)
        pq.write_table(part, tmp_path / f"{i}.parquet", row_group_size=350, compression="none")
    content = bytearray((tmp_path / "2.parquet").read_bytes())
    dataset = ParquetDataset(tmp_path, batch_size=100)
    content[60:3000] = b"\x5a" * 2940
    (tmp_path / "2.parquet").write_bytes(content)
    share = windowed(shares_of(dataset, 100)[0], np.random.default_rng(0), 3)
    outcomes = set()
    for num_threads in (1, 4, 4, 4):
        stream = stream_of(dataset, share, num_threads=num_threads)
        delivered = [next(stream)["row.id"].tolist() for _ in range(10)]
        with pytest.raises(CorruptFileError) as caught:
            next(stream)
        outcomes.add((str(delivered), str(caught.value)))
    # All before the window of the file's first row group, and nothing of it.
    assert len(outcomes) == 1
