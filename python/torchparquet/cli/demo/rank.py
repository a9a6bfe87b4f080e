"""The training script of each rank, which records its rows and compares targets with pyarrow's."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from torchparquet import Column, ParquetDataset
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.reading.interpreter_exit import end_rank
from torchparquet.audit import SeenRows, audit_rows, row_ids_of
from torchparquet.errors import one_line

_LINES_PER_EPOCH = 4


def expected_targets(manifest: Manifest, target: str) -> Tensor:
    """Return the target of every row as pyarrow reads it, float64 `[N]`, nulls as zeros."""
    parts = []
    for file in manifest.files:
        source = manifest.listing.source(file)
        column = pq.read_table(source, columns=[target], partitioning=None).column(0)
        column = column.combine_chunks()
        if pa.types.is_temporal(column.type):
            column = column.view(f"int{column.type.bit_width}")
        parts.append(column.fill_null(column.type.to_pandas_dtype()(0)).to_numpy(False))
    return torch.from_numpy(np.concatenate(parts).astype(np.float64))


def count_wrong(target: Tensor, expected: Tensor) -> int:
    """Return the number of targets `[B]` that differ from the expected ones; NaN equals NaN."""
    return int((~target.isclose(expected, rtol=0, atol=0, equal_nan=True)).sum())


def train(features: list[str], target: str, num_epochs: int, **options: Any) -> list[Any]:
    """Train for all epochs, and return the report of each on rank 0; every rank calls it."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    columns = {
        "features": Column(features, dtype="float32", nulls=0.0),
        "target": Column(target, dtype="float64", nulls=0.0),
    }
    dataset = ParquetDataset(
        columns=columns, shuffle=True, row_ids=True, pin_memory=False, **options
    )
    is_first, num_steps = dist.get_rank() == 0, len(dataset)
    expected = expected_targets(dataset.manifest, target)
    model = DistributedDataParallel(nn.Linear(len(features), 1))
    # Short memory of squares: columns that nearly agree, such as dates, are told apart sooner.
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_epochs * num_steps + 1)
    scale = None
    reports = []
    for epoch in range(num_epochs):
        dataset.set_epoch(epoch)
        seen, num_wrong, errors, started = SeenRows(), 0, [], time.perf_counter()
        for step, batch in enumerate(dataset, 1):
            values = torch.cat([batch["features"].double(), batch["target"].unsqueeze(1)], 1)
            values = values.nan_to_num(posinf=0.0, neginf=0.0)
            if scale is None:
                # Mean and deviation of every column, of rank 0's first batch.
                scale = torch.stack([values.mean(0), values.std(0, correction=0)])
                dist.broadcast(scale, 0)
                scale[1] = torch.where(scale[1] > 0, scale[1], 1.0)
            scaled = ((values - scale[0]) / scale[1]).float()
            loss = (model(scaled[:, :-1]).squeeze(1) - scaled[:, -1]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            seen.add_batch(batch)
            num_wrong += count_wrong(batch["target"], expected[batch["row.id"]])
            errors.append(float(loss.detach()) ** 0.5 * float(scale[1, -1]))
            if is_first and step * _LINES_PER_EPOCH % num_steps < _LINES_PER_EPOCH:
                seconds = time.perf_counter() - started
                at = f"epoch {epoch + 1}/{num_epochs}  {step:,}/{num_steps:,} steps"
                print(f"{at}  error {errors[-1]:,.4g}  {seconds:.1f} s", flush=True)
        own = {
            "rank": dist.get_rank(),
            "rows": int(np.diff(seen.runs()).sum()),
            "row_groups": len(dataset.get_shard_distribution_info()["assigned_shards"]),
            "steps": len(errors),
            "seconds": time.perf_counter() - started,
            "wait_seconds": dataset.metrics().wait_seconds,
            "wrong_targets": num_wrong,
            "first_error": errors[0],
            "last_error": float(np.mean(errors[-max(1, len(errors) // 10) :])),
        }
        gathered: list[Any] = [None] * dist.get_world_size()
        dist.gather_object((own, seen.runs()), gathered if is_first else None, dst=0)
        if is_first:
            plan, rows = dataset.plan(epoch), row_ids_of(dataset.manifest)
            audit = audit_rows(plan, rows, [runs for _, runs in gathered])
            facts = {"epoch": epoch, "planned_steps": int(plan.share_steps[0]), "audit": audit}
            reports.append({**facts, "ranks": [of_rank for of_rank, _ in gathered]})
    # Rank 0 audits longest: no rank closes its connections while another has them.
    dist.barrier()
    return reports


def main(directory: Path) -> NoReturn:
    """Be one rank of the job that a directory holds; leave a report or an error in it."""
    faulthandler.enable()  # prints where a rank is when a signal ends it; the parent shows it
    rank = os.environ["RANK"]
    try:
        reports = train(**json.loads((directory / "job").read_text()))
        if rank == "0":
            (directory / "results").write_text(json.dumps(reports))
        # Not sooner: torch can wait for itself if a model outlives gloo's group.
        dist.destroy_process_group()
    except Exception as error:
        (directory / f"{rank}.error").write_text(f"rank {rank} failed: {one_line(error)}")
        traceback.print_exc()
        end_rank(1)
    end_rank()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
