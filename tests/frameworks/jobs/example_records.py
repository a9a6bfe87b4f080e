"""The records of the examples' steps."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.frameworks.jobs.running import documented, run

NUM_ROWS = 20_000  # of the click log
STEPS = 40  # of an epoch on each of two ranks: 10,000 rows in batches of 256
KILLED_AFTER = 13  # the step that killed_once.py lets its rank take

Line = dict[str, Any]
Record = list[list[Line]]  # of each rank, in the order of writing


def read_record(directory: Path) -> Record:
    files = sorted(directory.glob("rank*.jsonl"), key=lambda path: int(path.stem[4:]))
    return [list(map(json.loads, path.read_text().splitlines())) for path in files]


def documented_record(page: str, clicks: Path, root: Path) -> Record:
    """The records of a page's second command, which makes no data."""
    (root / "clicks").symlink_to(clicks)
    _, train = documented(page)
    run([*train, "--record", "record"], root)
    return read_record(root / "record")


def upto(record: Record, step: int) -> Record:
    return [[line for line in lines if line["step"] <= step] for lines in record]


def batches_of_epoch(lines: list[Line], epoch: int) -> list[list[int]]:
    """Return the rows of each batch of one rank."""
    return [line["rows"] for line in lines if line["epoch"] == epoch]


def rows_of_epoch(record: Record, epoch: int) -> Counter[int]:
    batches = (batch for lines in record for batch in batches_of_epoch(lines, epoch))
    return Counter(row for batch in batches for row in batch)


def assert_even_steps(record: Record, num_ranks: int) -> None:
    """Every rank took the same steps, in the same order."""
    assert len(record) == num_ranks
    steps = [[(line["epoch"], line["step"]) for line in lines] for lines in record]
    assert len(steps[0]) > 0
    assert all(of_rank == steps[0] for of_rank in steps)


def assert_no_row_is_missing(rows: Counter[int], num_shares: int) -> None:
    """And no more are repeated than it takes for the shares to be even."""
    assert set(rows) == set(range(NUM_ROWS))
    assert rows.total() - NUM_ROWS < num_shares


def assert_goes_on(before: Record, rest: Record, num_ranks: int) -> None:
    """Runs before and after a checkpoint in the first of two epochs read every row, evenly."""
    assert_even_steps(rest, num_ranks)
    assert_no_row_is_missing(rows_of_epoch(before, 0) + rows_of_epoch(rest, 0), num_ranks)
    assert_no_row_is_missing(rows_of_epoch(rest, 1), num_ranks)


def assert_begun_anew(record: Record, last_step: int) -> None:
    """Every rank trained all steps, in two processes; the second rank's first was killed."""
    for lines in record:
        assert len({line["pid"] for line in lines}) == 2
        assert {line["step"] for line in lines} == set(range(1, last_step + 1))
    steps = [line["step"] for line in record[1]]
    assert steps[:KILLED_AFTER] == list(range(1, KILLED_AFTER + 1))
    assert steps[KILLED_AFTER:] == list(range(steps[KILLED_AFTER], last_step + 1))


def assert_same_steps(record: Record, whole: Record) -> None:
    """Each line has the rows, the bytes and the loss of an uninterrupted run, bit for bit."""
    assert len(record) == len(whole)
    for lines, expected in zip(record, whole, strict=True):
        by_step = {line["step"]: line for line in expected}
        assert lines
        for line in lines:
            same = {**by_step[line["step"]], "pid": line["pid"]}
            assert line == same, (line["step"], line["loss"], same["loss"])


def assert_each_share_in_even_steps(record: Record, shares: list[list[list[list[int]]]]) -> None:
    """Both ranks trained on the batches that a bare loop reads, in both epochs."""
    assert_even_steps(record, 2)
    for epoch in range(2):
        assert_no_row_is_missing(rows_of_epoch(record, epoch), 2)
        for lines, share in zip(record, shares, strict=True):
            assert batches_of_epoch(lines, epoch) == share[epoch]
