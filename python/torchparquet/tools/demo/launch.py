"""Runs the ranks with torch's elastic launcher, and finds out which one failed first."""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from torchparquet._impl.processors import num_processors
from torchparquet.tools.demo.data import Task

_JOB, _RESULTS = "job", "results.json"
_MAX_LAST_LINES = 40


@dataclass(frozen=True)
class Job:
    """The work of all ranks.

    Attributes:
        directory: Temporary directory for messages between the ranks and their parent.
    """

    directory: Path
    paths: tuple[str, ...]
    task: Task
    num_epochs: int
    batch_size: int
    storage_options: Mapping[str, Any] | None = None
    debug: bool = False
    is_quiet: bool = False


def load_job(directory: str) -> Job:
    """Return the job; the ranks call it."""
    # The directory belongs to this user alone and was made for this run.
    job: Job = pickle.loads((Path(directory) / _JOB).read_bytes())  # noqa: S301
    return job


def save_results(job: Job, epochs: list[dict[str, Any]]) -> None:
    """Write the report of each epoch; rank 0 calls it."""
    (job.directory / _RESULTS).write_text(json.dumps(epochs))


def run_ranks(job: Job, num_ranks: int) -> list[dict[str, Any]]:
    """Run the job on ranks of this machine, and return the report of each epoch."""
    (job.directory / _JOB).write_bytes(pickle.dumps(job))
    redirects = Std.NONE if job.debug else Std.ALL if job.is_quiet else Std.ERR
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num_ranks,
        max_restarts=0,
        run_id="demo",
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        logs_specs=DefaultLogsSpecs(str(job.directory / "logs"), redirects),
        # SIGINT and SIGTERM stay with the command line.
        signals_to_handle="SIGHUP",
    )
    threads = max(1, num_processors() // num_ranks)
    defaults = {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo"}
    # torch leaves caches in TMPDIR, which goes with the job.
    environment = {**defaults, **os.environ, "TMPDIR": str(job.directory)}
    changes = [f"{name}={environment[name]}" for name in (*defaults, "TMPDIR")]
    rank = [sys.executable, "-m", "torchparquet.tools.demo.train", str(job.directory)]
    sys.stdout.flush()
    logging.disable(logging.NOTSET if job.debug else logging.CRITICAL)
    try:
        elastic_launch(config, "env")(*changes, *rank)
    except ChildFailedError as failed:
        raise _failure(job, failed) from None
    finally:
        logging.disable(logging.NOTSET)
    epochs: list[dict[str, Any]] = json.loads((job.directory / _RESULTS).read_text())
    return epochs


def _failure(job: Job, failed: ChildFailedError) -> RuntimeError:
    """Return the first failure. Other ranks fail after it because they lose a peer."""
    files = {rank: Path(failure.error_file) for rank, failure in failed.failures.items()}
    # torch's own order has a resolution of seconds.
    moments = {rank: file.stat().st_mtime_ns for rank, file in files.items() if file.exists()}
    reports = [
        f"rank {rank} failed: {json.loads(files[rank].read_text())['message']['message']}"
        for rank in sorted(moments, key=lambda rank: moments[rank])
    ]
    codes = {rank: failure.exitcode for rank, failure in failed.failures.items()}
    killed = [rank for rank, code in codes.items() if code < 0 and code != -signal.SIGTERM]
    if killed:
        first = killed[0]
        error = RuntimeError(f"rank {first} was ended by {signal.Signals(-codes[first]).name}")
    elif reports:
        return RuntimeError(reports[0])
    else:
        first = min(codes, key=lambda rank: codes[rank] == -signal.SIGTERM)
        error = RuntimeError(f"rank {first} ended with exit code {codes[first]}")
    for report in reports:
        error.add_note(report)
    for log in job.directory.rglob(f"{first}/stderr.log"):
        lines = log.read_text(errors="replace").strip().splitlines()[-_MAX_LAST_LINES:]
        if lines:
            error.add_note("\n".join([f"Rank {first} wrote last:", *lines]))
    return error
