"""Run by torchrun on 2 ranks: what must be refused, on which rank, without a hang."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from functools import partial

import torch.distributed as dist

from tests.fixtures.datasets import opener
from tests.fixtures.gathering import outcome, outcomes
from torchparquet import ParquetDataset, Ranks, verify_no_shard_overlap

DATA, OTHER_DATA = sys.argv[1:]


# The audit is to find the differences, not the comparison before the first batch.
open_dataset = opener(
    paths=DATA, batch_size=32, row_ids=True, shuffle=True, ranks=Ranks(check=False)
)


def check_refused(dataset: ParquetDataset, *words: str, kind: str = "RuntimeError") -> None:
    """Both ways of the audit raise on all ranks; without row ids the one that reads."""
    for read in (False, True) if kind == "RuntimeError" else (True,):
        for text in outcomes(partial(verify_no_shard_overlap, dataset, read=read)):
            assert text.startswith(f"{kind}: "), text
            assert all(word in text for word in words), text


def main() -> None:
    rank = int(os.environ["RANK"])
    text = outcome(lambda: verify_no_shard_overlap(open_dataset()))
    assert text.startswith("RuntimeError: "), text
    assert "init_process_group" in text
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    verify_no_shard_overlap(open_dataset())

    # A variable that disagrees with the process group is an error there, and only there.
    if rank == 1:
        os.environ["RANK"] = "0"
    kinds = [text.split(":")[0] for text in outcomes(lambda: next(iter(open_dataset())))]
    assert kinds == ["none", "ValueError"], kinds
    os.environ["RANK"] = str(rank)

    check_refused(open_dataset(rank=0, world_size=2), "more than once")
    check_refused(open_dataset(rank=0, world_size=2, even="none"), "more than once")
    check_refused(open_dataset(rank=rank, world_size=3), "2 ranks")
    check_refused(open_dataset(paths=DATA if rank == 0 else OTHER_DATA), "different files")
    check_refused(open_dataset(seed=rank), "more than once")
    ahead = open_dataset()
    ahead.set_epoch(rank)
    check_refused(ahead, "different epochs")
    check_refused(open_dataset(row_ids=False), "row_ids", kind="ValueError")
    # Explicit arguments win over all else.
    swapped = open_dataset(rank=1 - rank, world_size=2)
    assert swapped.topology().rank == 1 - rank
    verify_no_shard_overlap(swapped)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
