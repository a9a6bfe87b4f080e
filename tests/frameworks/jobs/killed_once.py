"""Runs an example whose second rank is killed after a step, in the first try only."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist

from tests.frameworks.jobs.example_records import KILLED_AFTER


def main() -> None:
    tried, program, *arguments = sys.argv[1:]
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(Path(program).parent))
    example = importlib.import_module(Path(program).stem)
    train = example.train

    def train_until_killed(given: Any) -> None:
        # In the rank itself, which Ray runs in another process than this.
        from job import StepRecord

        add = StepRecord.add

        def add_and_die(record: Any, epoch: int, step: Any, *more: Any) -> None:
            add(record, epoch, step, *more)
            if step == KILLED_AFTER and dist.get_rank() == 1 and not Path(tried).exists():
                Path(tried).touch()
                os.kill(os.getpid(), signal.SIGKILL)

        StepRecord.add = add_and_die
        train(given)

    example.train = train_until_killed  # type: ignore[attr-defined]
    example.main()


if __name__ == "__main__":
    main()
