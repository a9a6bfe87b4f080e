"""The cost of steps on the costliest rank, with steps of equal cost and by chance.

    python bench/sequences/costs.py             # tables: steps, planning, a job of torchrun
    python bench/sequences/costs.py --skip-job

Lengths are log-normal, sigma 1, median 300; 8 rows a batch; windows of 8 row groups. The costs of
steps are those of the plan, over one window of all ranks. Planning starts with the lengths of 10^8
rows in memory: their costs, one rank's share of an epoch, and what all steps are to cost. The job
has 4 ranks whose step sleeps in proportion to its cost, and then waits for the others.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch.distributed as dist

from torchparquet import ByLength, ParquetDataset
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.plan.step_costs import RowCosts
from torchparquet._impl.sequences.row_costs import costs_of_steps, row_costs

_BATCH, _WINDOW = 8, 8
_COSTS: dict[str, Any] = {"L": "linear", "L + L²/1000": (1, 0.001)}
_SECONDS_PER_TOKEN = 1e-5


def _lengths(count: int) -> np.ndarray[Any, Any]:
    rng = np.random.Generator(np.random.PCG64(0))
    found = np.empty(count, np.uint32)
    for at in range(0, count, 1 << 22):
        part = found[at : at + (1 << 22)]
        part[:] = np.maximum(rng.lognormal(np.log(300), 1.0, len(part)), 1)
    return found


def _plan(num_rows: int, row_group: int, num_ranks: int, costs: RowCosts | None) -> EpochPlan:
    rows = np.full(num_rows // row_group, row_group)
    options = PlanOptions(_BATCH, shuffle=True, shuffle_window=_WINDOW, world_size=num_ranks)
    return EpochPlan(rows, options, row_costs=costs)


def _steps() -> None:
    print("| cost | rows of a window | ranks | | median | 99 % | steps within 1.02 | wall time |")
    print("| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: |")
    for name, cost in _COSTS.items():
        for row_group in (1_000, 10_000):
            for num_ranks in (8, 64, 512):
                num_rows = num_ranks * row_group * _WINDOW
                rows = np.full(num_rows // row_group, row_group)
                costs = row_costs(cost, _lengths(num_rows), rows)
                equal = _plan(num_rows, row_group, num_ranks, costs)
                chance = _plan(num_rows, row_group, num_ranks, None)
                for way, plan in (("by chance", chance), ("equal cost", equal)):
                    steps = costs_of_steps(
                        plan, costs, range(num_ranks), row_group * _WINDOW // _BATCH
                    )
                    excess = steps.max(axis=0) / steps.mean(axis=0)
                    median, most = np.quantile(excess, (0.5, 0.99))
                    wall = steps.max(axis=0).sum() / steps.mean(axis=0).sum()
                    print(
                        f"| {name} | {row_group * _WINDOW:,} | {num_ranks} | {way} | {median:.3f} "
                        f"| {most:.3f} | {np.mean(excess <= 1.02):.2%} | {wall:.3f} |",
                        flush=True,
                    )


def _planning() -> None:
    num_rows, row_group = 10**8, 10_000
    lengths = _lengths(num_rows)
    print("\n| ranks | seconds for 10^8 rows | of a processor | bytes a row at the peak |")
    print("| ---: | ---: | ---: | ---: |")
    for num_ranks in (8, 64, 512):
        code = os.fork()
        if code:
            os.waitpid(code, 0)
            continue
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begin, begin_of_process = time.perf_counter(), time.process_time()
        rows = np.full(num_rows // row_group, row_group)
        plan = _plan(num_rows, row_group, num_ranks, row_costs("linear", lengths, rows))
        share = plan.share(0)
        assert share.windows is not None
        for slot in range(len(share.windows.key)):
            plan.slot_targets(slot)
        seconds = time.perf_counter() - begin
        of_process = time.process_time() - begin_of_process
        more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        columns = f"{seconds:.1f} | {of_process:.1f} | {lengths.itemsize + more / num_rows:.1f}"
        print(f"| {num_ranks} | {columns} |", flush=True)
        os._exit(0)


def _write(path: Path) -> None:
    lengths = _lengths(16_000)
    offsets = pa.array(np.append(0, np.cumsum(lengths, dtype=np.int64)), pa.int32())
    tokens = pa.array(np.zeros(int(lengths.sum()), np.int32))
    table = pa.table({"tokens": pa.ListArray.from_arrays(offsets, tokens)})
    pq.write_table(table, path, row_group_size=500)


def _rank(folder: str, way: str) -> None:
    """Take part in the job, and print on rank 0 the seconds of the loop and of its sleep."""
    batch_size: Any = _BATCH
    if way == "equal cost":
        batch_size = ByLength("tokens", rows=_BATCH, cost="linear")
    dist.init_process_group("gloo")
    dataset = ParquetDataset(folder, batch_size=batch_size, shuffle=True, num_threads=1)
    dist.barrier()
    begin, slept = time.perf_counter(), 0.0
    for batch in dataset:
        seconds = int(batch["tokens"].lengths.sum()) * _SECONDS_PER_TOKEN
        slept += seconds
        time.sleep(seconds)
        dist.barrier()
    if dist.get_rank() == 0:
        print(f"{time.perf_counter() - begin:.2f} {slept:.2f}", flush=True)
    dist.destroy_process_group()


def _job() -> None:
    print("\n| 4 ranks, 500 steps | seconds | of which rank 0 slept |\n| --- | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder) / "a.parquet")
        for way in ("by chance", "equal cost"):
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
            command += ["--nproc-per-node=4", __file__, "--folder", folder, "--way", way]
            done = subprocess.run(
                command,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            seconds, slept = done.stdout.split()
            print(f"| {way} | {seconds} | {slept} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--skip-job", action="store_true")
    parser.add_argument("--skip-steps", action="store_true")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.folder:
        _rank(given.folder, given.way)
        return
    print(f"{platform.machine()}, {os.cpu_count()} cores, {datetime.date.today()}\n")
    if not given.skip_steps:
        _steps()
        _planning()
    if not given.skip_job:
        _job()


if __name__ == "__main__":
    main()
