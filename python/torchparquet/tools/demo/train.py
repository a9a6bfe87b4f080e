"""The training script that the demo gives to torchrun: an ordinary loop over a ParquetDataset.

Beside training, each rank keeps which rows it saw and what their columns add up to.
"""

from __future__ import annotations

import faulthandler
import math
import os
import sys
import time
import traceback
from typing import NoReturn

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from torchparquet import Column, ParquetDataset
from torchparquet.reading.interpreter_exit import end_rank
from torchparquet.tools.demo.display import StepDisplay
from torchparquet.tools.demo.job import EpochResult, Job, RankEpoch, load_job, save_results
from torchparquet.tools.demo.launch import save_failure
from torchparquet.tools.demo.totals import Totals, totals_of
from torchparquet.tools.verify.row_audit import SeenRows, audit_rows

_HIDDEN = 64
_LEARNING_RATE = 0.03
# Short memory of squares: columns that nearly agree, such as dates, are told apart sooner.
_ADAM_BETAS = (0.9, 0.95)


class Regression(nn.Module):
    """A linear model and a small network that adds what is not linear."""

    def __init__(self, num_features: int) -> None:
        """Prepare weights for features `[B, num_features]`."""
        super().__init__()
        self.linear = nn.Linear(num_features, 1)
        self.network = nn.Sequential(
            nn.Linear(num_features, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 1)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Return a prediction `[B]` for each row of features `[B, F]`."""
        out: Tensor = self.linear(features) + self.network(features)
        return out.squeeze(1)


def open_dataset(job: Job) -> ParquetDataset:
    """Return the data set; nulls are read as zeros, with a mask."""
    columns = {
        leaf.path: Column(leaf.path, nulls="mask" if leaf.nullable else "error")
        for leaf in job.task.columns
    }
    return ParquetDataset(
        job.files,
        batch_size=job.batch_size,
        columns=columns,
        shuffle=True,
        row_ids=True,
        pin_memory=False,
    )


def scaled(job: Job, batch: dict[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    """Return a column with mean 0 and deviation 1, float32 `[B]`, and where it is known."""
    facts = job.facts[name]
    values = (batch[name].double() - facts.mean) / (facts.std or 1.0)
    known = values.isfinite()
    if f"{name}.valid" in batch:
        known &= batch[f"{name}.valid"]
    return torch.where(known, values, 0.0).float(), known


def train(job: Job) -> list[EpochResult]:
    """Train for all epochs; every rank calls it.

    Returns:
        On rank 0 what all ranks did; elsewhere nothing.
    """
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    dataset = open_dataset(job)
    model = DistributedDataParallel(Regression(len(job.task.features)))
    optimizer = torch.optim.Adam(model.parameters(), lr=_LEARNING_RATE, betas=_ADAM_BETAS)
    num_steps = job.num_epochs * len(dataset)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / num_steps))
    )
    results = []
    with StepDisplay(job, len(dataset), show=dist.get_rank() == 0) as display:
        for epoch in range(job.num_epochs):
            display.begin_epoch(epoch)
            own = train_epoch(job, dataset, epoch, model, optimizer, schedule, display)
            results += gather(dataset, epoch, own)
    return results


def train_epoch(
    job: Job,
    dataset: ParquetDataset,
    epoch: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    display: StepDisplay,
) -> RankEpoch:
    """Train for one epoch and note what was delivered."""
    dataset.set_epoch(epoch)
    num_row_groups = len(dataset.get_shard_distribution_info()["assigned_shards"])
    seen = SeenRows()
    totals = dict.fromkeys(job.facts, Totals())
    errors: list[tuple[float, int]] = []
    started = time.perf_counter()
    for batch in dataset:
        target, known = scaled(job, batch, job.task.target)
        features = torch.stack([scaled(job, batch, name)[0] for name in job.task.features], 1)
        squares = (model(features) - target).square() * known
        count = int(known.sum())
        optimizer.zero_grad()
        (squares.sum() / max(1, count)).backward()
        optimizer.step()
        schedule.step()

        seen.add(batch["row.id"].numpy())
        for name in totals:
            totals[name] += delivered(batch, name)
        unit = job.facts[job.task.target].std or 1.0
        errors.append((float(squares.detach().sum()) * unit**2, count))
        display.advance(len(target), *errors[-1])
    seconds = time.perf_counter() - started
    return RankEpoch(
        num_rows=sum(int(run[1] - run[0]) for run in seen.runs()),
        num_steps=len(errors),
        num_row_groups=num_row_groups,
        seconds=seconds,
        wait_seconds=dataset.metrics().wait_seconds,
        runs=seen.runs(),
        totals=totals,
        squared_errors=np.array([square for square, _ in errors], np.float64),
        num_targets=np.array([count for _, count in errors], np.int64),
    )


def delivered(batch: dict[str, Tensor], name: str) -> Totals:
    """Return the totals of a column of a batch."""
    valid = batch.get(f"{name}.valid")
    num_nulls = 0 if valid is None else int((~valid).sum())
    return totals_of(batch[name].numpy(), num_nulls)


def gather(dataset: ParquetDataset, epoch: int, own: RankEpoch) -> list[EpochResult]:
    """Bring what the ranks did together and audit it on rank 0; elsewhere return nothing."""
    world_size = dist.get_world_size()
    ranks: list[RankEpoch | None] = [None] * world_size
    dist.gather_object(own, ranks if dist.get_rank() == 0 else None, dst=0)
    if dist.get_rank() != 0:
        return []
    present = tuple(rank for rank in ranks if rank is not None)
    plan = dataset.plan(epoch)
    num_rows = dataset.manifest.num_rows
    planned_repeats = int(plan.share_rows.sum()) - num_rows
    audit = audit_rows(epoch, [rank.runs for rank in present], num_rows, planned_repeats)
    return [EpochResult(audit, int(plan.share_steps[0]), present)]


def main() -> NoReturn:
    """Be one rank of the job whose directory is the only argument."""
    # Where a rank is when a signal ends it; the parent shows it.
    faulthandler.enable()
    job = load_job(sys.argv[1])
    rank = int(os.environ["RANK"])
    code = 0
    try:
        results = train(job)
        # Rank 0 audits longest: no rank closes its connections while another has them.
        dist.barrier()
        # Not sooner: torch can wait for itself where a model outlives gloo's group.
        dist.destroy_process_group()
        if rank == 0:
            save_results(job, results)
    except Exception as error:
        save_failure(job, rank, error)
        if job.debug:
            traceback.print_exc()
        code = 1
    end_rank(code)


if __name__ == "__main__":
    main()
