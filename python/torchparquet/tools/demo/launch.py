"""Starting the ranks with torchrun, stopping them, and finding out which one failed first."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchparquet.errors import one_line
from torchparquet.tools.demo.data import Task

_JOB, _RESULTS = "job", "results.json"
_STOP_SECONDS = 15.0
# In torchrun's own report, which also names ranks that could not write a message.
_ROOT_CAUSE = re.compile(
    r"Root Cause.*?^\s*rank\s*:\s*(\d+).*?^\s*exitcode\s*:\s*(-?\d+)", re.DOTALL | re.MULTILINE
)
# The first line that torchrun adds to the log, such as "E1122 23:31:53.124000 77 torch/...".
_NOTICE = re.compile(r"^[WE]\d{4} .*torch/distributed/elastic/", re.MULTILINE)
_MAX_LAST_LINES = 40


@dataclass(frozen=True)
class Job:
    """The work of all ranks.

    Attributes:
        directory: Temporary, for messages between the ranks and their parent.
        files: Of the data set, in order.
        task: The columns to train on.
        num_epochs: Epochs to train for.
        batch_size: Rows per rank and step.
        debug: Let errors show their tracebacks.
        is_quiet: Show no steps.
    """

    directory: Path
    files: tuple[str, ...]
    task: Task
    num_epochs: int
    batch_size: int
    debug: bool = False
    is_quiet: bool = False


def load_job(directory: str) -> Job:
    """Return the job; called by the ranks."""
    # The directory belongs to this user alone and was made for this run.
    job: Job = pickle.loads((Path(directory) / _JOB).read_bytes())  # noqa: S301
    return job


def save_results(job: Job, epochs: list[dict[str, Any]]) -> None:
    """Write the report of each epoch; called by rank 0."""
    (job.directory / _RESULTS).write_text(json.dumps(epochs))


def save_failure(job: Job, rank: int, error: Exception) -> None:
    """Write the error that ended this rank; called by the rank."""
    message = {"time": time.time(), "rank": rank, "error": one_line(error)}
    (job.directory / f"failure-{rank}").write_text(json.dumps(message))


def run_ranks(job: Job, num_ranks: int) -> list[dict[str, Any]]:
    """Run the job under torchrun, and return the report of each epoch.

    Raises:
        RuntimeError: A rank failed; the message is that of the first to fail.
    """
    (job.directory / _JOB).write_bytes(pickle.dumps(job))
    log = job.directory / "log"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--local-addr=127.0.0.1", f"--nproc-per-node={num_ranks}"]
    command += ["-m", "torchparquet.tools.demo.train", str(job.directory)]
    threads = max(1, len(os.sched_getaffinity(0)) // num_ranks)
    defaults = {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo"}
    sys.stdout.flush()
    with log.open("wb") as errors:
        process = subprocess.Popen(  # noqa: S603
            command,
            # torch and torchrun leave caches and logs in TMPDIR, which goes with the job.
            env={**defaults, **os.environ, "TMPDIR": str(job.directory)},
            stdout=sys.stderr if job.is_quiet else None,
            stderr=None if job.debug else errors,
            # In a session of its own, so that Ctrl-C reaches this process alone.
            start_new_session=True,
        )
        try:
            code = process.wait()
        except BaseException:
            _stop(process)
            raise
    if code != 0:
        raise _failure(job, code, log)
    epochs: list[dict[str, Any]] = json.loads((job.directory / _RESULTS).read_text())
    return epochs


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End torchrun, which ends its ranks."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_SECONDS)
    except BaseException:
        process.kill()
        process.wait()
        raise


def _failure(job: Job, code: int, log: Path) -> RuntimeError:
    """Return the first failure: other ranks fail after it, because a peer is gone."""
    text = log.read_text(errors="replace")
    root = _ROOT_CAUSE.search(text)
    is_killed = root is not None and int(root[2]) < 0 and int(root[2]) != -signal.SIGTERM
    messages = [json.loads(path.read_text()) for path in job.directory.glob("failure-*")]
    messages.sort(key=lambda message: float(message["time"]))
    failures = [f"rank {message['rank']} failed: {message['error']}" for message in messages]
    if failures and not is_killed:
        return RuntimeError(failures[0])
    if root is None:
        error = RuntimeError(f"torchrun ended with exit code {code}")
    elif is_killed:
        error = RuntimeError(f"rank {root[1]} was ended by {signal.Signals(-int(root[2])).name}")
    else:
        error = RuntimeError(f"rank {root[1]} ended with exit code {root[2]}")
    for failure in failures:
        error.add_note(failure)
    notice = _NOTICE.search(text)
    lines = text[: notice.start() if notice else None].strip().splitlines()
    if lines:
        error.add_note("\n".join(["The ranks wrote last:", *lines[-_MAX_LAST_LINES:]]))
    return error
