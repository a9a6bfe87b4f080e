"""Samples by class, by weight and without equal keys, against what their laws say of each row."""

from __future__ import annotations

import math
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from tests.fixtures.random_cases import in_random_cases
from torchparquet import (
    Balanced,
    Jagged,
    ParquetDataset,
    Weights,
    Window,
)

# An epoch of few rows may have no step.
pytestmark = pytest.mark.filterwarnings("ignore:this epoch has no step")
CASES = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def write_two_files(folder: str, table: pa.Table, row_groups: list[int]) -> None:
    """Write a table in row groups of these sizes, to two files if there are two."""
    half, begin = (len(row_groups) + 1) // 2, 0
    for name, sizes in (("a", row_groups[:half]), ("b", row_groups[half:])):
        if sizes:
            with pq.ParquetWriter(Path(folder) / f"{name}.parquet", table.schema) as writer:
                for size in sizes:
                    writer.write_table(table.slice(begin, size))
                    begin += size


@dataclass(frozen=True)
class Data:
    """The columns of all rows."""

    row_groups: list[int]
    labels: list[int]
    weights: list[int]
    keys: list[str]

    @property
    def rows(self) -> range:
        return range(len(self.labels))

    def write(self, folder: str) -> None:
        """Write two files, if there are two row groups."""
        columns: dict[str, Any] = {
            "x": list(self.rows),
            "label": self.labels,
            "weight": [float(weight) for weight in self.weights],
            "key": self.keys,
            "items": pa.array([[row] * (row % 3) for row in self.rows], pa.list_(pa.int64())),
        }
        write_two_files(folder, pa.table(columns), self.row_groups)


@st.composite
def data_of(draw: st.DrawFn, num_keys: int = 40) -> Data:
    row_groups = draw(st.lists(st.integers(1, 25), min_size=1, max_size=6))
    num_rows = sum(row_groups)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    labels = rng.integers(0, 3, num_rows).tolist()
    weights = rng.integers(1, draw(st.sampled_from([2, 5, 60])), num_rows).tolist()
    keys = rng.integers(0, num_keys, num_rows).tolist()
    if draw(st.booleans()):
        keys.sort()
    return Data(row_groups, labels, weights, [f"key {key}" for key in keys])


@dataclass(frozen=True)
class World:
    """How an epoch is read."""

    size: int
    batch_size: int
    shuffle: bool
    window: int | str | None
    epoch: int
    stop: int
    later_size: int
    even: str


WORLDS = st.builds(
    World,
    st.integers(1, 4),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from([None, 1, 2, "7 rows"]),
    st.integers(0, 2),
    st.integers(0, 4),
    st.integers(1, 4),
    st.sampled_from(["split", "drop", "pad"]),
)


def made(folder: str, world: World, size: int, rank: int, **options: Any) -> ParquetDataset:
    dataset = ParquetDataset(
        folder,
        **{"batch_size": world.batch_size} | options,
        shuffle=world.shuffle,
        shuffle_window=world.window if world.shuffle else None,
        seed=5,
        row_ids=True,
        rank=rank,
        world_size=size,
        num_threads=1,
    )
    dataset.set_epoch(world.epoch)
    return dataset


def rows_of(batch: dict[str, Any], data: Data) -> list[int]:
    """Return the rows of a batch, of which every column must be theirs."""
    rows: list[int] = batch["row.id"].tolist()
    assert batch["x"].tolist() == rows
    assert batch["label"].tolist() == [data.labels[row] for row in rows]
    assert batch["key"].to_str() == [data.keys[row] for row in rows]
    items = batch["items"]
    assert isinstance(items, Jagged)
    assert items.to_list() == [[row] * (row % 3) for row in rows]
    return rows


def ranks(folder: str, data: Data, world: World, **options: Any) -> list[list[list[int]]]:
    """Return the rows of each batch of each rank; `len` says how many batches there are."""
    found = []
    for rank in range(world.size):
        dataset = made(folder, world, world.size, rank, **options)
        found.append([rows_of(batch, data) for batch in dataset])
        assert len(found[-1]) == len(dataset)
    return found


def check_even(
    folder: str, data: Data, world: World, most: int, **options: Any
) -> tuple[Counter[int], list[list[list[int]]]]:
    """Check a policy of `even`, and states; return how often the epoch has each row, and batches.

    `most` is how many samples a share may be short of another one.
    """
    once = Counter(chain(*chain(*ranks(folder, data, world, even="none", **options))))
    options["even"] = world.even
    read = ranks(folder, data, world, **options)
    assert len({len(batches) for batches in read}) == 1
    given_out = Counter(chain(*chain(*read)))
    assert set(given_out) <= set(once)
    if world.even == "split":
        assert (given_out - once).total() <= most * (world.size - 1)
    if world.even != "drop":
        assert not once - given_out
    # The rest of the epoch on other ranks, after batches of these.
    stop = min(world.stop, len(read[0]))
    dataset = made(folder, world, world.size, 0, **options)
    batches = iter(dataset)
    assert [rows_of(batch, data) for batch in islice(batches, stop)] == read[0][:stop]
    state = dataset.state_dict()
    assert [rows_of(batch, data) for batch in batches] == read[0][stop:]
    if 0 < stop < len(read[0]) and world.even != "drop":
        both = Counter(chain(*(chain(*of_rank[:stop]) for of_rank in read)))
        for rank in range(world.later_size):
            other = made(folder, world, world.later_size, rank, **options)
            other.load_state_dict(state)
            both += Counter(chain(*(rows_of(batch, data) for batch in other)))
        assert not once - both
        if world.even == "split":
            assert (both - once).total() <= most * (world.size + world.later_size)
    return once, read


