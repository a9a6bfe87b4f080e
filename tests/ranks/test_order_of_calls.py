"""Lengths and errors do not depend on what was called before, nor on when a group was set up."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch.distributed as dist

from torchparquet import ParquetDataset, Ranks, batch_seed

NUM_FILES = 5


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for number in range(NUM_FILES):
        table = pa.table({"x": range(37 + number)})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=9)
    return folder


@pytest.fixture
def begin_group(tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Sets up rank 5 of 8, whose calls communicate nothing."""
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    yield lambda: dist.init_process_group("fake", store=fake.FakeStore(), rank=5, world_size=8)
    if dist.is_initialized():
        dist.destroy_process_group()


def take_two(dataset: ParquetDataset) -> None:
    iterator = iter(dataset)
    next(iterator)
    next(iterator)


CALLS: dict[str, Callable[[ParquetDataset], object]] = {
    "a pass": list,
    "a part of a pass": take_two,
    "a state": ParquetDataset.state_dict,
    "a report": ParquetDataset.get_shard_distribution_info,
    "steps": lambda dataset: dataset.num_steps(2),
    "a copy": copy.copy,
    "a pickle": lambda dataset: pickle.loads(pickle.dumps(dataset)),
    "a state loaded": lambda dataset: dataset.load_state_dict(dataset.state_dict()),
}


@pytest.mark.parametrize("even", ["split", "drop", "pad"])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("calls", list(itertools.permutations(CALLS, 2)), ids=" then ".join)
@pytest.mark.mostly_long(every=17)
def test_only_the_epoch_changes_the_length(
    data: Path, tmp_path: Path, even: Any, cached: bool, calls: tuple[str, str]
) -> None:
    """Shuffled epochs differ in length unless rows are split. A cache of footers has no effect."""
    options: Any = {"batch_size": 4, "even": even, "shuffle": True, "rank": 1, "world_size": 3}
    if cached:
        options["manifest_cache"] = tmp_path / "cache"
        ParquetDataset(data, **options)
    dataset = ParquetDataset(data, **options)
    for call in calls:
        CALLS[call](dataset)
        fresh = ParquetDataset(data, **options)
        fresh.set_epoch(dataset.epoch)
        assert len(dataset) == len(fresh)
        assert even != "split" or len(dataset) == 17


@pytest.mark.parametrize("before", [None, *CALLS])
def test_a_group_counts_whenever_it_is_set_up(
    data: Path, begin_group: Callable[[], Any], before: str | None
) -> None:
    dataset = ParquetDataset(data, batch_size=4, ranks=Ranks(check=False))
    if before is not None:
        CALLS[before](dataset)
    begin_group()
    late = len(dataset)
    assert late == len(ParquetDataset(data, batch_size=4, ranks=Ranks(check=False)))
    dataset.set_epoch(9)
    assert len(list(dataset)) == late
    info = dataset.get_shard_distribution_info()
    assert (info["rank"], info["world_size"]) == (5, 8)


def test_a_wrong_environment_is_told_by_every_call(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = ParquetDataset(data, batch_size=4)
    length = len(dataset)
    take_two(dataset)
    monkeypatch.setenv("RANK", "3")
    for call in (len, list, ParquetDataset.get_shard_distribution_info, CALLS["steps"]):
        with pytest.raises(ValueError, match="RANK and WORLD_SIZE must be set together"):
            call(dataset)
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert len(dataset) < length


@pytest.mark.parametrize("change", ["the group ends", "a variable changes"])
def test_an_iteration_keeps_the_rank_that_it_began_with(
    data: Path, begin_group: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Its rows do, and so must the seeds of functions, in its later epochs too."""

    def batches(disturb: Callable[[], object]) -> list[tuple[list[int], int]]:
        dataset = ParquetDataset(
            data,
            batch_size=3,
            shuffle=True,
            num_epochs=2,
            transform=lambda batch: batch | {"seed": batch_seed()},
        )
        found = []
        for batch in dataset:
            found.append((batch["x"].tolist(), batch["seed"]))
            if len(found) == 2:
                disturb()
        return found

    def end_group() -> None:
        if dist.is_initialized():
            dist.destroy_process_group()

    if change == "the group ends":
        begin_group()
        disturbed = batches(end_group)
        begin_group()
    else:
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "4")
        disturbed = batches(lambda: monkeypatch.delenv("WORLD_SIZE"))
        monkeypatch.setenv("WORLD_SIZE", "4")
    assert disturbed == batches(lambda: None)
