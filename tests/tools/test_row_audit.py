"""The audit of delivered rows: it finds every fault, and counts as a plain count does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet.audit import SeenRows, audit_rows


def audit_of(ids_of_ranks: Sequence[Sequence[int]], num_rows: int) -> dict[str, Any]:
    """The audit of ranks that share `num_rows` rows evenly."""
    plan = EpochPlan(
        np.array([num_rows]), PlanOptions(2, world_size=len(ids_of_ranks), even="split")
    )
    runs = []
    for ids in ids_of_ranks:
        seen = SeenRows()
        for part in np.array_split(np.array(ids, np.int64), 3):
            seen.add(part)
        runs.append(seen.runs())
    return audit_rows(plan, np.array([[0, num_rows]]), runs)


@pytest.mark.parametrize(
    ("second", "fault"),
    [
        ([3, 4, 5, 5], "1 of 7 rows are missing, 0 planned; the first is row 6"),
        ([3, 4, 6, 6], "1 of 7 rows are missing, 0 planned; the first is row 5"),
        ([3, 4, 5, 6, 6, 2], "2 rows are read more than once, 1 planned; the first is row 2, "
                             "by rank 0 and 1"),
        ([3, 4, 5, 6], "0 rows are read more than once, 1 planned"),
        ([3, 4, 5, 6, 6, 7], "1 row ids that no file has"),
        ([3, 4, 5, 6, 6, -1], "1 row ids that no file has"),
        ([], "4 of 7 rows are missing"),
    ],
)  # fmt: skip
def test_the_audit_finds_what_is_wrong(second: list[int], fault: str) -> None:
    faults = audit_of([[0, 1, 2], second], num_rows=7)["faults"]
    assert any(found.startswith(fault) for found in faults), faults


def test_the_audit_counts_as_a_plain_count_does() -> None:
    generator = np.random.default_rng(1)
    for _ in range(200):
        num_rows = int(generator.integers(1, 12))
        ranks = [generator.integers(-1, num_rows + 1, generator.integers(0, 9)) for _ in range(3)]
        audit = audit_of([ids.tolist() for ids in ranks], num_rows)
        ids = np.concatenate(ranks)
        known = ids[(ids >= 0) & (ids < num_rows)]
        counts = np.bincount(known, minlength=num_rows)
        assert audit["num_unknown"] == len(ids) - len(known)
        assert audit["num_distinct"] == np.count_nonzero(counts)
        assert audit["num_repeats"] == len(known) - audit["num_distinct"]
        missing = np.flatnonzero(counts == 0).tolist()
        assert audit["first_missing"] == (missing[0] if missing else None)