def check_rounding(times: Counter[int], expected: dict[int, Fraction]) -> None:
    """Check that each row is there as often as expected, rounded up or down."""
    assert set(times) <= set(expected)
    for row, often in expected.items():
        assert math.floor(often) <= times[row] <= math.ceil(often)


PARTS = st.lists(st.integers(1, 5), min_size=1, max_size=3)
LENGTHS = st.one_of(st.none(), st.integers(1, 200))


@in_random_cases(60, data_of(), WORLDS, PARTS, LENGTHS)
def test_classes_are_in_proportion_in_every_prefix_of_every_rank(
    data: Data, world: World, parts: Sequence[int], length: int | None
) -> None:
    counts = [data.labels.count(label) for label in range(len(parts))]
    if not all(counts):
        with tempfile.TemporaryDirectory() as folder:
            data.write(folder)
            with pytest.raises(ValueError, match="needs rows of every class"):
                made(folder, world, 1, 0, sample=Balanced("label", dict(enumerate(parts))))
        return
    whole = sum(parts) // math.gcd(*parts)
    parts = [part * whole // sum(parts) for part in parts]
    rounds = max(1, min(count // part for count, part in zip(counts, parts, strict=True)))
    if length is not None:
        length += whole
        rounds = length // whole
    sample = Balanced("label", dict(enumerate(parts)), length)
    with tempfile.TemporaryDirectory() as folder:
        data.write(folder)
        times, read = check_even(folder, data, world, whole, sample=sample)
    for batches in read:
        for label, part in enumerate(parts):
            has = 0
            for num, row in enumerate(chain(*batches), 1):
                has += data.labels[row] == label
                assert abs(has - Fraction(num * part, whole)) < 1
    assert times.total() == rounds * whole
    expected = {
        row: Fraction(rounds * parts[label], counts[label])
        for row, label in enumerate(data.labels)
        if label < len(parts)
    }
    check_rounding(times, expected)


@in_random_cases(60, data_of(), WORLDS, LENGTHS)
def test_each_row_is_sampled_as_often_as_its_weight_says(
    data: Data, world: World, length: int | None
) -> None:
    by_array = world.epoch == 1
    of: Any = np.array(data.weights) if by_array else "weight"
    with tempfile.TemporaryDirectory() as folder:
        data.write(folder)
        times, _ = check_even(folder, data, world, 1, sample=Weights(of, length))
    samples = len(data.rows) if length is None else length
    assert times.total() == samples
    total = sum(data.weights)
    expected = {row: Fraction(samples * w, total) for row, w in enumerate(data.weights)}
    check_rounding(times, expected)


@in_random_cases(60, data_of(), WORLDS)
def test_no_key_is_in_a_batch_twice_and_each_row_is_read_once(data: Data, world: World) -> None:
    size, num_rows = world.batch_size, len(data.rows)
    most = max(Counter(data.keys).values())
    with tempfile.TemporaryDirectory() as folder:
        data.write(folder)
        if most > max(1, num_rows // size):
            text = f"one key has {most} rows, and there are {max(1, num_rows // size)} batches"
            with pytest.raises(ValueError, match=text):
                made(folder, world, 1, 0, unique="key")
            return
        times, read = check_even(folder, data, world, size, unique="key")
    assert times == Counter(data.rows)
    for batch in chain(*read):
        assert len({data.keys[row] for row in batch}) == len(batch)
        assert len(batch) in (size, num_rows % size)


@settings(CASES, max_examples=10)
@given(data_of(), WORLDS, st.sampled_from(["Weights", "unique"]))
def test_workers_of_ranks_share_an_epoch(data: Data, world: World, sampling: str) -> None:
    options: dict[str, Any] = {"sample": Weights("weight")}
    if sampling == "unique":
        most = max(Counter(data.keys).values())
        options = {"unique": "key", "batch_size": max(1, len(data.rows) // most)}
    read: Counter[int] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        data.write(folder)
        once = Counter(chain(*chain(*ranks(folder, data, world, even="none", **options))))
        for rank in range(world.size):
            dataset = made(folder, world, world.size, rank, even="none", **options)
            loader = DataLoader(dataset, batch_size=None, num_workers=2)
            batches = [rows_of(batch, data) for batch in loader]
            assert len(batches) == len(loader)
            read.update(chain(*batches))
            if sampling == "unique":
                assert all(len({data.keys[row] for row in one}) == len(one) for one in batches)
    assert read == once


@pytest.mark.parametrize(
    "options",
    [
        {"sample": Weights("weight")},
        {"sample": Balanced("label", {0: 1, 1: 1})},
        {"unique": "x"},
        {"pack": Window("x", past=1)},
    ],
)
def test_orders_are_there_for_a_part_of_an_epoch_at_a_time(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    numbers = np.arange(400_000)
    columns = {"x": numbers, "label": numbers % 2, "weight": 1.0 + numbers % 3}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=500)

    def read(max_memory: str) -> tuple[Any, int]:
        """Return the samples of an epoch, and the most bytes that arrays took meanwhile."""
        dataset = ParquetDataset(
            tmp_path, batch_size=1000, columns=["x"], shuffle=True, max_memory=max_memory, **options
        )
        tracemalloc.start()
        rows = torch.cat([batch["x"] for batch in dataset])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return rows, peak

    (whole, of_all), (parts, of_parts) = read("1GiB"), read("4MiB")
    assert whole.equal(parts)
    assert of_parts < 0.7 * of_all
