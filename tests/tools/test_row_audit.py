"""The audit of delivered rows: it finds every fault, and counts as a plain count does."""

from __future__ import annotations

import numpy as np
import pytest

from torchparquet.tools.verify.row_audit import RowAudit, SeenRows, audit_rows, joined


def audit_of(*ids_of_ranks: list[int], num_rows: int, planned_repeats: int = 0) -> RowAudit:
    runs = []
    for ids in ids_of_ranks:
        seen = SeenRows()
        for part in np.array_split(np.array(ids, np.int64), 3):
            seen.add(part)
        runs.append(seen.runs())
    return audit_rows(0, runs, num_rows, planned_repeats)


def test_audit_of_rows() -> None:
    good = audit_of([5, 0, 1, 2], [3, 4, 6], num_rows=7)
    assert good.holds
    assert (good.num_distinct, good.num_repeats, good.first_missing) == (7, 0, None)
    planned = audit_of([0, 1, 2, 3], [4, 5, 6, 6], num_rows=7, planned_repeats=1)
    assert planned.holds
    assert planned.repeated == (6,)


@pytest.mark.parametrize(
    ("ids", "fault"),
    [
        ([0, 1, 2, 3, 4, 5, 5], "rows missing, the first is row 6"),
        ([0, 1, 2, 3, 4, 6, 6], "rows missing, the first is row 5"),
        ([0, 1, 2, 3, 4, 5, 6, 3], "1 rows repeated, 0 planned, the first is row 3"),
        ([0, 1, 2, 3, 4, 5], "1 of 7 rows missing, the first is row 6"),
        ([0, 1, 2, 3, 4, 5, 7], "1 row ids that no file has"),
        ([-1, 0, 1, 2, 3, 4, 5, 6], "1 row ids that no file has"),
        ([], "7 of 7 rows missing"),
    ],
)
def test_audit_finds_what_is_wrong(ids: list[int], fault: str) -> None:
    audit = audit_of(ids[:2], ids[2:], num_rows=7)
    assert not audit.holds
    assert any(fault in found for found in audit.faults())


def test_audit_wants_the_planned_repeats() -> None:
    assert not audit_of([0, 1], [2, 3], num_rows=4, planned_repeats=1).holds
    assert not audit_of([0, 1, 1], [2, 2, 3], num_rows=4, planned_repeats=1).holds


def test_audit_counts_as_a_plain_count_does() -> None:
    generator = np.random.default_rng(1)
    for _ in range(200):
        num_rows = int(generator.integers(1, 12))
        ranks = [generator.integers(-1, num_rows + 1, generator.integers(0, 9)) for _ in range(3)]
        audit = audit_of(*(list(map(int, ids)) for ids in ranks), num_rows=num_rows)
        ids = np.concatenate(ranks)
        known = ids[(ids >= 0) & (ids < num_rows)]
        counts = np.bincount(known, minlength=num_rows)
        assert audit.num_unknown == len(ids) - len(known)
        assert audit.num_distinct == np.count_nonzero(counts)
        assert audit.num_repeats == len(known) - audit.num_distinct
        again = np.repeat(np.arange(num_rows), np.maximum(counts - 1, 0))
        assert sorted(audit.repeated) == again.tolist()


def test_runs_keep_every_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchparquet.tools.verify.row_audit._MAX_PENDING_ROWS", 10)
    generator = np.random.default_rng(2)
    ids = np.concatenate([generator.permutation(100), generator.integers(0, 100, 37)])
    seen = SeenRows()
    for start in range(0, len(ids), 7):
        seen.add(ids[start : start + 7])
    kept = np.concatenate([np.arange(begin, end) for begin, end in seen.runs()])
    assert sorted(kept.tolist()) == sorted(ids.tolist())
    assert joined([seen.runs()[:0]]).shape == (0, 2)
