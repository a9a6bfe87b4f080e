"""Hugging Face's Trainer: two processes on their shares, and going on from a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.frameworks.jobs.recorded import check_killed_and_resumed
from tests.frameworks.jobs.running import run, torchrun

pytest.importorskip("transformers")

JOB = Path(__file__).parent / "jobs" / "transformers_job.py"


def test_two_processes_killed_and_resumed(tmp_path: Path, data: Any) -> None:
    check_killed_and_resumed(JOB, data, tmp_path, saved=20, kill=22)


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_an_evaluation_counts_each_row_once(tmp_path: Path, num_ranks: int) -> None:
    """103 rows on 3 ranks: two ranks repeat a row with "split", and more with "pad"."""
    items = [[row] * (1 + row % 5) for row in range(103)]
    table = pa.table({"x": pa.array(range(103), pa.float32()), "items": items})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=20)
    program = JOB.parent / "transformers_evaluate.py"
    run(torchrun(num_ranks, program, tmp_path / "a.parquet", 103), tmp_path)
