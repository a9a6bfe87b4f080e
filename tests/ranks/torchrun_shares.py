"""Run by torchrun: all ways of `even=`, in lock step, with and without DataLoader workers."""

from __future__ import annotations

import itertools
import os
import sys
from collections import Counter
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from tests.fixtures.gathering import gathered
from torchparquet import ParquetDataset, verify_no_shard_overlap

DATA = sys.argv[1]


def read(batches: Any, in_step: Any) -> tuple[list[int], list[int], int]:
    """Return the row ids that are valid, those that are repeats, and the steps."""
    valid, repeats, steps = [], [], 0  # type: ignore[var-annotated]
    for batch in batches:
        steps += 1
        if in_step:
            ones = torch.ones(1)
            dist.all_reduce(ones)
            assert ones.item() == dist.get_world_size()
        assert batch["id"].equal(batch["row.id"])
        ids = batch["row.id"].tolist()
        flags = batch["row.valid"].tolist() if "row.valid" in batch else [True] * len(ids)
        valid += itertools.compress(ids, flags)
        repeats += itertools.compress(ids, [not flag for flag in flags])
    return valid, repeats, steps


def check_shares(dataset: ParquetDataset, even: str, drop_last: bool, shares: list[Any]) -> None:
    num_rows = dataset.manifest.num_rows
    counts = Counter(itertools.chain.from_iterable(valid for valid, _, _ in shares))
    steps = {steps for _, _, steps in shares}
    assert set(counts) <= set(range(num_rows))
    if even != "none":
        assert len(steps) == 1, steps
    if even == "split" and not drop_last:
        assert len(counts) == num_rows
        assert counts.total() - num_rows < dataset.plan().num_shares * 4
        assert max(counts.values()) <= 2
    else:
        assert max(counts.values(), default=1) == 1
    if even == "none" or (even == "pad" and not drop_last):
        assert drop_last or len(counts) == num_rows
    if even == "split":
        assert len({len(valid) for valid, _, _ in shares}) == 1
    if even != "pad":
        assert not any(repeats for _, repeats, _ in shares)


def check_policies() -> None:
    for even, drop_last, batch_size in itertools.product(
        ("split", "drop", "pad", "none"), (False, True), (None, 32)
    ):
        dataset = ParquetDataset(
            DATA,
            batch_size=batch_size,
            shuffle=True,
            seed=9,
            even=even,  # type: ignore[arg-type]
            drop_last=drop_last,
            row_ids=True,
        )
        epochs = []
        for epoch in range(2):
            assert dataset.epoch == epoch
            length = len(dataset)
            share = read(dataset, in_step=even != "none")
            assert share[2] == length
            shares = gathered(share)
            check_shares(dataset, even, drop_last, shares)
            epochs.append(shares)
        assert epochs[0] != epochs[1]


def check_workers(num_workers: int) -> None:
    for even in ("split", "none"):
        dataset = ParquetDataset(DATA, batch_size=32, shuffle=True, even=even, row_ids=True)
        loader = DataLoader(dataset, batch_size=None, num_workers=num_workers, timeout=120)
        for _ in range(2):
            steps = dataset.num_steps(num_workers)
            share = read(loader, in_step=even == "split")
            assert share[2] == steps
            check_shares(dataset, even, False, gathered(share))
        audit = verify_no_shard_overlap(loader)
        assert audit == verify_no_shard_overlap(loader, read=True)
        assert audit.epoch == 2
        assert audit.num_workers == num_workers


def main() -> None:
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dataset = ParquetDataset(DATA, batch_size=32, shuffle=True, row_ids=True)
    topology = dataset.topology()
    assert (topology.rank, topology.world_size) == (rank, world_size)
    before = read(dataset, in_step=False)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    assert dataset.topology() == topology
    dataset.set_epoch(0)
    assert read(dataset, in_step=True) == before
    check_shares(dataset, "split", False, gathered(before))

    check_policies()
    for num_workers in (1, 2) if world_size < 4 else (1,):
        check_workers(num_workers)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
