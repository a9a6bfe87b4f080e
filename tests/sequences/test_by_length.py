"""Batches of rows of similar length, against rows that are chosen one by one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from torchparquet import (
    ByLength,
    Column,
    Jagged,
    Order,
    ParquetDataset,
    verify_no_shard_overlap,
)


def write(path: Path, row_groups: list[list[int]]) -> None:
    kinds = {"tokens": pa.list_(pa.int32()), "label": pa.int64(), "name": pa.string()}
    schema = pa.schema(kinds | {"scores": pa.list_(pa.float32())})
    row = 0
    with pq.ParquetWriter(path, schema) as writer:
        for lengths in row_groups:
            rows = range(row, row := row + len(lengths))
            columns = [
                [[r * 1000 + i for i in range(n)] for r, n in zip(rows, lengths, strict=True)],
                list(rows),
                [f"row {r}" for r in rows],
                [[r + 0.5] * (r % 3) for r in rows],
            ]
            writer.write_table(pa.table(columns, schema))


def batches_of(row_groups: list[list[int]], by_length: ByLength) -> list[list[int]]:
    """Return the rows of each batch, chosen one by one."""
    found: list[list[int]] = []
    first = 0
    for lengths in row_groups:
        if by_length.max_tokens is not None:
            batch: list[int] = []
            for row in sorted(range(len(lengths)), key=lambda row: lengths[row]):
                longest = max(1, lengths[row])
                multiple = by_length.multiple_of
                padded = min(-(-longest // multiple) * multiple, by_length.max_tokens)
                most = by_length.max_rows or len(lengths)
                if len(batch) == most or (len(batch) + 1) * padded > by_length.max_tokens:
                    found.append(batch)
                    batch = []
                batch.append(first + row)
            found.append(batch)
        else:
            bounds = [0, *(by_length.bucket_boundaries or ()), 2**31]
            for low, high, size in zip(
                bounds, bounds[1:], by_length.bucket_batch_sizes or (), strict=False
            ):
                rows = [first + r for r, n in enumerate(lengths) if low <= n < high]
                found += [rows[at : at + size] for at in range(0, len(rows), size)]
        first += len(lengths)
    return [sorted(batch) for batch in found if batch]


def check_batch(batch: dict[str, Any], lengths: list[int], by_length: ByLength) -> list[int]:
    """Check the tensors of a batch, and return its rows."""
    rows: list[int] = batch["label"].tolist()
    assert batch["name"].to_str() == [f"row {row}" for row in rows]
    of_rows = [lengths[row] for row in rows]
    assert batch["tokens.length"].tolist() == of_rows
    longest, multiple = max(1, *of_rows), by_length.multiple_of
    padded = -(-longest // multiple) * multiple
    if by_length.max_tokens is not None:
        padded = min(padded, by_length.max_tokens)
        assert len(rows) * padded <= by_length.max_tokens
    assert batch["tokens"].tolist() == [
        [row * 1000 + i for i in range(n)] + [-1] * (padded - n)
        for row, n in zip(rows, of_rows, strict=True)
    ]
    scores = batch["scores"]
    if isinstance(scores, Jagged):
        assert scores.to_list() == [[row + 0.5] * (row % 3) for row in rows]
    return rows


ROW_GROUPS = st.lists(st.lists(st.integers(0, 30), max_size=25), min_size=1, max_size=5).filter(
    lambda row_groups: any(map(sum, row_groups))
)
RULES = st.one_of(
    st.builds(
        ByLength,
        st.just("tokens"),
        st.integers(30, 90),
        max_rows=st.one_of(st.none(), st.integers(1, 6)),
        padding=st.just(-1),
        multiple_of=st.sampled_from([1, 8]),
    ),
    st.builds(
        ByLength,
        st.just("tokens"),
        bucket_boundaries=st.just([5, 12]),
        bucket_batch_sizes=st.tuples(*[st.integers(1, 7)] * 3),
        padding=st.just(-1),
    ),
)


@settings(max_examples=40, deadline=None)
@given(ROW_GROUPS, RULES, st.booleans(), st.integers(1, 3), st.sampled_from([0, 1, 3]))
def test_each_row_is_in_its_batch_on_one_rank(
    row_groups: list[list[int]], by_length: ByLength, shuffle: bool, world_size: int, window: int
) -> None:
    lengths = [length for group in row_groups for length in group]
    expected = batches_of(row_groups, by_length)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "a.parquet", row_groups)
        found = []
        for rank in range(world_size):
            dataset = ParquetDataset(
                folder,
                batch_size=by_length,
                shuffle=shuffle,
                shuffle_window=window if shuffle else None,
                even="none",
                rank=rank,
                world_size=world_size,
                row_ids=True,
            )
            own, planned = [], len(dataset)
            for batch in dataset:
                own.append(check_batch(batch, lengths, by_length))
                assert batch["row.id"].tolist() == own[-1]
            assert len(own) == planned
            found += own
            # Any state leads to the rest.
            if own:
                stop = len(own) // 2
                dataset.set_epoch(0)
                iterator = iter(dataset)
                for _ in range(stop):
                    next(iterator)
                dataset.load_state_dict(dataset.state_dict())
                rest = [batch["label"].tolist() for batch in dataset]
                assert (rest == own[stop:]) or stop == len(own)
        assert sorted(found) == sorted(expected)
        if not shuffle and world_size == 1:
            assert found == expected


def test_even_steps_and_workers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    row_groups = [rng.integers(1, 60, 50).tolist() for _ in range(7)]
    write(tmp_path / "a.parquet", row_groups)
    by_length = ByLength("tokens", 120)
    steps = set()
    rows: list[int] = []
    for rank in range(3):
        dataset = ParquetDataset(
            tmp_path, batch_size=by_length, shuffle=True, rank=rank, world_size=3
        )
        batches = list(DataLoader(dataset, batch_size=None, num_workers=2))
        assert len(batches) == len(dataset) or len(batches) == dataset.num_steps(2)
        steps.add(len(batches))
        rows += [row for batch in batches for row in batch["label"].tolist()]
    assert len(steps) == 1
    assert set(rows) == set(range(350))


@pytest.mark.parametrize("shuffle", [False, True])
def test_repeated_batches_are_marked(tmp_path: Path, shuffle: bool) -> None:
    """Eight batches for three ranks: one of them reads one again, so that all take three steps."""
    write(tmp_path / "a.parquet", [[2] * 10, [3] * 10, [4] * 8])
    by_length = ByLength("tokens", bucket_boundaries=[9], bucket_batch_sizes=[4, 4])
    found, num_repeats = [], 0
    for rank in range(3):
        dataset = ParquetDataset(
            tmp_path, batch_size=by_length, shuffle=shuffle, rank=rank, world_size=3
        )
        marked = dataset.marking_repeats()
        for plain, batch in zip(dataset, marked, strict=True):
            assert torch.equal(batch["label"], plain["label"])
            valid = batch["row.valid"]
            assert valid.dtype == torch.bool
            assert valid.all() or not valid.any()
            num_repeats += int(not valid.any())
            found += batch["label"][valid].tolist()
    assert sorted(found) == list(range(28))
    assert num_repeats == -len(batches_of([[2] * 10, [3] * 10, [4] * 8], by_length)) % 3


def test_several_columns_and_masks(tmp_path: Path) -> None:
    table = pa.table({"a": [[1, None], [2, 3, 4], []], "b": [[True], [False, True], []]})
    pq.write_table(table, tmp_path / "a.parquet")
    by_length = ByLength("a", 9, padding={"a": 7, "b": True})
    columns: Any = {"a": Column("a", nulls="mask"), "b": "b"}
    (batch,) = ParquetDataset(tmp_path, batch_size=by_length, columns=columns)
    assert {name: value.tolist() for name, value in batch.items()} == {
        "a": [[1, 0, 7], [2, 3, 4], [7, 7, 7]],
        "a.length": [2, 3, 0],
        "a.valid": [True, True, True],
        "a.values.valid": [[True, False, False], [True, True, True], [False, False, False]],
        "b": [[True, True], [False, True], [True, True]],
        "b.length": [1, 2, 0],
    }


def test_a_row_that_is_too_long_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [[1, 2], [3, 40]])
    with pytest.raises(ValueError, match=r"a\.parquet', row group 1, row 1 has 40"):
        ParquetDataset(tmp_path, batch_size=ByLength("tokens", 30))
    batches = list(ParquetDataset(tmp_path, batch_size=ByLength("tokens", 30), filters="label < 3"))
    assert torch.cat([batch["label"] for batch in batches]).sort().values.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pack": "p"}, "pack must be a Pack"),
        ({"order": Order(canonical_world_size=2)}, "does not go with canonical_world_size"),
        ({"even": "pad"}, "does not go with even"),
        ({"columns": ["label"]}, "ByLength names 'tokens'"),
        ({"columns": {"tokens": "label"}}, "counts the items of lists of numbers.*'tokens' is "),
        (
            {"columns": {"tokens": "tokens", "tokens.length": "label"}},
            "add keys that columns have",
        ),
        ({"shuffle": True, "shuffle_window": "100 rows"}, "shuffle_window counts row groups"),
    ],
)
def test_options_that_do_not_go_together(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    write(tmp_path / "a.parquet", [[1, 2]])
    with pytest.raises((ValueError, TypeError), match=message):
        ParquetDataset(tmp_path, batch_size=ByLength("tokens", 30), **options)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"max_tokens": 4, "bucket_boundaries": [1], "bucket_batch_sizes": [1, 1]},
        {"bucket_boundaries": [3, 2], "bucket_batch_sizes": [1, 1, 1]},
        {"bucket_boundaries": [3], "bucket_batch_sizes": [1]},
        {"bucket_boundaries": [3], "bucket_batch_sizes": [1, 1], "max_rows": 2},
        {"max_tokens": 0},
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|needs|goes with"):
        ByLength("tokens", **arguments)


def test_lengths_are_rounded_by_a_number() -> None:
    with pytest.raises(TypeError, match="multiple_of must be an int, got None"):
        ByLength("tokens", 4, multiple_of=None)  # type: ignore[arg-type]


def test_rows_one_by_one_and_audits(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [[1, 2, 3], [4, 5]])
    dataset = ParquetDataset(tmp_path, batch_size=ByLength("tokens", 9), row_ids=True)
    with pytest.raises(ValueError, match="no rows one by one"):
        next(iter(dataset.unbatched()))
    with pytest.raises(ValueError, match="read=True does not go with"):
        verify_no_shard_overlap(dataset, read=True)
    assert verify_no_shard_overlap(dataset).rows_delivered == len(dataset)
    list(dataset)
    metrics = dataset.metrics()
    assert (metrics.batches, metrics.rows) == (3, 5)


def test_windows_are_row_groups_that_fit_memory(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [[40] * 500] * 6)
    options: Any = {"batch_size": ByLength("tokens", 400), "shuffle": True}
    small = ParquetDataset(tmp_path, max_memory="500KiB", **options)
    assert small.plan().options.shuffle_window < 6
    assert ParquetDataset(tmp_path, **options).plan().options.shuffle_window == 8
    labels = torch.cat([batch["label"] for batch in small])
    assert torch.equal(labels.sort().values, torch.arange(3000))
    with pytest.raises(ValueError, match="shuffle_window must fit half of max_memory"):
        ParquetDataset(tmp_path, max_memory="500KiB", shuffle_window=6, **options)
    assert hash(ByLength("t", 4)) == hash(ByLength("t", 4, padding={"t": 0}))
