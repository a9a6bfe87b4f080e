"""Hugging Face's Trainer: two processes on their shares, and going on from a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.frameworks.jobs.recorded import assert_each_row_once, in_order, read_lines, stream_of
from tests.frameworks.jobs.running import run, torchrun

pytest.importorskip("transformers")

JOB = Path(__file__).parent / "jobs" / "transformers_job.py"


def test_two_processes_killed_and_resumed(tmp_path: Path, data: Any) -> None:
    """Each reads its half, nothing twice; killed within an epoch they end as if they were not."""
    wanted = [stream_of(data, rank, 2, range(3)) for rank in range(2)]
    for epoch in range(3):
        assert_each_row_once([rank[epoch] for rank in wanted])
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    run(torchrun(2, JOB, data, whole), tmp_path)
    run(torchrun(2, JOB, data, killed, "--kill", 22), tmp_path, fails=True)
    before = [read_lines(killed, rank) for rank in range(2)]
    run(torchrun(2, JOB, data, killed, "--resume"), tmp_path)
    for rank in range(2):
        assert in_order(read_lines(whole, rank)) == wanted[rank]
        rest = read_lines(killed, rank)[len(before[rank]) :]
        # Saved after step 20; the second rank to be killed may not have come to its last step.
        assert 20 <= len(before[rank]) <= 22
        assert in_order(before[rank][:20] + rest) == wanted[rank]
        weights = [torch.load(folder / f"{rank}.pt") for folder in (whole, killed)]
        assert all(map(torch.equal, *(one.values() for one in weights)))


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_an_evaluation_counts_each_row_once(tmp_path: Path, num_ranks: int) -> None:
    """103 rows on 3 ranks: two ranks repeat a row with "split", and more with "pad"."""
    items = [[row] * (1 + row % 5) for row in range(103)]
    table = pa.table({"x": pa.array(range(103), pa.float32()), "items": items})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=20)
    program = JOB.parent / "transformers_evaluate.py"
    run(torchrun(num_ranks, program, tmp_path / "a.parquet", 103), tmp_path)
