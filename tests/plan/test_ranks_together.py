"""Row groups in parts of which every rank reads its own, in step with the other ranks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from torchparquet._impl.plan.elastic import Leg, plan_leg
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions


def loaders(plan: EpochPlan) -> list[list[tuple[int, int, bool]]]:
    """Return the whole row group and the row that each rank's loader has in each step."""
    ranks, workers = plan.options.world_size, plan.options.num_workers
    found = []
    for rank in range(ranks):
        rows: list[list[tuple[int, int, bool]]] = []
        for worker in range(workers):
            chunks = plan.share(worker * ranks + rank).chunks
            arrays = (array.tolist() for array in chunks.arrays())
            rows.append([])
            for group, begin, count, valid in zip(*arrays, strict=True):
                if count:
                    assert group % ranks == rank
                rows[-1] += [(group // ranks, begin + at, valid) for at in range(count)]
        steps = []
        while any(rows):  # a DataLoader takes a batch of each worker in turn
            steps += [of_worker.pop(0) for of_worker in rows if of_worker]
        assert plan.num_steps(rank) == len(steps)
        found.append(steps)
    return found


@settings(max_examples=300, deadline=None)
@example([9], 2, [(2, 3), (1, 0)], "split")
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.integers(2, 3),
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 7)), min_size=1, max_size=3),
    st.sampled_from(["split", "drop", "pad", "none"]),
)
def test_all_ranks_have_the_same_step_of_an_epoch_whoever_begins_it(
    sizes: list[int], num_ranks: int, worlds: list[tuple[int, int]], even: Any
) -> None:
    options = PlanOptions(1, world_size=num_ranks, even=even, ranks_together=num_ranks)
    legs = [Leg(num_ranks, workers, 1, steps) for workers, steps in worlds]
    read: Counter[tuple[int, int]] = Counter()
    for number, leg in enumerate(legs):
        plan = plan_leg(np.repeat(sizes, num_ranks), options, legs[: number + 1])
        if plan is None:
            break
        ranks = loaders(plan)
        assert all(of_rank == ranks[0] for of_rank in ranks)
        is_last = number + 1 == len(legs)
        taken = ranks[0] if is_last else ranks[0][: leg.num_steps]
        read.update((group, row) for group, row, valid in taken if valid)
    every = {(group, row) for group, size in enumerate(sizes) for row in range(size)}
    assert set(read) <= every
    if even in ("none", "pad"):
        assert set(read.values()) <= {1}
    if even != "drop" and (plan is None or is_last):
        assert set(read) == every
