"""Seconds that ranks take to find the rows of a condition in a distant store, one rank to eight.

    PYTHONPATH=bench python bench/selected/divided.py --ranks 1 2 4 8

Ranks are processes of torchrun. They list the store, read footers and evaluate a condition that
statistics do not decide, each rank its part. Time is from the moment when all are there to when
the last one has its data set; the median of all repeats. `work` is the processor time of all ranks
beyond that of one, which two cores share here and a cluster does not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stores.nginx import Distance, Place, store
from stores.readers import options_of_s3

_ROWS = 2_000


def _write(folder: Path, num_files: int) -> None:
    rng = np.random.default_rng(5)
    for number in range(num_files):
        columns = {"user": rng.integers(0, 1000, _ROWS), "value": rng.random(_ROWS)}
        pq.write_table(pa.table(columns), folder / f"{number:05}.parquet")


def _rank(endpoint: str, repeats: int) -> None:
    """Time as one rank; the first one prints."""
    import torch.distributed as dist

    from torchparquet import ParquetDataset

    dist.init_process_group("gloo")
    place = Place(endpoint, "files/")
    options: dict[str, Any] = {"storage_options": options_of_s3(place), "batch_size": 64}
    found: list[tuple[float, float]] = []
    for repeat in range(repeats + 1):
        dist.barrier()
        begin, work = time.perf_counter(), time.process_time()
        dataset = ParquetDataset(place.s3_url, filters=f"user % 1000 = {repeat}", **options)
        taken = time.perf_counter() - begin, time.process_time() - work
        of_ranks: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(of_ranks, (*taken, dataset.manifest.fingerprint))
        if len({fingerprint for _, _, fingerprint in of_ranks}) > 1:
            raise AssertionError("ranks found different rows")
        seconds, works, _ = zip(*of_ranks, strict=True)
        found.append((max(seconds), sum(works)))
    if dist.get_rank() == 0:
        print(json.dumps(found[1:]))
    dist.destroy_process_group()


def main() -> None:
    """Measures what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--files", type=int, default=1024)
    parser.add_argument("--latency-ms", type=float, default=30)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--endpoint", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.endpoint:
        return _rank(arguments.endpoint, arguments.repeats)
    with (
        tempfile.TemporaryDirectory() as files,
        tempfile.TemporaryDirectory(prefix="torchparquet-store-") as folder,
    ):
        _write(Path(files), arguments.files)
        distance = Distance(arguments.latency_ms, late_share=0, connection_kb_per_second=0)
        with store(Path(folder), {"files": Path(files)}, [distance]) as (endpoint,):
            print("| ranks | seconds | of one rank | processor seconds of all |\n|---|---|---|---|")
            alone = 0.0
            for ranks in arguments.ranks:
                command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node"]
                command += [str(ranks), __file__, "--endpoint", endpoint]
                command += ["--repeats", str(arguments.repeats)]
                environment = {**os.environ, "OMP_NUM_THREADS": "1"}
                done = subprocess.run(
                    command, env=environment, check=True, capture_output=True, text=True
                )
                pairs = json.loads(done.stdout.splitlines()[-1])
                seconds, work = (statistics.median(of) for of in zip(*pairs, strict=True))
                alone = alone or seconds
                print(f"| {ranks} | {seconds:.2f} | {alone / seconds:.1f}x | {work:.2f} |")
    return None


if __name__ == "__main__":
    main()
