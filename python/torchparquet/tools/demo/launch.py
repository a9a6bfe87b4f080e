"""Starting the ranks with torchrun, stopping them, and finding out what went wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from torchparquet.errors import one_line
from torchparquet.tools.demo.job import EpochResult, Job, load_results, save_job

_STOP_SECONDS = 15.0
# In torchrun's own report, which also knows of ranks that could not leave word.
_ROOT_CAUSE = re.compile(
    r"Root Cause.*?^\s*rank\s*:\s*(\d+).*?^\s*exitcode\s*:\s*(-?\d+)", re.DOTALL | re.MULTILINE
)
# Torchrun's first words about it, as "E1122 23:31:53.124000 77 torch/distributed/elastic/...", with
# the path from where it was started.
_NOTICE = re.compile(r"^[WE]\d{4} .*torch/distributed/elastic/", re.MULTILINE)
_MAX_LAST_LINES = 40


def run_ranks(job: Job, num_ranks: int) -> list[EpochResult]:
    """Run the job under torchrun, and return what the ranks did in each epoch.

    Raises:
        RuntimeError: A rank failed; the message is that of the first to fail.
    """
    save_job(job)
    log = job.directory / "log"
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"),
        *(
            f"--nproc-per-node={num_ranks}",
            "-m",
            "torchparquet.tools.demo.train",
            str(job.directory),
        ),
    ]
    sys.stdout.flush()
    with log.open("wb") as errors:
        process = subprocess.Popen(  # noqa: S603
            command,
            env=_environment(job, num_ranks),
            stdout=sys.stderr if job.as_json else None,
            stderr=None if job.debug else errors,
            # In a session of its own Ctrl-C reaches this process alone, which ends the others in
            # order.
            start_new_session=True,
        )
        code = _wait(process)
    if code != 0:
        raise _failure(job, code, log)
    return load_results(job)


def _environment(job: Job, num_ranks: int) -> dict[str, str]:
    threads = max(1, len(os.sched_getaffinity(0)) // num_ranks)
    defaults = {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo"}
    # torch and torchrun leave caches and logs behind; here they go with the job.
    return {**defaults, **os.environ, "TMPDIR": str(job.directory)}


def _wait(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait()
    except BaseException:
        _stop(process)
        raise


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End torchrun, which ends its ranks."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_SECONDS)
    except BaseException:
        process.kill()
        process.wait()
        raise


def save_failure(job: Job, rank: int, error: Exception) -> None:
    """Leave word of what ended this rank; called by the rank."""
    word = {"time": time.time(), "rank": rank, "error": one_line(error)}
    (job.directory / f"failure-{rank}").write_text(json.dumps(word))


def _failure(job: Job, code: int, log: Path) -> RuntimeError:
    """Return what went wrong first: the other ranks fail because a peer is gone."""
    text = log.read_text(errors="replace")
    root = _ROOT_CAUSE.search(text)
    is_killed = root is not None and int(root[2]) < 0 and int(root[2]) != -signal.SIGTERM
    words = [json.loads(path.read_text()) for path in job.directory.glob("failure-*")]
    words.sort(key=lambda word: float(word["time"]))
    failures = [f"rank {word['rank']} failed: {word['error']}" for word in words]
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
