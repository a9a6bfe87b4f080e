"""The training script of each rank: an ordinary loop over a ParquetDataset.

Beside training, each rank records the rows that it is given, and compares their targets with
those that pyarrow reads.
"""

from __future__ import annotations

import faulthandler
import sys
import time
import traceback
from dataclasses import asdict
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel

from torchparquet import Column, ParquetDataset
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.opening import source_of
from torchparquet._impl.reading.interpreter_exit import end_rank
from torchparquet.tools.demo.launch import Job, load_job, save_results
from torchparquet.tools.verify.row_audit import SeenRows, audit_rows

_HIDDEN = 64
_LEARNING_RATE = 0.03
# Short memory of squares: columns that nearly agree, such as dates, are told apart sooner.
_ADAM_BETAS = (0.9, 0.95)
_LINES_PER_EPOCH = 4


def open_dataset(job: Job) -> ParquetDataset:
    """Return the data set: features `[B, F]` and target `[B]`, nulls as zeros."""
    task = job.task
    return ParquetDataset(
        job.paths,
        batch_size=job.batch_size,
        columns={
            "features": Column(list(task.features), dtype="float32", nulls=0.0),
            "target": Column(task.target, dtype="float64", nulls=0.0),
        },
        shuffle=True,
        row_ids=True,
        pin_memory=False,
        storage_options=job.storage_options,
    )


def expected_targets(manifest: Manifest, target: str) -> Tensor:
    """Return the target of every row as pyarrow reads it, float64 `[N]`, nulls as zeros."""
    parts = []
    for file in manifest.files:
        try:
            source = source_of(file, manifest.remote)
            column = pq.read_table(source, columns=[target], partitioning=None).column(0)
        except OSError as error:
            raise OSError(f"pyarrow cannot read {file!r}: {error}") from error
        column = column.combine_chunks()
        if pa.types.is_temporal(column.type):
            column = column.view(f"int{column.type.bit_width}")
        parts.append(column.fill_null(column.type.to_pandas_dtype()(0)).to_numpy(False))
    return torch.from_numpy(np.concatenate(parts).astype(np.float64))


def count_wrong(target: Tensor, expected: Tensor) -> int:
    """Return the number of targets `[B]` that differ from the expected ones; NaN equals NaN."""
    return int(((target != expected) & ~(target.isnan() & expected.isnan())).sum())


class Model(nn.Module):
    """A linear model and a small network, for features and targets of any scale."""

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


class Scale:
    """Mean and deviation of every column, of rank 0's first batch."""

    def __init__(self, batch: dict[str, Tensor]) -> None:
        """Take them over from rank 0; every rank calls it."""
        columns = self._columns(batch)
        facts = torch.stack([columns.mean(0), columns.std(0, correction=0)])
        dist.broadcast(facts, 0)
        self.mean, self.std = facts[0], torch.where(facts[1] > 0, facts[1], 1.0)

    def of(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return features `[B, F]` and target `[B]`, float32, near mean 0 and deviation 1."""
        scaled = ((self._columns(batch) - self.mean) / self.std).float()
        return scaled[:, :-1], scaled[:, -1]

    @staticmethod
    def _columns(batch: dict[str, Tensor]) -> Tensor:
        columns = torch.cat([batch["features"].double(), batch["target"].unsqueeze(1)], 1)
        return columns.nan_to_num(posinf=0.0, neginf=0.0)


@record
def train(job: Job) -> None:
    """Train for all epochs, and save the report of each on rank 0; every rank calls it."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    dataset = open_dataset(job)
    expected = expected_targets(dataset.manifest, job.task.target)
    model = DistributedDataParallel(Model(len(job.task.features)))
    optimizer = torch.optim.Adam(model.parameters(), lr=_LEARNING_RATE, betas=_ADAM_BETAS)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, job.num_epochs * len(dataset) + 1
    )
    scale: Scale | None = None
    reports = []
    for epoch in range(job.num_epochs):
        dataset.set_epoch(epoch)
        steps, seen, num_wrong, errors = len(dataset), SeenRows(), 0, []
        started = time.perf_counter()
        for step, batch in enumerate(dataset, 1):
            scale = scale or Scale(batch)
            features, target = scale.of(batch)
            loss = (model(features) - target).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()

            seen.add(batch["row.id"].numpy())
            num_wrong += count_wrong(batch["target"], expected[batch["row.id"]])
            errors.append(float(loss.detach()) ** 0.5 * float(scale.std[-1]))
            if step * _LINES_PER_EPOCH % steps < _LINES_PER_EPOCH:
                seconds = time.perf_counter() - started
                show(job, epoch, f"{step:,}/{steps:,} steps  error {errors[-1]:,.4g}", seconds)
        own = {
            "rows": sum(int(end - begin) for begin, end in seen.runs()),
            "row_groups": len(dataset.get_shard_distribution_info()["assigned_shards"]),
            "steps": len(errors),
            "seconds": time.perf_counter() - started,
            "wait_seconds": dataset.metrics().wait_seconds,
            "wrong_targets": num_wrong,
            "first_error": errors[0],
            "last_error": float(np.mean(errors[-max(1, len(errors) // 10) :])),
        }
        reports += gather(dataset, epoch, own, seen)
    # Rank 0 audits longest: no rank closes its connections while another has them.
    dist.barrier()
    if dist.get_rank() == 0:
        save_results(job, reports)


def show(job: Job, epoch: int, state: str, seconds: float) -> None:
    """Print how far rank 0 is."""
    if dist.get_rank() == 0 and not job.is_quiet:
        print(f"epoch {epoch + 1}/{job.num_epochs}  {state}  {seconds:.1f} s", flush=True)


def gather(
    dataset: ParquetDataset, epoch: int, own: dict[str, Any], seen: SeenRows
) -> list[dict[str, Any]]:
    """Gather the rows of all ranks and audit them on rank 0; elsewhere return nothing."""
    is_first = dist.get_rank() == 0
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.gather_object((own, seen.runs()), gathered if is_first else None, dst=0)
    if not is_first:
        return []
    plan, num_rows = dataset.plan(epoch), dataset.manifest.num_rows
    planned_repeats = int(plan.share_rows.sum()) - num_rows
    audit = audit_rows(epoch, [runs for _, runs in gathered], num_rows, planned_repeats)
    ranks = [{"rank": rank, **one} for rank, (one, _) in enumerate(gathered)]
    return [
        {
            "epoch": epoch,
            "planned_steps": int(plan.share_steps[0]),
            "audit": {**asdict(audit), "faults": audit.faults()},
            "ranks": ranks,
        }
    ]


def main() -> NoReturn:
    """Be one rank of the job whose directory is the only argument."""
    # Prints where a rank is when a signal ends it; the parent shows it.
    faulthandler.enable()
    job = load_job(sys.argv[1])
    try:
        train(job)
        # Not sooner: torch can wait for itself if a model outlives gloo's group.
        dist.destroy_process_group()
    except Exception:
        traceback.print_exc()
        end_rank(1)
    end_rank()


if __name__ == "__main__":
    main()
