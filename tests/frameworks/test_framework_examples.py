"""The examples of four frameworks: stopped, and given once more."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.jobs.example_records import NUM_ROWS, STEPS, batches_of_epoch, read_record
from tests.frameworks.jobs.running import documented, run


@pytest.mark.parametrize(
    ("framework", "page", "block"),
    [
        ("lightning", "lightning.md", 0),
        ("accelerate", "accelerate.md", 0),
        ("transformers", "accelerate.md", 1),
        ("deepspeed", "deepspeed.md", 0),
    ],
)
def test_every_row_once_an_epoch(
    tmp_path: Path, clicks: Any, framework: str, page: str, block: int
) -> None:
    """Two ranks, stopped at step 47; the second run goes on after step 45, or after 47."""
    pytest.importorskip(framework)
    (tmp_path / "clicks").symlink_to(clicks)
    _, train = documented(page, block)
    command = [*train, "--record", "record", "--save-every", "9"]
    run([*command, "--stop-after", "47"], tmp_path)
    run(command, tmp_path)
    ranks = []
    for lines in read_record(tmp_path / "record"):
        assert [line["step"] for line in lines[:47]] == list(range(1, 48))
        again = [line["step"] for line in lines[47:]]
        assert again == list(range(again[0], 2 * STEPS + 1))
        assert again[0] in (46, 48)
        by_step = {line["step"]: line for line in lines}
        for line in lines:
            assert line["bytes"] == by_step[line["step"]]["bytes"]
            assert line["loss"] == by_step[line["step"]]["loss"]
        assert [by_step[step]["epoch"] for step in (1, 40, 41, 80)] == [0, 0, 1, 1]
        ranks.append([by_step[step] for step in sorted(by_step)])
    assert len(ranks) == 2
    for epoch in range(2):
        batches = [batches_of_epoch(lines, epoch) for lines in ranks]
        rows = itertools.chain.from_iterable(itertools.chain.from_iterable(batches))
        assert sorted(rows) == list(range(NUM_ROWS))
    assert batches_of_epoch(ranks[0], 0) != batches_of_epoch(ranks[0], 1)
