"""Batches: which rows stand in which, for every rank, epoch, number of threads and memory."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.datasets import opener
from tests.fixtures.parquet_files import (
    assert_reads_as,
    batch_lengths,
    gathered,
    id_files,
    ids_of,
    kinds_table,
    read_all,
    same_bits,
    stored_values,
    validity,
    write,
)

FILES = ([100, 37, 0, 250], [1, 1, 90], [0], [64, 64, 64])  # 671 rows in 11 row groups
ROW_GROUPS = [rows for file in FILES for rows in file]
NUM_ROWS = sum(ROW_GROUPS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return id_files(tmp_path_factory.mktemp("batches") / "data", *FILES)


dataset = opener(rank=0, world_size=1, batch_size=50, columns=["id"])


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [1, 7, 50, 64, 671, 1000])
def test_lengths_and_rows(folder: Any, batch_size: int, drop_last: bool) -> None:
    options = {"batch_size": batch_size, "drop_last": drop_last, "columns": None, "nulls": 0}
    planned = dataset(folder, **options)
    lengths = batch_lengths(NUM_ROWS, batch_size, drop_last)
    assert len(planned) == len(lengths)
    if not lengths:
        with pytest.warns(UserWarning, match="no step"):
            assert list(planned) == []
        return
    batches = list(planned)
    assert [len(batch["id"]) for batch in batches] == lengths
    ids = np.arange(sum(lengths))
    read = gathered(batches)
    assert list(read) == ["id", "x", "even"]
    assert same_bits(read["id"], ids)
    assert same_bits(read["x"], ids.astype(np.float32))
    assert same_bits(read["even"], np.where(ids % 2, 0, ids).astype(np.int32))


@pytest.mark.parametrize("shuffle", [False, True])
def test_batch_size_none_is_one_batch_per_row_group(folder: Any, shuffle: bool) -> None:
    planned = dataset(folder, batch_size=None, shuffle=shuffle, seed=5, shuffle_window=0)
    batches = [batch["id"].tolist() for batch in planned]
    assert sorted(len(batch) for batch in batches) == sorted(n for n in ROW_GROUPS if n)
    assert all(batch == list(range(batch[0], batch[-1] + 1)) for batch in batches)
    ids = list(itertools.chain(*batches))
    assert sorted(ids) == list(range(NUM_ROWS))
    assert (ids == sorted(ids)) == (not shuffle)
    assert len(planned) == len(batches)


# Epochs.


def test_each_pass_is_the_next_epoch(folder: Any) -> None:
    planned = dataset(folder, shuffle=True, row_ids=True)
    passes = [ids_of(planned) for _ in range(3)]
    for epoch, ids in enumerate(passes):
        fresh = dataset(folder, shuffle=True)
        fresh.set_epoch(epoch)
        assert ids_of(fresh) == ids
        assert sorted(ids) == list(range(NUM_ROWS))
    assert len({tuple(ids) for ids in passes}) == 3
    planned.set_epoch(1)
    batches = list(planned)
    assert [row for batch in batches for row in batch["row.id"].tolist()] == passes[1]
    assert ids_of(planned) == passes[2]
    planned.set_epoch(0)
    assert planned.epoch == 0
    left = iter(planned)
    for _ in range(2):  # one would be a look
        next(left)
    assert ids_of(planned) == passes[1]


# Memory.


def test_too_little_memory_is_an_error_that_says_how_much(folder: Any) -> None:
    for batch_size in (50, None):
        planned = dataset(folder, batch_size=batch_size, max_memory=500)
        with pytest.raises(ValueError, match=r"max_memory.*two batches") as caught:
            next(iter(planned))
        needed = max(int(word) for word in str(caught.value).split() if word.isdecimal())
        enough = dataset(folder, batch_size=batch_size, max_memory=needed)
        assert ids_of(enough) == list(range(NUM_ROWS))


@pytest.mark.parametrize("num_threads", [1, 2, 4])
@pytest.mark.parametrize("batch_size", [10, 999, 1000])
def test_large_row_groups_with_memory_for_two_batches(
    tmp_path: Path, batch_size: int, num_threads: int
) -> None:
    """Row groups are read in slices; a page is decoded again for each slice that it is in."""
    table = kinds_table(20_011, ["int64", "bool", "float32"], ["some null", "required"], 50)
    path = write(tmp_path / "a.parquet", table, row_group_size=15_000, data_page_size=4000)
    slab_bytes = sum(64 * (batch_size * width // 64 + 2) for width in (8, 8, 1, 1, 4, 4) + (1,) * 6)
    options = {"num_threads": num_threads, "max_memory": 2 * slab_bytes}
    assert_reads_as(table, path, batch_size=batch_size, **options)


def test_every_batch_may_be_kept(folder: Any) -> None:
    """Memory is used again only after the last tensor of a batch is gone."""
    planned = dataset(folder, batch_size=5, max_memory=4000, columns=["id", "x"])
    kept = list(planned)
    before = [{name: tensor.clone() for name, tensor in batch.items()} for batch in kept]
    again = list(planned)
    for batch, copy, later in zip(kept, before, again, strict=True):
        for name in ("id", "x"):
            assert batch[name].equal(copy[name])
            assert batch[name].data_ptr() != later[name].data_ptr()
    assert [row for batch in kept for row in batch["id"].tolist()] == list(range(NUM_ROWS))


def test_one_tensor_keeps_its_batch(folder: Any) -> None:
    planned = dataset(folder, batch_size=5, max_memory=4000, columns=["id", "x"])
    columns = [batch["x"][2:] for batch in planned]
    planned.close()
    assert ids_of(planned) == list(range(NUM_ROWS))
    expected = [row for row in range(NUM_ROWS) if row % 5 >= 2]
    assert [int(row) for column in columns for row in column] == expected
    kept = []
    for batch in planned:  # what is written to one does not touch others
        kept.append(batch["id"].tolist())
        for tensor in batch.values():
            tensor.fill_(-1)
    assert list(itertools.chain(*kept)) == list(range(NUM_ROWS))


# Any table against pyarrow.


@st.composite
def reads(draw: Any) -> dict[str, Any]:
    num_rows = draw(st.integers(1, 3000))
    known = ["bool", "int8", "int32", "int64", "float16", "float64"]
    kinds = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
    nulls = draw(st.sampled_from([["required", "some null"], ["long runs"], ["all null"]]))
    distinct, seed = draw(st.sampled_from([None, 1, 2, 9, 300])), draw(st.integers(0, 10))
    batch_sizes = st.one_of(st.none(), st.integers(max(1, num_rows // 50), 4000))
    return {
        "table": kinds_table(num_rows, kinds, nulls, distinct, seed),
        "write": {
            "row_group_size": draw(st.integers(max(1, num_rows // 20), num_rows + 1)),
            "data_page_size": draw(st.sampled_from([1, 100, 2000, 2**20])),
            "write_batch_size": draw(st.sampled_from([1, 8, 50, 1024])),
            "use_dictionary": draw(st.booleans()),
            "dictionary_pagesize_limit": draw(st.sampled_from([1, 100, 2**20])),
            "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
            "compression": draw(st.sampled_from(["none", "snappy", "zstd"])),
            "write_page_checksum": draw(st.booleans()),
        },
        "read": {
            "batch_size": draw(batch_sizes),
            "num_threads": draw(st.integers(1, 4)),
            "shuffle": draw(st.booleans()),
            "seed": draw(st.integers(0, 5)),
        },
        "max_slabs": draw(st.sampled_from([None, 2, 3])),
    }


@settings(max_examples=60, deadline=None)
@given(case=reads(), grouped=st.booleans())
def test_any_table_any_pages_any_batches(
    tmp_path_factory: pytest.TempPathFactory, case: Any, grouped: bool
) -> None:
    table, options = case["table"], case["read"]
    path = write(tmp_path_factory.mktemp("any") / "a.parquet", table, **case["write"])
    if case["max_slabs"] is not None and options["batch_size"] is not None:
        rows = min(options["batch_size"], table.num_rows)
        widths = sum(1 + max(1, field.type.bit_width // 8) for field in table.schema)
        room = rows * (widths + 8) + 64 * (2 * table.num_columns + 2)
        options = {**options, "max_memory": case["max_slabs"] * room}
    # The columns of one kind as one [B, F] tensor each.
    groups: Any = {}
    for name in table.column_names:
        groups.setdefault(name.split()[0], []).append(name)
    columns = groups if grouped else None
    read = read_all(path, columns=columns, nulls="mask", row_ids=True, **options)
    order = read["row.id"]
    assert sorted(order.tolist()) == list(range(table.num_rows))
    assert options["shuffle"] or same_bits(order, np.arange(table.num_rows))
    oracle = pq.read_table(path)
    for kind, names in groups.items():
        values = [stored_values(oracle[name])[order] for name in names]
        valid = [validity(oracle[name])[order] for name in names]
        if grouped:
            assert same_bits(read[kind], np.stack(values, axis=1)), kind
            assert same_bits(read[f"{kind}.valid"], np.stack(valid, axis=1)), kind
            continue
        for place, name in enumerate(names):
            assert same_bits(read[name], values[place]), name
            assert same_bits(read[f"{name}.valid"], valid[place]), name
