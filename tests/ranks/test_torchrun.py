"""Real jobs of `torchrun` with 2 to 8 gloo processes; what each checks stands in its program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.datasets import opener
from tests.fixtures.parquet_files import numbered_files
from tests.fixtures.torchrun_jobs import run_ranks, torchrun

ROW_GROUPS = [300, 1, 250, 0, 90, 70, 333, 20, 410, 64, 128]


def write(root: Path, row_groups: list[int]) -> str:
    """Write the row groups to two files; `id` is the global row number."""
    return numbered_files(root, row_groups[:6], row_groups[6:], number="id")


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
        (2, ("shares", "faults", "dynamic", "passes", "metrics", "unique", "late")),
        pytest.param(3, ("shares", "agreement", "dynamic", "metrics"), marks=pytest.mark.long),
    ],
)
def test_shares_and_what_differs(data: Any, other_data: str, num_ranks: int, programs: Any) -> None:
    torchrun_all(num_ranks, programs, data, other_data)


@pytest.mark.long
def test_shares_and_mesh(data: Any) -> None:
    torchrun_all(4, ("shares", "mesh"), data)


def test_a_restart_on_one_store_meets_no_note_of_the_first_start(tmp_path: Path) -> None:
    """Rank 1 of 2 crashes after 900 steps; torchrun keeps its store, and restarts all ranks."""
    data, growing = tmp_path / "data", tmp_path / "growing"
    for folder in (data, growing):
        folder.mkdir()
    rows = 2 * 920
    write(data, [rows // 4, rows // 4, rows // 2])
    write(growing, ROW_GROUPS)
    run_ranks(
        2, "tests.ranks.torchrun_restart", *map(str, (data, growing, tmp_path)), max_restarts=1
    )
    found = [json.loads((tmp_path / f"1-{rank}.json").read_text()) for rank in range(2)]
    # A shuffled pass goes on where it was, by rank as without a crash.
    open_whole = opener(str(data), batch_size=1, shuffle=True, row_ids=True, seed=5, world_size=2)
    for rank in range(2):
        whole = [int(batch["row.id"]) for batch in open_whole(rank=rank)]
        assert len(whole) == 920
        assert found[rank]["read"] == whole[900:]
    # Row groups that were claimed before the crash are claimed again, each once.
    claimed = [row for of_rank in found for row in of_rank["claimed"]]
    assert sorted(claimed) == list(range(rows))
    # A file that was added meanwhile is found.
    assert [of_rank["files"] for of_rank in found] == [3] * 2
