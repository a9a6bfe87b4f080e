"""Small batches, of which many are taken from the reader at once: each is as if it were alone."""

from __future__ import annotations

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader

from torchparquet import Column, Jagged, NullValueError, ParquetDataset

NUM_ROWS = 1500
SMALL = 7  # rows: a run of 64 batches, and several row groups, end within the 215 batches


@pytest.fixture(scope="module")
def table() -> pa.Table:
    generator = np.random.default_rng(3)
    columns: dict[str, Any] = {
        "i": generator.integers(-(2**62), 2**62, NUM_ROWS),
        "j": generator.integers(0, 2**62, NUM_ROWS),
        "f": generator.random(NUM_ROWS, np.float32),
        "h": generator.random(NUM_ROWS, np.float32).astype(np.float16),
        "b": generator.integers(0, 2, NUM_ROWS).astype(bool),
        "u": generator.integers(0, 2**16, NUM_ROWS).astype(np.uint16),
        "t": generator.integers(-128, 128, NUM_ROWS).astype(np.int8),
        "n": pa.array([None if i % 3 == 0 else i for i in range(NUM_ROWS)], pa.int64()),
        "s": pa.array([f"{i:x}" for i in range(NUM_ROWS)]),
        "v": pa.FixedSizeListArray.from_arrays(
            pa.array(generator.random(3 * NUM_ROWS, np.float32)), 3
        ),
    }
    return pa.table(columns)


@pytest.fixture(scope="module")
def path(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "part.parquet"
    pq.write_table(table, path, row_group_size=400)
    return path


def shown(value: Any) -> Any:
    return value.to_str() if isinstance(value, Jagged) else value.tolist()


def rows_of(batches: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row for batch in batches for row in shown(batch[name])] for name in batches[0]}


COLUMNS: dict[str, Any] = {
    "one": ["i"],
    "one of bool": ["b"],
    "one of uint16": ["u"],
    "two": ["j", "i"],
    "of several dtypes": ["f", "i", "h", "b", "t", "j"],
    "with a dtype that DLPack may not know": ["u", "i"],
    "masked": {"n": Column("n", nulls="mask"), "i": "i"},
    "a group": {"g": ["j", "i"], "f": "f"},
    "vectors": ["v", "i"],
    "strings": ["s", "i"],
}


