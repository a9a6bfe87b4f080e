"""`torchparquet rows`: the rows of a step are those that its batch had, on every rank."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from torchparquet import Order, ParquetDataset, Split, mix
from torchparquet.cli import main

NUM_ROWS = 1000
Ids = list[list[int]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three files of rows whose `id` is their number over all files."""
    root = tmp_path / "data"
    root.mkdir()
    for file in range(3):
        ids = np.arange(NUM_ROWS) + NUM_ROWS * file
        rows = pa.table({"id": ids, "text": [f"row {n}" for n in ids], "x": ids / 7})
        pq.write_table(rows, root / f"{file}.parquet", row_group_size=130)
    return root


def arguments(data: Path, state: Any, step: int, *more: object) -> list[object]:
    path = data.parent / "state.json"
    path.write_text(json.dumps(state))
    return ["rows", data, "--state", path, "--step", step, *more]


@pytest.fixture
def found(report_of: Any) -> Any:
    """Run the command for a state, and return its report."""
    return lambda *given: report_of(*arguments(*given))


@pytest.fixture
def refused(error_of: Any) -> Any:
    """Run the command for a state that it refuses, and return the error."""
    return lambda *given, code=1: error_of(*arguments(*given), code=code)


def opened(data: Path, rank: int, world_size: int, **options: Any) -> ParquetDataset:
    given = {"batch_size": 64, "seed": 3, "shuffle": True, "columns": ["id"], **options}
    return ParquetDataset(data, rank=rank, world_size=world_size, **given)


def begun(dataset: ParquetDataset, num_steps: int) -> tuple[Ids, Any]:
    """Read some batches, and return their ids and the state."""
    batches = iter(dataset)
    ids = [next(batches)["id"].tolist() for _ in range(num_steps)]
    return ids, dataset.state_dict()


def ids_of(report: Any) -> Ids:
    """Return the ids of each rank's rows by file and row number, and check that they are alike."""
    told = []
    for rank in report["ranks"]:
        ids = [
            NUM_ROWS * int(Path(part["path"]).stem) + 130 * group["row_group"] + row
            for part in rank["files"]
            for group in part["row_groups"]
            for row in group["rows"]
        ]
        assert sorted(ids) == sorted(rank["row_ids"])
        assert len(ids) == rank["rows"]
        told.append(rank["row_ids"])
    return told


