"""Running programs and examples as a user would, each job in a session of its own."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.tree import ROOT, child_environment

KILLED_ONCE = Path(__file__).parent / "killed_once.py"
# Of machines that do other work beside it, too.
JOB_SECONDS = 900


def start(command: list[str], cwd: Path) -> subprocess.Popen[str]:
    """Start a job."""
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=child_environment(OMP_NUM_THREADS="1", RAY_USAGE_STATS_ENABLED="0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def end(job: subprocess.Popen[str]) -> str:
    """Kill what is left of a job, and return what it has printed since."""
    if job.poll() is not None:
        return ""
    os.killpg(job.pid, signal.SIGKILL)
    return job.communicate()[0]


def finish(job: subprocess.Popen[str], fails: bool = False) -> str:
    """Wait for a job, expect it to succeed or fail, and return what it has printed since."""
    try:
        output, _ = job.communicate(timeout=JOB_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.fail(f"the job hangs: {end(job)[-4000:]}")
    finally:
        end(job)
    assert (job.returncode != 0) == fails, output[-6000:]
    return output


def run(command: list[str], cwd: Path, fails: bool = False) -> str:
    return finish(start(command, cwd), fails)


def python(program: str | Path, *arguments: object) -> list[str]:
    """Return the command for a program: an example's `examples/NAME.py`, or any other's path."""
    return [sys.executable, str(ROOT / program), *map(str, arguments)]


def torchrun(
    num_ranks: int, program: str | Path, *arguments: object, max_restarts: int = 0
) -> list[str]:
    options = ["--standalone", f"--nproc-per-node={num_ranks}", f"--max-restarts={max_restarts}"]
    launcher = [sys.executable, "-m", "torch.distributed.run", *options]
    return [*launcher, *python(program, *arguments)[1:]]


def documented(page: str, block: int = 0) -> list[list[str]]:
    """Return the commands of one of a page's blocks that say which test runs them."""
    text = (ROOT / "docs" / "start" / page).read_text()
    blocks = re.findall(r'<!-- skip: next "run by \w+\.py" -->\n```sh\n(.*?)```', text, re.DOTALL)
    lines = blocks[block].replace("\\\n", " ").splitlines()
    return [_as_run_here(shlex.split(line)) for line in lines]


def _as_run_here(words: list[str]) -> list[str]:
    """Return a documented command for this interpreter and the examples of this tree."""
    programs = {"python": [], "torchrun": ["-m", "torch.distributed.run"]}
    place = next(place for place, word in enumerate(words) if word in programs)
    rest = [str(ROOT / word) if word.startswith("examples/") else word for word in words[place:]]
    variables = ["env", *words[:place]] if place else []
    return [*variables, sys.executable, *programs[rest[0]], *rest[1:]]
