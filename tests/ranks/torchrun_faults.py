"""Run by torchrun on 2 ranks: what must be refused, on which rank, without a hang."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from tests.fixtures.datasets import opener
from torchparquet import ParquetDataset, Ranks, verify_no_shard_overlap

DATA, OTHER_DATA = sys.argv[1:]


# The audit is to find the differences, not the comparison before the first batch.
open_dataset = opener(
    paths=DATA, batch_size=32, row_ids=True, shuffle=True, ranks=Ranks(check=False)
)


def outcome(call: Any, *arguments: Any, **options: Any) -> tuple[str, str]:
    try:
        call(*arguments, **options)
    except Exception as error:  # the kind of any error is looked at
        return type(error).__name__, str(error)
    return "none", ""


def outcomes(call: Any, *arguments: Any, **options: Any) -> Any:
    """The outcome of the call on every rank."""
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, outcome(call, *arguments, **options))
    return found


def check_refused(dataset: ParquetDataset, *words: str) -> None:
    """Both ways of the audit raise RuntimeError on all ranks."""
    for read in (False, True):
        for kind, text in outcomes(verify_no_shard_overlap, dataset, read=read):
            assert kind == "RuntimeError", (kind, text)
            assert all(word in text for word in words), text


def main() -> None:
    rank = int(os.environ["RANK"])
    kind, text = outcome(verify_no_shard_overlap, open_dataset())
    assert kind == "RuntimeError", (kind, text)
    assert "init_process_group" in text
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    verify_no_shard_overlap(open_dataset())

    # A variable that disagrees with the process group is an error there, and only there.
    if rank == 1:
        os.environ["RANK"] = "0"
    kinds = [kind for kind, _ in outcomes(lambda: next(iter(open_dataset())))]
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
    bare = open_dataset(row_ids=False)
    for kind, text in outcomes(verify_no_shard_overlap, bare, read=True):
        assert kind == "ValueError", (kind, text)
        assert "row_ids" in text
    # Explicit arguments win over all else.
    swapped = open_dataset(rank=1 - rank, world_size=2)
    assert swapped.topology().rank == 1 - rank
    verify_no_shard_overlap(swapped)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