OPTIONS: dict[str, dict[str, Any]] = {
    "windows": {},
    "a window of rows": {"shuffle_window": "200 rows"},
    "file order": {"shuffle": False},
    "drop": {"even": "drop", "drop_last": True},
    "pad": {"even": "pad"},
    "canonical": {"order": Order(canonical_world_size=6)},
    "within ranks": {"order": Order(within_rank=True)},
    "bytes": {"order": Order(balance="bytes"), "even": "none"},
    "row groups as batches": {"batch_size": None},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_state_of_one_rank_tells_the_rows_of_all(
    found: Any, data: Path, options: dict[str, Any]
) -> None:
    read = [begun(opened(data, rank, 3, **options), 5) for rank in range(3)]
    for step in (0, 2, 4):
        report = found(data, read[1][1], step)
        assert ids_of(report) == [ids[step] for ids, _ in read]
        assert (report["epoch"], report["world_size"]) == (0, 3)
    report = found(data, read[0][1], 3, "--rank", 2)
    assert [(rank["rank"], rank["row_ids"]) for rank in report["ranks"]] == [(2, read[2][0][3])]


def test_a_step_that_comes_after_the_state(found: Any, data: Path) -> None:
    dataset = opened(data, 0, 2)
    dataset.set_epoch(4)
    ids, _ = begun(dataset, 9)
    dataset.set_epoch(4)
    _, state = begun(dataset, 1)
    report = found(data, state, 8)
    assert report["epoch"] == 4
    assert ids_of(report)[0] == ids[8]


def test_workers_take_turns(found: Any, data: Path) -> None:
    loaders = pytest.importorskip("torchdata.stateful_dataloader")
    loader = loaders.StatefulDataLoader(opened(data, 1, 2), batch_size=None, num_workers=2)
    batches = iter(loader)
    ids = [next(batches)["id"].tolist() for _ in range(5)]
    state = loader.state_dict()
    ids += [batch["id"].tolist() for batch in batches]
    for step, own in enumerate(ids):
        (rank,) = found(data, state, step, "--rank", 1)["ranks"]
        assert rank["row_ids"] == own
        assert rank["worker"] in (0, 1)


def test_steps_of_the_worlds_before(found: Any, data: Path) -> None:
    first = [begun(opened(data, rank, 3), 4) for rank in range(3)]
    second = [opened(data, rank, 2, batch_size=50) for rank in range(2)]
    read = []
    for dataset in second:
        dataset.load_state_dict(first[0][1])
        read.append(begun(dataset, 3))
    state = read[0][1]
    for step in range(4):
        assert ids_of(found(data, state, step)) == [ids[step] for ids, _ in first]
    for step in range(3):
        assert ids_of(found(data, state, 4 + step)) == [ids[step] for ids, _ in read]


def test_a_world_that_ended_within_a_batch(found: Any, data: Path) -> None:
    """Rows were taken one by one, and then the number of ranks changed."""
    taken, states = [], []
    for rank in range(3):
        rows = opened(data, rank, 3).unbatched()
        ids = iter(rows)
        taken.append([int(next(ids)["id"]) for _ in range(2 * 64 + 10)])
        states.append(rows.state_dict())
    rest = []
    for rank in range(2):
        rows = opened(data, rank, 2).unbatched()
        rows.load_state_dict(states[0])
        ids = iter(rows)
        rest.append([int(next(ids)["id"]) for _ in range(64)])
        states.append(rows.state_dict())
    assert ids_of(found(data, states[-1], 1)) == [ids[64:128] for ids in taken]
    assert ids_of(found(data, states[-1], 2)) == [ids[128:] for ids in taken]
    assert ids_of(found(data, states[-1], 3)) == rest


def test_dynamic_shares_are_of_the_states_rank(found: Any, refused: Any, data: Path) -> None:
    ids, state = begun(opened(data, 0, 1, even="dynamic"), 5)
    for step in range(5):
        assert ids_of(found(data, state, step)) == [ids[step]]
    assert "must be below 1" in refused(data, state, 0, "--rank", 1, code=2)


def test_selected_rows_keep_their_numbers(found: Any, refused: Any, data: Path) -> None:
    condition = "id % 3 = 0"
    read = [begun(opened(data, rank, 2, filters=condition), 3) for rank in range(2)]
    report = found(data, read[0][1], 2, "--filter", condition)
    assert ids_of(report) == [ids[2] for ids, _ in read]
    error = refused(data, read[0][1], 2)
    assert "not of this data: other files or rows" in error
    assert "--filter" in error


def test_values_are_those_of_the_batch(found: Any, refused: Any, data: Path) -> None:
    ids, state = begun(opened(data, 0, 1), 2)
    (rank,) = found(data, state, 1, "--columns", "text", "--columns", "x")["ranks"]
    assert rank["values"] == {
        "text": [f"row {n}" for n in ids[1]],
        "x": [n / 7 for n in ids[1]],
    }
    (rank,) = found(data, state, 1, "--columns", "*")["ranks"]
    assert list(rank["values"]) == ["id", "text", "x"]
    assert "no column 'y'" in refused(data, state, 1, "--columns", "y")


def test_a_state_within_a_checkpoint(report_of: Any, data: Path, tmp_path: Path) -> None:
    ids, state = begun(opened(data, 0, 1), 2)
    path = tmp_path / "checkpoint.pt"
    torch.save({"model": {"w": torch.ones(3)}, "data": {"train": [state]}}, path)
    report = report_of("rows", data, "--state", path, "--step", 1)
    assert ids_of(report) == [ids[1]]


def test_a_file_that_holds_something_else(error_of: Any, data: Path, tmp_path: Path) -> None:
    for name, content in (("a.pt", b"PAR1"), ("b.json", b"{"), ("c.pt", b"")):
        (tmp_path / name).write_bytes(content)
        text = error_of("rows", data, "--state", tmp_path / name, "--step", 0)
        assert name in text


def test_what_is_refused(found: Any, refused: Any, data: Path) -> None:
    _, state = begun(opened(data, 0, 2), 1)
    assert "has no step 99" in refused(data, state, 99)
    assert "--rank must be below 2" in refused(data, state, 0, "--rank", 2, code=2)
    assert "holds no state" in refused(data, {"step": 3}, 0)
    mixed = mix([opened(data, 0, 1, batch_size=8), opened(data, 0, 1, batch_size=8)], seed=1)
    next(iter(mixed))
    assert "must hold one state, and holds 2" in refused(data, mixed.state_dict(), 0)
    part = opened(data, 0, 1, split=Split("a", {"a": 0.5, "b": 0.5}))
    assert "does not take states of rows=, split=" in refused(data, part.state_dict(), 0)
    del state["order"]["seed"]
    assert "damaged" in refused(data, state, 0)


def test_people_read_a_table(data: Path, capsys: Any) -> None:
    _, state = begun(opened(data, 0, 1, shuffle=False), 1)
    assert main([*map(str, arguments(data, state, 2)), "--columns", "text"]) == 0
    shown = capsys.readouterr().out
    assert "epoch 0, step 2, 1 rank" in shown
    assert "128-129" in shown  # of row group 0
    assert "0-61" in shown
    assert "row 128" in shown
    assert "and 44 more rows, by --json" in shown
