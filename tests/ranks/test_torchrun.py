"""Real jobs of `torchrun` with 2 to 8 gloo processes; what each checks stands in its program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.torchrun_jobs import torchrun

ROW_GROUPS = [300, 1, 250, 0, 90, 70, 333, 20, 410, 64, 128]


def write(root: Path, row_groups: list[int]) -> str:
    """Write the row groups to two files; `id` is the global row number."""
    first = 0
    for number, groups in enumerate((row_groups[:6], row_groups[6:])):
        with pq.ParquetWriter(root / f"{number}.parquet", pa.schema([("id", pa.int64())])) as file:
            for rows in groups:
                file.write_table(pa.table({"id": np.arange(first, first + rows)}))
                first += rows
    return str(root)


@pytest.fixture(scope="module")
def data(tmp_path_factory: Any) -> str:
    return write(tmp_path_factory.mktemp("torchrun"), ROW_GROUPS)


@pytest.fixture(scope="module")
def other_data(tmp_path_factory: Any) -> str:
    return write(tmp_path_factory.mktemp("torchrun"), [*ROW_GROUPS[:-1], 129])


def torchrun_all(num_ranks: int, programs: tuple[str, ...], *data: str) -> None:
    """Run several programs in one job, each with the data that it takes."""
    commands = []
    for program in programs:
        with_other_data = program in ("faults", "agreement")
        commands.append([f"tests.ranks.torchrun_{program}", *data[: 2 if with_other_data else 1]])
    torchrun(num_ranks, *commands)


@pytest.mark.parametrize(
    ("num_ranks", "programs"),
    [
        (2, ("shares", "faults", "dynamic")),
        pytest.param(3, ("shares", "agreement", "dynamic"), marks=pytest.mark.long),
    ],
)
def test_shares_and_what_differs(data: Any, other_data: str, num_ranks: int, programs: Any) -> None:
    torchrun_all(num_ranks, programs, data, other_data)


@pytest.mark.long
def test_shares_and_mesh(data: Any) -> None:
    torchrun_all(4, ("shares", "mesh"), data)


@pytest.mark.long
def test_mesh_of_three_dimensions(data: Any) -> None:
    torchrun(8, ["tests.ranks.torchrun_mesh3", data])