@pytest.mark.parametrize("columns", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": True, "shuffle_window": 2},
        {"drop_last": True},
        {"limit_steps": 100},
        {"max_memory": "64KiB", "num_threads": 1},
    ],
    ids=lambda options: next(iter(options), "plain"),
)
def test_rows_are_those_of_the_file(
    path: Path, table: pa.Table, columns: Any, options: Any
) -> None:
    dataset = ParquetDataset(path, batch_size=SMALL, columns=columns, row_ids=True, **options)
    batches = list(dataset)
    assert len(batches) == len(dataset)
    assert [len(batch["row.id"]) for batch in batches[:-1]] == [SMALL] * (len(batches) - 1)
    names = list(columns)
    assert all([name for name in batch if "." not in name] == names for batch in batches)
    found = rows_of(batches)
    ids = found["row.id"]
    full = NUM_ROWS if "limit_steps" not in options else 100 * SMALL
    assert len(ids) == (full // SMALL * SMALL if "drop_last" in options else full)
    assert len(set(ids)) == len(ids)
    assert (ids == list(range(len(ids)))) is ("shuffle" not in options)
    expected = table.take(ids)
    for name in names:
        if name == "g":
            pairs = zip(expected["j"].to_pylist(), expected["i"].to_pylist(), strict=True)
            assert found["g"] == [list(pair) for pair in pairs]
        elif name == "n":
            assert found["n.valid"] == expected["n"].is_valid().to_pylist()
            assert found["n"] == expected["n"].fill_null(0).to_pylist()
        else:
            assert found[name] == expected[name].to_pylist()


@pytest.mark.parametrize("columns", [["i"], ["f", "i", "b"], ["u", "i"]], ids=str)
def test_resumes_after_every_batch(path: Path, columns: list[str]) -> None:
    def made() -> ParquetDataset:
        return ParquetDataset(path, batch_size=SMALL, columns=columns, shuffle=True, seed=4)

    expected = [shown(batch["i"]) for batch in made()]
    iterator, resumed = iter(made()), made()
    for step in range(1, len(expected)):  # after the last one, the next epoch follows
        next(iterator)
        resumed.load_state_dict(json.loads(json.dumps(iterator.state_dict())))
        again = iter(resumed)
        for following in expected[step : step + 80]:
            assert shown(next(again)["i"]) == following
        again.close()
    seeking = iter(made())
    next(seeking)
    for step in (100, 3, 3, 214, 0):
        seeking.seek(step)
        assert shown(next(seeking)["i"]) == expected[step]
        assert step == 214 or shown(next(seeking)["i"]) == expected[step + 1]


@pytest.mark.parametrize("columns", [["i"], ["j", "i"], ["f", "i", "b"], ["u", "i"]], ids=str)
def test_batches_share_no_memory(path: Path, table: pa.Table, columns: list[str]) -> None:
    kept = []
    for batch in ParquetDataset(path, batch_size=SMALL, columns=columns):
        kept.append(batch)
        if len(kept) % 2:
            batch["i"].fill_(-1)
    # The kept ones stay as they were, whatever came after them.
    expected = table["i"].to_pylist()
    for number, batch in enumerate(kept):
        own = expected[number * SMALL :][:SMALL]
        assert shown(batch["i"]) == ([-1] * len(own) if number % 2 == 0 else own)
        for name in columns:
            assert name == "i" or shown(batch[name]) == (
                table[name][number * SMALL :][:SMALL].to_pylist()
            )
    storages = [{t.untyped_storage().data_ptr() for t in batch.values()} for batch in kept]
    assert len(set.union(*storages)) == sum(map(len, storages))


@pytest.mark.parametrize("columns", [["i"], ["j", "i"], ["f", "i", "b"]], ids=str)
def test_a_copy_carries_its_own_bytes_alone(path: Path, columns: list[str]) -> None:
    big = ParquetDataset(path, batch_size=400, columns=columns)
    small = ParquetDataset(path, batch_size=50, columns=columns)
    saved = [io.BytesIO(), io.BytesIO()]
    for buffer, dataset in zip(saved, (big, small), strict=True):
        torch.save(next(iter(dataset)), buffer)
    batches = list(small)
    num_bytes = sum(tensor.nbytes for tensor in batches[0].values())
    assert len(pickle.dumps(batches[0])) < num_bytes + 2000
    assert len(saved[1].getvalue()) < len(saved[0].getvalue()) - 6 * num_bytes


def test_from_workers(path: Path, table: pa.Table) -> None:
    dataset = ParquetDataset(path, batch_size=SMALL, columns=["f", "i"], even="none")
    loader = DataLoader(dataset, batch_size=None, num_workers=1)
    found = rows_of(list(loader))
    assert found["i"] == table["i"].to_pylist()
    assert found["f"] == table["f"].to_pylist()


def test_a_forked_child_delivers_nothing_more(path: Path) -> None:
    iterator = iter(ParquetDataset(path, batch_size=SMALL, columns=["i"]))
    next(iterator)
    child = os.fork()
    if child == 0:
        try:
            next(iterator)
        except RuntimeError as error:
            os._exit(7 if "process" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_what_was_delivered_is_counted_and_no_more(path: Path) -> None:
    dataset = ParquetDataset(path, batch_size=SMALL, columns=["i", "f"])
    iterator = iter(dataset)
    for num_batches in range(1, 150):
        next(iterator)
        metrics = dataset.metrics()
        assert metrics.batches == num_batches
        assert metrics.rows == num_batches * SMALL
        assert metrics.bytes_produced == num_batches * SMALL * 12


def test_a_null_is_told_after_the_batches_before_it(tmp_path: Path) -> None:
    values = pa.array([None if i == 1000 else i for i in range(NUM_ROWS)], pa.int64())
    pq.write_table(pa.table({"x": values}), tmp_path / "part.parquet", row_group_size=400)
    iterator = iter(ParquetDataset(tmp_path, batch_size=SMALL))
    for number in range(1000 // SMALL):
        assert shown(next(iterator)["x"]) == list(range(number * SMALL, (number + 1) * SMALL))
    for _ in range(2):
        with pytest.raises(NullValueError):
            next(iterator)
