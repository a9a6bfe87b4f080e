"""ParquetDataset under torch's DataLoader: shares, epochs, errors, start methods."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from tests.fixtures.datasets import opener
from tests.fixtures.failing_loaders import raises_in_worker
from tests.fixtures.parquet_files import numbered_files
from tests.oracles.window_oracle import rows_of_share
from torchparquet import NullValueError, ParquetDataset, mix

ROW_GROUPS = [300, 1, 250, 0, 90, 700, 333, 20, 410, 64, 128, 500, 77, 200, 5]
NUM_ROWS = sum(ROW_GROUPS)
BATCH_SIZE = 64


@pytest.fixture(scope="module")
def data(tmp_path_factory: Any) -> Any:
    """Three files of 5 row groups each, of very different length."""
    files = [ROW_GROUPS[file : file + 5] for file in range(0, 15, 5)]
    return numbered_files(tmp_path_factory.mktemp("dataloader"), *files, number="id")


open_dataset = opener(batch_size=BATCH_SIZE, row_ids=True, shuffle=True, even="none", num_threads=2)


def open_loader(
    dataset: Any, num_workers: int, method: str | None = None, **options: Any
) -> DataLoader[Any]:
    if num_workers == 0:
        method = None
    return DataLoader(
        dataset,
        batch_size=None,
        num_workers=num_workers,
        multiprocessing_context=method,
        timeout=60 if num_workers else 0,
        **options,
    )


def planned(dataset: Any, epoch: int, num_workers: int) -> list[list[int]]:
    """The row ids of every batch of the epoch, in no particular order."""
    plan = dataset.plan(epoch, num_workers)
    first_row = dataset.manifest.row_group_first_row
    batches = []
    for index in range(plan.num_shares):
        share = plan.share(index)
        ids = [int(first_row[group]) + row for group, row, _ in rows_of_share(share)]
        batches += [ids[i : i + BATCH_SIZE] for i in range(0, len(ids), BATCH_SIZE)]
    return sorted(batches)


def ids_of(batches: Any) -> list[list[int]]:
    found = []
    for batch in batches:
        assert batch["id"].equal(batch["row.id"])
        found.append(batch["row.id"].tolist())
    return found


def check_epoch(loader: DataLoader[Any], epoch: int) -> list[list[int]]:
    """One iteration delivers the epoch, every row once, as planned for all workers."""
    batches = ids_of(loader)
    assert sorted(row for ids in batches for row in ids) == list(range(NUM_ROWS))
    assert sorted(batches) == planned(loader.dataset, epoch, loader.num_workers)
    return batches


def break_after(loader: DataLoader[Any], count: int) -> None:
    for number, _ in enumerate(loader, 1):
        if number == count:
            break


# Processes of a spawn import everything anew: each of its cells starts as few as it can.
CELLS = [
    (0, None, False),
    (1, "fork", False),
    (2, "fork", True),
    (3, "fork", False),
    *(
        pytest.param(workers, "fork", persistent, marks=pytest.mark.long)
        for workers, persistent in ((1, True), (2, False), (3, True))
    ),
    (1, "forkserver", False),
    (2, "forkserver", True),
    *(
        pytest.param(workers, "forkserver", persistent, marks=pytest.mark.long)
        for workers, persistent in ((1, True), (2, False), (3, False), (3, True))
    ),
    (1, "spawn", True),
    pytest.param(2, "spawn", False, marks=pytest.mark.long),
]


@pytest.mark.parametrize(("num_workers", "method", "persistent"), CELLS)
@pytest.mark.mostly_long(every=2)
def test_every_epoch_is_complete_and_another(
    data: Any, num_workers: Any, method: Any, persistent: Any
) -> None:
    dataset = open_dataset(data)
    loader = open_loader(dataset, num_workers, method, persistent_workers=persistent)
    first, second = check_epoch(loader, 0), check_epoch(loader, 1)
    assert first != second
    if method == "spawn" and not persistent:
        return
    dataset.set_epoch(7)
    check_epoch(loader, 7)
    check_epoch(loader, 8)
    dataset.set_epoch(1)
    assert check_epoch(loader, 1) == second
    break_after(loader, 2)
    check_epoch(loader, 3)
    break_after(loader, 1)
    dataset.set_epoch(0)
    assert check_epoch(loader, 0) == first
    check_epoch(loader, 1)


# Epochs


@pytest.mark.parametrize("persistent", [False, True])
def test_the_same_seed_before_every_epoch_still_moves_on(data: Any, persistent: bool) -> None:
    loader = open_loader(open_dataset(data), 2, "fork", persistent_workers=persistent)
    for epoch in range(4):
        torch.manual_seed(0)
        check_epoch(loader, epoch)


def fail_once(unlucky: int, mark: Path, worker: int) -> None:
    if worker == unlucky and not mark.exists():
        mark.touch()
        raise LookupError("before it began")


@pytest.mark.parametrize("unlucky", [0, 1])
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_the_same_seed_after_a_worker_that_did_not_begin(
    data: Any, tmp_path: Path, method: str, unlucky: int
) -> None:
    """All workers are of one epoch, whichever iterations each of them has missed."""
    loader = open_loader(
        open_dataset(data),
        2,
        method,
        worker_init_fn=partial(fail_once, unlucky, tmp_path / "mark"),
    )
    torch.manual_seed(0)
    with pytest.raises(LookupError, match="before it began"):
        list(loader)
    for epoch in (1, 2):
        torch.manual_seed(0)
        check_epoch(loader, epoch)


class Tripled(ParquetDataset):
    def __len__(self) -> int:
        return 3 * super().__len__()


class Wrapped(IterableDataset[Any]):
    def __init__(self, inner: ParquetDataset) -> None:
        self.inner = inner

    def __iter__(self) -> Any:
        return iter(self.inner)

    def __len__(self) -> int:
        return len(self.inner)


def test_the_length_of_a_loader_counts_workers_through_subclasses_and_wrappers(data: Any) -> None:
    options: dict[str, Any] = {"batch_size": BATCH_SIZE, "even": "none", "columns": ["id"]}
    expected = sum(1 for _ in open_loader(ParquetDataset(data, **options), 3, "fork"))
    tripled = Tripled(data, **options)
    assert len(open_loader(tripled, 3, "fork")) == 3 * expected
    assert len(tripled) < 3 * expected
    wrapped = Wrapped(Wrapped(ParquetDataset(data, **options)))  # type: ignore[arg-type]
    assert len(open_loader(wrapped, 3, "fork")) == expected
    assert len(wrapped) < expected


@pytest.mark.parametrize("counts", [(1, 2), (1, 2, 3), (3, 2, 1, 3), (0, 2, 0, 3)])
def test_the_same_seed_and_another_number_of_workers(data: Any, counts: Any) -> None:
    dataset = open_dataset(data)
    for epoch, num_workers in enumerate(counts):
        torch.manual_seed(0)
        check_epoch(open_loader(dataset, num_workers, "fork"), epoch)


def test_two_iterations_side_by_side(data: Any) -> None:
    dataset = open_dataset(data)
    loader = open_loader(dataset, 2, "fork")
    torch.manual_seed(0)
    first = iter(loader)
    head = [next(first)]
    second = iter(loader)
    head_of_second = [next(second)]
    assert sorted(ids_of([*head, *first])) == planned(dataset, 0, 2)
    assert sorted(ids_of([*head_of_second, *second])) == planned(dataset, 1, 2)


def test_set_epoch_while_workers_are_at_work(data: Any) -> None:
    """It holds from the next iteration on; the one under way keeps its epoch."""
    dataset = open_dataset(data)
    loader = open_loader(dataset, 3, "fork", persistent_workers=True)
    for epoch in range(3):
        iterator = iter(loader)
        dataset.set_epoch(epoch + 1)
        assert sorted(ids_of(iterator)) == planned(dataset, epoch, 3)


@pytest.mark.parametrize("persistent", [False, True])
def test_main_process_and_workers_in_turn(data: Any, persistent: bool) -> None:
    """A fork after threads have run here, and epochs that count on across processes."""
    dataset = open_dataset(data)
    bare = open_loader(dataset, 0)
    loader = open_loader(dataset, 2, "fork", persistent_workers=persistent)
    check_epoch(bare, 0)
    check_epoch(loader, 1)
    check_epoch(bare, 2)
    check_epoch(loader, 3)
    held = iter(dataset)
    next(held)
    next(held)
    check_epoch(loader, 5)
    assert sum(1 for _ in held) == len(planned(dataset, 4, 0)) - 2
    next(iter(dataset))  # where steps may differ, a look takes its epoch
    check_epoch(loader, 7)
    dataset.set_epoch(2)
    check_epoch(loader, 2)
    check_epoch(bare, 3)


@pytest.mark.parametrize("method", ["fork", "forkserver"])
@pytest.mark.parametrize("state", ["constructed", "ended", "under way", "closed", "pickled"])
@pytest.mark.mostly_long(every=2)
def test_the_state_of_the_data_set_before_the_loader(data: Any, method: str, state: str) -> None:
    dataset, iterator, epoch = open_dataset(data), None, 0
    if state in ("ended", "under way", "closed"):
        iterator, epoch = iter(dataset), 1
        next(iterator)
        next(iterator)
    if state == "ended":
        list(iterator)  # type: ignore[arg-type]
    elif state == "closed":
        dataset.close()
    elif state == "pickled":
        dataset = pickle.loads(pickle.dumps(dataset))
    loader = open_loader(dataset, 2, method)
    check_epoch(loader, epoch)
    check_epoch(loader, epoch + 1)
    if state == "under way":
        assert sum(1 for _ in iterator) == dataset.plan(0).num_steps(0) - 2  # type: ignore[misc, union-attr]


# Errors


def error_of(loader: DataLoader[Any]) -> tuple[type, str]:
    """The error that ends an iteration."""
    with raises_in_worker(Exception, match="") as caught:
        list(loader)
    return caught.type, str(caught.value)


def test_an_error_in_a_worker_leaves_the_others_to_end(tmp_path: Path) -> None:
    """A loader that has raised is done; the data set is not."""
    ids = np.arange(1000)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": pa.array(ids, mask=ids == 999)}), path, row_group_size=100)
    dataset = ParquetDataset(path, batch_size=50)
    for _ in range(2):
        assert error_of(open_loader(dataset, 2, "fork"))[0] is NullValueError
    filled = ParquetDataset(path, batch_size=50, nulls=-1)
    assert sum(len(batch["id"]) for batch in open_loader(filled, 2, "fork")) == 1000


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}])
def test_a_loader_that_stacks_batches_is_refused(data: Any, options: dict[str, Any]) -> None:
    for dataset in (open_dataset(data), mix([open_dataset(data)])):
        with pytest.raises(ValueError, match=r"stack.*batch_size=None.*unbatched"):
            next(iter(DataLoader(dataset, **options)))
        next(iter(open_loader(dataset, 0)))
        next(iter(DataLoader(dataset, batch_size=2, collate_fn=list)))
        next(iter(DataLoader(dataset.unbatched(), batch_size=2)))


def test_workers_that_stack_batches_are_refused(data: Any) -> None:
    kind, text = error_of(DataLoader(open_dataset(data), batch_size=2, num_workers=1))
    assert kind is ValueError
    assert "batch_size=None" in text
