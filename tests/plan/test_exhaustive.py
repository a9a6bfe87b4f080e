"""Every common combination of ranks, workers, files, row groups and ways of `even=`.

A seventh of them as plans and 48 with real files. With `-m long` all of them as plans, and 152 more
with real files.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from itertools import chain, product, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

from tests.fixtures.parquet_files import id_files
from tests.oracles.plan_oracle import check_plan, expected_shares
from torchparquet import ParquetDataset
from torchparquet._impl.plan.division import DIVISIONS
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions

EVEN = tuple(even for even in DIVISIONS if even != "dynamic")
WORLDS, WORKERS, BATCHES = range(1, 9), range(5), (1, 3, 8)
FILES, GROUPS = (0, 1, 2, 3, 5, 8, 13), (0, 1, 2, 7)
FILLED = [(files, groups) for files, groups in product(FILES, GROUPS) if files * groups]
# How rows are shuffled: None for not at all, 0 for row groups alone, else `shuffle_window`.
WINDOWS = (None, 0, 3, 8)
# Rows of row groups in turn: uneven, and now and then none.
SIZES = (3, 0, 7, 1, 12, 2, 5, 0, 4)

# Both are true of some of the combinations, and no fault.
pytestmark = [
    pytest.mark.filterwarnings("ignore:this epoch has no step"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]


@dataclass(frozen=True)
class Case:
    """One combination: `num_files` files of `num_groups` row groups each."""

    world_size: int
    num_workers: int
    num_files: int
    num_groups: int
    even: str
    window: int | None
    batch_size: int

    @property
    def row_group_rows(self) -> list[int]:
        return list(chain.from_iterable(files_of(self.num_files, self.num_groups)))

    @property
    def plan_options(self) -> PlanOptions:
        return PlanOptions(
            self.batch_size,
            shuffle=self.window is not None,
            seed=11,
            shuffle_window=self.window or 0,
            world_size=self.world_size,
            num_workers=max(1, self.num_workers),
            even=self.even,  # type: ignore[arg-type]
        )


def files_of(num_files: int, num_groups: int) -> list[list[int]]:
    """Rows of each row group of each file."""
    return [
        [SIZES[(4 * file + 2 * group) % len(SIZES)] for group in range(num_groups)]
        for file in range(num_files)
    ]


def sample(number: int, world_size: int, workers: range) -> list[Case]:
    """So many of the combinations of some ranks and workers, the same ones in every run."""
    every = [
        Case(world_size, num_workers, *shape, even, window, batch_size)
        for num_workers, shape, even, window, batch_size in product(
            workers, FILLED, EVEN, WINDOWS, BATCHES
        )
    ]
    return random.Random(world_size).sample(every, number)


@pytest.mark.mostly_long(every=2)
@pytest.mark.parametrize("even", EVEN)
@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize("part", ["every seventh", pytest.param("all", marks=pytest.mark.soak)])
def test_every_plan(part: str, world_size: Any, even: str) -> None:
    """Rows once or as counted, even steps, the modulo rule, and the same plan when made anew."""
    # No worker and one are the same plan, and windows are none of its business.
    combinations = product(WORKERS[1:], FILLED, (None, 0), BATCHES)
    step = 1 if part == "all" else 7
    # Of the batch sizes, which change fastest, another one each time.
    chosen = [of for i, of in enumerate(combinations) if (i + i // 3) % step == 0]
    for workers, shape, window, size in chosen:
        case = Case(world_size, workers, *shape, even, window, size)
        plan = check_plan(case.row_group_rows, case.plan_options)
        again = EpochPlan(np.array(case.row_group_rows), case.plan_options)
        assert again.order.tolist() == plan.order.tolist()
        last = plan.num_shares - 1
        for name in ("row_group", "row_begin", "num_rows", "valid"):
            one, other = again.share(last).chunks, plan.share(last).chunks
            assert np.array_equal(getattr(one, name), getattr(other, name))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: Any) -> dict[tuple[int, int], str]:
    """A folder for each number of files and row groups, of those that have rows."""
    root = tmp_path_factory.mktemp("exhaustive")
    return {
        shape: id_files(root / f"{shape[0]} of {shape[1]}", *files_of(*shape)) for shape in FILLED
    }


def open_dataset(case: Case, folder: str, **rank: int) -> ParquetDataset:
    return ParquetDataset(
        folder,
        batch_size=case.batch_size,
        shuffle=case.window is not None,
        seed=11,
        shuffle_window=case.window,
        even=case.even,  # type: ignore[arg-type]
        row_ids=True,
        nulls=-1,
        num_threads=2,
        **rank,  # type: ignore[arg-type]
    )


def rows_of(batches: Any) -> list[list[tuple[int, bool]]]:
    """Return the (row id, valid) of each batch; the values must be those of the rows."""
    found = []
    for batch in batches:
        ids = batch["row.id"].tolist()
        assert batch["id"].tolist() == ids
        assert batch["x"].tolist() == ids
        assert batch["even"].tolist() == [-1 if row % 2 else row for row in ids]
        valid = batch["row.valid"].tolist() if "row.valid" in batch else [True] * len(ids)
        found.append(list(zip(ids, valid, strict=True)))
    return found


def expected_ranks(case: Case) -> list[list[list[tuple[int, bool]]]]:
    """Return what `rows_of` each rank are, by the reference; workers take turns."""
    first_row = np.cumsum(case.row_group_rows) - case.row_group_rows
    shares = []
    for share in expected_shares(case.row_group_rows, case.plan_options):
        # Only "pad" has a column that tells repeats.
        rows = [(int(first_row[g]) + row, valid or case.even != "pad") for g, row, valid in share]
        shares.append([rows[i : i + case.batch_size] for i in range(0, len(rows), case.batch_size)])
    ranks = [shares[rank :: case.world_size] for rank in range(case.world_size)]
    return [[b for turn in zip_longest(*own) for b in turn if b is not None] for own in ranks]


def check_ranks(case: Case, ranks: list[list[list[tuple[int, bool]]]]) -> None:
    """Check what all ranks have read: first by counting, then against the reference."""
    counts = Counter(row for batches in ranks for batch in batches for row, valid in batch if valid)
    num_rows, num_shares = sum(case.row_group_rows), case.plan_options.num_shares
    assert set(counts) <= set(range(num_rows))
    if not case.plan_options.steps_may_differ:
        assert len({len(batches) for batches in ranks}) == 1
    if case.even != "drop":
        assert len(counts) == num_rows
    repeats = -num_rows % num_shares if case.even == "split" else 0
    assert counts.total() - len(counts) == repeats
    assert ranks == expected_ranks(case)


@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize(("number", "workers"), [(23, WORKERS[:1]), (2, WORKERS[1:])])
@pytest.mark.mostly_long(every=6)
def test_real_files(
    folders: dict[tuple[int, int], str], number: int, workers: range, world_size: Any
) -> None:
    """All ranks, one after the other, alone or with a DataLoader whose workers take turns."""
    for case in sample(number, world_size, workers):
        folder = folders[case.num_files, case.num_groups]
        ranks = []
        for rank in range(world_size):
            dataset = open_dataset(case, folder, rank=rank, world_size=world_size)
            num_steps = dataset.num_steps(case.num_workers)
            timeout = 120 if case.num_workers else 0
            ranks.append(
                rows_of(DataLoader(dataset, None, num_workers=case.num_workers, timeout=timeout))
            )
            assert len(ranks[-1]) == num_steps
        check_ranks(case, ranks)


@pytest.mark.parametrize(("files", "groups"), [s for s in product(FILES, GROUPS) if 0 in s])
def test_no_row_is_refused(tmp_path: Path, files: Any, groups: Any) -> None:
    """Before any thread starts, and not by an epoch without a batch."""
    folder = Path(id_files(tmp_path / "data", *[[0] * groups for _ in range(files)]))
    paths = sorted(folder.iterdir())
    with pytest.raises(ValueError, match="at least one " + ("row" if files else "file")):
        ParquetDataset(paths, batch_size=1, rank=0, world_size=1)
    if files == 0:
        with pytest.raises(FileNotFoundError, match="No Parquet file"):
            ParquetDataset(folder, batch_size=1, rank=0, world_size=1)
