"""The user's functions on batches: their order, their errors, and all that they must not change."""

from __future__ import annotations

import functools
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader

from tests.fixtures.datasets import ids_by_batch, opener
from tests.fixtures.failing_loaders import raises_in_worker
from torchparquet import Jagged, Order, ParquetDataset, TransformError, mix

ROW_GROUPS = (30, 7, 41, 22)
FILES = 3
PER_FILE = sum(ROW_GROUPS)


@pytest.fixture(scope="module")
def data(tmp_path_factory: Any) -> Any:
    root = tmp_path_factory.mktemp("transforms")
    for number in range(FILES):
        ids = np.arange(number * PER_FILE, (number + 1) * PER_FILE)
        table = pa.table({"id": ids, "text": [f"row {i}" for i in ids], "x": ids / 2})
        with pq.ParquetWriter(root / f"{number}.parquet", table.schema) as file:
            begin = 0
            for rows in ROW_GROUPS:
                file.write_table(table.slice(begin, rows))
                begin += rows
    return root


open_dataset = opener(batch_size=16, num_threads=1)


def text_lengths(text: Jagged) -> torch.Tensor:
    return text.lengths


def with_sum(batch: Any, scale: int = 1) -> dict[str, Any]:
    return {"id": batch["id"], "sum": (batch["x"] + batch["text"]) * scale}


def fail_on(wanted: Any, batch: Any) -> Any:
    """Fail on the batch of one row; say which rows it has."""
    if wanted in batch["id"].tolist():
        raise LookupError(str(batch["row.id"].tolist()))
    return batch


def drop_first_row(batch: Any) -> Any:
    return {name: value[1:] for name, value in batch.items()}


def test_processors_come_before_the_transform(data: Any) -> None:
    dataset = open_dataset(
        data, processors={"text": text_lengths}, transform=functools.partial(with_sum, scale=3)
    )
    batches = list(dataset)
    assert [list(batch) for batch in batches] == [["id", "sum"]] * len(dataset)
    ids = np.concatenate([batch["id"] for batch in batches])
    sums = np.concatenate([batch["sum"] for batch in batches])
    table = pq.read_table(data)
    assert ids.tolist() == table["id"].to_pylist()
    expected = [
        (x + len(text)) * 3
        for x, text in zip(table["x"].to_pylist(), table["text"].to_pylist(), strict=True)
    ]
    assert sums.tolist() == expected


def test_functions_are_no_part_of_order_state_and_fingerprint(data: Any) -> None:
    plain = open_dataset(data, shuffle=True)
    changed = open_dataset(data, shuffle=True, transform=with_sum, processors={"text": len})
    assert changed.manifest.fingerprint == plain.manifest.fingerprint
    expected = ids_by_batch(plain)
    batches = iter(changed)
    found = [next(batches)["id"].tolist() for _ in range(5)]
    resumed = open_dataset(data, shuffle=True)
    resumed.load_state_dict(changed.state_dict())
    assert found + ids_by_batch(resumed) == expected


def described(ids: list[int], data: Path) -> set[str]:
    """The text of a message about rows, by their global numbers."""
    firsts = np.cumsum([0, *ROW_GROUPS])
    groups: dict[tuple[int, int], list[int]] = {}
    for row in ids:
        number, within = divmod(row, PER_FILE)
        group = int(np.searchsorted(firsts, within, side="right")) - 1
        groups.setdefault((number, group), []).append(within - int(firsts[group]))
    found = set()
    for (number, group), rows in groups.items():
        low, high = min(rows), max(rows)
        rows_in_words = f"{len(rows)} rows of {low} to {high}"
        if len(rows) == high - low + 1:
            rows_in_words = f"rows {low} to {high}" if len(rows) > 1 else f"row {low}"
        path = str(data / f"{number}.parquet")
        found.add(f"{rows_in_words} of row group {group} of {path!r}")
    return found


