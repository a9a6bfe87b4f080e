"""Shared by the jobs and tests of frameworks: data, data sets, and records of training."""

from __future__ import annotations

import argparse
import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch.utils.data import DataLoader

from tests.frameworks.jobs.running import run
from torchparquet import ParquetDataset

ROW_GROUPS = [[30, 1, 25, 40], [90, 70, 33], [20, 41, 50]]
NUM_ROWS = 400
BATCH_SIZE = 16

Stream = dict[int, list[list[int]]]  # by epoch: the row ids of each batch, in order


def write_data(folder: Path) -> Path:
    """Write three files of two features, in row groups of very different length."""
    rng = np.random.default_rng(0)
    for number, groups in enumerate(ROW_GROUPS):
        rows = {name: rng.random(sum(groups), dtype=np.float32) for name in ("x0", "x1")}
        table, first = pa.table(rows), 0
        with pq.ParquetWriter(folder / f"{number}.parquet", table.schema) as file:
            for length in groups:
                file.write_table(table.slice(first, length))
                first += length
    assert sum(map(sum, ROW_GROUPS)) == NUM_ROWS
    return folder


def dataset_of(data: str | Path, **options: Any) -> ParquetDataset:
    defaults = {"batch_size": BATCH_SIZE, "shuffle": True, "shuffle_window": 2, "seed": 3}
    columns = {"x": ["x0", "x1"]}
    defaults |= {"columns": columns, "row_ids": True, "num_threads": 1}  # type: ignore[dict-item]
    return ParquetDataset(data, **(defaults | options))


def ids_of(batches: Iterable[dict[str, Any]]) -> list[list[int]]:
    return [batch["row.id"].tolist() for batch in batches]


class Noting:
    """A transform that notes the rows of each batch that is read, in any process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_text("")

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        with self._path.open("a") as file:
            file.write(f"{json.dumps(batch['row.id'].tolist())}\n")
        return batch

    def take(self) -> list[list[int]]:
        """Return the noted batches, and forget them."""
        noted = list(map(json.loads, self._path.read_text().splitlines()))
        self._path.write_text("")
        return noted


def stream_of(
    data: Path, rank: int, world_size: int, epochs: range, num_workers: int = 0
) -> Stream:
    """The rows of a bare loop: the oracle for a framework's loop."""
    dataset = dataset_of(data, rank=rank, world_size=world_size)
    found = {}
    for epoch in epochs:
        dataset.set_epoch(epoch)
        found[epoch] = ids_of(DataLoader(dataset, batch_size=None, num_workers=num_workers))
    return found


def job_arguments(**options: Any) -> argparse.Namespace:
    """Parse the arguments of a job: data, where to write, and options by their types."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("out", type=Path)
    for name, kind in options.items():
        how: Any = {"action": "store_true"} if kind is bool else {"type": kind}
        parser.add_argument(f"--{name.replace('_', '-')}", **how)
    return parser.parse_args()


def write_line(out: Path, rank: int, line: dict[str, Any]) -> None:
    with (out / f"rank{rank}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def lines_of(out: Path, rank: int, what: str) -> list[dict[str, Any]]:
    """Read what a process wrote down of one kind, in order."""
    lines = map(json.loads, (out / f"rank{rank}.jsonl").read_text().splitlines())
    return [line for line in lines if line["what"] == what]


def streams(lines: list[dict[str, Any]]) -> Stream:
    """Sort batches by epoch; one that was trained on again after a resume replaces the first."""
    found: dict[int, dict[int, list[int]]] = defaultdict(dict)
    for line in lines:
        found[line["epoch"]][line["number"]] = line["ids"]
    for epoch in found.values():
        assert sorted(epoch) == list(range(len(epoch)))
    return {epoch: [of[number] for number in sorted(of)] for epoch, of in found.items()}


def in_order(lines: list[dict[str, Any]]) -> Stream:
    """Sort the batches of lines without numbers by epoch."""
    found = defaultdict(list)
    for line in lines:
        found[line["epoch"]].append(line["ids"])
    return dict(found)


def assert_each_row_once(ranks: list[list[list[int]]]) -> None:
    """Of one epoch: all rows, each once over the ranks, in equally many steps."""
    assert len({len(batches) for batches in ranks}) == 1
    ids = itertools.chain.from_iterable(itertools.chain.from_iterable(ranks))
    assert sorted(ids) == list(range(NUM_ROWS))


def check_killed_and_resumed(
    launch: Callable[..., list[str]], data: Path, root: Path, saved: int, kill: int
) -> None:
    """Two processes read their halves; killed within an epoch they end as if they were not."""
    wanted = [stream_of(data, rank, 2, range(3)) for rank in range(2)]
    for epoch in range(3):
        assert_each_row_once([rank[epoch] for rank in wanted])
    whole, killed = root / "whole", root / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    run(launch(data, whole), root)
    run(launch(data, killed, "--kill", kill), root, fails=True)
    before = [lines_of(killed, rank, "train") for rank in range(2)]
    run(launch(data, killed, "--resume"), root)
    for rank in range(2):
        assert in_order(lines_of(whole, rank, "train")) == wanted[rank]
        rest = lines_of(killed, rank, "train")[len(before[rank]) :]
        # The second rank to be killed may not have come to its last step.
        assert saved <= len(before[rank]) <= kill
        assert in_order(before[rank][:saved] + rest) == wanted[rank]
        weights = [torch.load(folder / f"{rank}.pt") for folder in (whole, killed)]
        assert all(map(torch.equal, *(one.values() for one in weights)))
