"""Run by torchrun: some combinations of `test_exhaustive`, each read to its end in lock step."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from tests.plan.test_exhaustive import Case, open_dataset, rows_of


def in_step(batches: Any) -> Iterator[Any]:
    """Yield the batches; before each of them all ranks meet."""
    for batch in batches:
        ones = torch.ones(1)
        dist.all_reduce(ones)
        assert ones.item() == dist.get_world_size()
        yield batch


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    found = []
    for job in json.loads(sys.argv[1]):
        folder = job.pop("folder")
        case = Case(**job)
        dataset = open_dataset(case, folder)
        assert dataset.topology().world_size == case.world_size
        batches = dataset
        if case.num_workers:
            workers = case.num_workers
            batches = DataLoader(dataset, batch_size=None, num_workers=workers, timeout=120)  # type: ignore[assignment]
        found.append(rows_of(batches if case.plan_options.steps_may_differ else in_step(batches)))
        dist.barrier()
    Path(sys.argv[2], f"{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