CASES = {
    "file order": {},
    "row groups": {"batch_size": None},
    "shuffled": {"shuffle": True, "shuffle_window": 3},
    "side by side": {"shuffle": True, "shuffle_window": 2, "order": Order(canonical_world_size=2)},
    "dynamic": {"even": "dynamic", "shuffle": True},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
@pytest.mark.parametrize("wanted", [0, 113, 299])
def test_errors_name_the_origin_of_the_batch(data: Any, options: Any, wanted: int) -> None:
    dataset = open_dataset(
        data, row_ids=True, transform=functools.partial(fail_on, wanted), **options
    )
    delivered: list[Any] = []
    with pytest.raises(TransformError) as caught:
        delivered.extend(dataset)
    assert isinstance(caught.value.__cause__, LookupError)
    message = str(caught.value)
    assert "transform failed with LookupError" in message
    ids = [int(word) for word in re.findall(r"\d+", str(caught.value.__cause__))]
    assert wanted in ids
    for words in described(ids, data):
        assert words in message
    assert f"batch {len(delivered)} of epoch 0, rank 0 of 1" in message


def error_of(dataset: ParquetDataset) -> TransformError | None:
    try:
        list(dataset)
    except TransformError as error:
        return error
    return None


def test_errors_name_rank_and_worker_and_rows_dealt_anew(data: Any) -> None:
    first = open_dataset(data, shuffle=True, shuffle_window=3, rank=0, world_size=2, row_ids=True)
    batches = iter(first)
    for _ in range(4):
        next(batches)
    state = first.state_dict()
    wanted = int(next(batches)["id"][5])
    seen = []
    for rank in range(3):
        dataset = open_dataset(
            data,
            shuffle=True,
            shuffle_window=3,
            rank=rank,
            world_size=3,
            row_ids=True,
            transform=functools.partial(fail_on, wanted),
        )
        dataset.load_state_dict(state)
        error = error_of(dataset)
        if error is not None:
            seen.append(rank)
            assert f"rank {rank} of 3" in str(error)
            ids = [int(word) for word in re.findall(r"\d+", str(error.__cause__))]
            for words in described(ids, data):
                assert words in str(error)
    assert len(seen) == 1
    loader = DataLoader(
        open_dataset(data, row_ids=True, transform=functools.partial(fail_on, 299)),
        batch_size=None,
        num_workers=2,
        multiprocessing_context="fork",
        timeout=60,
    )
    with raises_in_worker(TransformError, match=r"rank 0 of 1, worker \d of 2.*2\.parquet"):
        list(loader)


class FailsOnce:
    """Fails the first time that it is given a batch with a certain row."""

    def __init__(self, wanted: int, error: type[BaseException]) -> None:
        self.wanted, self.error, self.failed = wanted, error, False

    def __call__(self, batch: Any) -> Any:
        if self.wanted in batch["id"].tolist() and not self.failed:
            self.failed = True
            raise self.error("once")
        return batch


@pytest.mark.parametrize("error", [ValueError, StopIteration])
def test_a_failed_batch_was_not_delivered(data: Any, error: Any) -> None:
    expected = ids_by_batch(open_dataset(data, shuffle=True))
    fails = FailsOnce(150, error)
    dataset = open_dataset(data, shuffle=True, transform=fails)
    batches = iter(dataset)
    found: list[Any] = []
    with pytest.raises(TransformError, match=error.__name__):
        found.extend(batch["id"].tolist() for batch in batches)
    resumed = open_dataset(data, shuffle=True)
    resumed.load_state_dict(dataset.state_dict())
    assert found + ids_by_batch(resumed) == expected
    assert found + ids_by_batch(batches) == expected


def test_a_batch_that_always_fails_can_be_passed_over(data: Any) -> None:
    expected = ids_by_batch(open_dataset(data, shuffle=True))
    (bad,) = [number for number, ids in enumerate(expected) if 150 in ids]
    dataset = open_dataset(
        data, row_ids=True, shuffle=True, transform=functools.partial(fail_on, 150)
    )
    batches, found = iter(dataset), []  # type: ignore[var-annotated]
    for _ in range(2):
        with pytest.raises(TransformError, match=f"batch {bad} of"):
            found.extend(batch["id"].tolist() for batch in batches)
    dataset.skip(1)
    assert found == expected[:bad]
    assert ids_by_batch(batches) == expected[bad + 1 :]


def test_an_interrupt_is_no_error_of_the_function(data: Any) -> None:
    dataset = open_dataset(data, transform=FailsOnce(150, KeyboardInterrupt))
    batches, found = iter(dataset), []  # type: ignore[var-annotated]
    with pytest.raises(KeyboardInterrupt):
        found.extend(batches)
    assert next(batches)["id"][0] == len(found) * 16


def test_a_transform_must_return_a_dict(data: Any) -> None:
    with pytest.raises(TransformError, match="transform must return a dict, got Tensor"):
        next(iter(open_dataset(data, transform=text_lengths_of_batch)))


def text_lengths_of_batch(batch: Any) -> Any:
    return batch["text"].lengths


@pytest.mark.long
def test_functions_travel_to_spawned_workers_or_say_why_not(data: Any) -> None:
    dataset = open_dataset(data, processors={"text": text_lengths}, transform=with_sum)
    loader = DataLoader(
        dataset, batch_size=None, num_workers=1, multiprocessing_context="spawn", timeout=120
    )
    bare = open_dataset(data, processors={"text": text_lengths}, transform=with_sum)
    assert [batch["sum"].tolist() for batch in loader] == [batch["sum"].tolist() for batch in bare]
    local = open_dataset(data, processors={"text": lambda text: text.lengths})
    loader = DataLoader(local, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    with (
        pytest.raises(TypeError, match=r"top of a module.*processors\['text'\] is not"),
        pytest.warns(UserWarning, match="pickle"),
    ):
        iter(loader)


def test_a_pickled_copy_has_the_functions(data: Any) -> None:
    copy = pickle.loads(pickle.dumps(open_dataset(data, transform=FailsOnce(0, ValueError))))
    with pytest.raises(TransformError):
        next(iter(copy))


def test_rows_that_are_mixed_must_be_kept(data: Any) -> None:
    columns = ["id", "x"]
    dropping = open_dataset(data, columns=columns, transform=drop_first_row)
    # As batches they are the user's own affair.
    assert {len(batch["id"]) for batch in dropping} <= {15, 11}
    mixed = mix([dropping, open_dataset(data, columns=columns)], within_batch=True, batch_size=8)
    with pytest.raises(ValueError, match=r"must keep rows.*'id' is 15 rows, given were 16 rows"):
        list(mixed)
