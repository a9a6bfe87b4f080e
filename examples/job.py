"""A training job, as the examples have it: arguments, process group, and a record of its steps."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.distributed as dist
from torch import Tensor


@contextmanager
def ending_process_group() -> Iterator[None]:
    """Destroy the process group on every path, if there is one.

    A model that trains in the block must be gone at its end, as it is after a call of a function:
    as long as it lives it holds the group, and so gloo's threads.
    """
    try:
        yield
    except BaseException as error:
        # An error of a collective call holds the group too, in the frames of its traceback.
        errors: list[BaseException] = [error]
        for raised in errors:
            traceback.clear_frames(raised.__traceback__)
            causes = (raised.__cause__, raised.__context__)
            errors += [cause for cause in causes if cause is not None and cause not in errors]
        raise
    finally:
        # Joins gloo's threads, one of which could abort the process as the interpreter exits.
        if dist.is_initialized():
            dist.destroy_process_group()


class StepRecord:
    """A record of this process's steps: a line of JSON each.

    So that one can see, after a run, that every row was read and that a run which was taken up
    again had the same batches.
    """

    def __init__(self, directory: str | None, rank: int) -> None:
        """Open the rank's file in `directory`, after what earlier runs left there.

        Args:
            directory: None for no record.
            rank: Of this process.
        """
        self._file = None
        if directory is not None:
            Path(directory).mkdir(parents=True, exist_ok=True)
            self._file = (Path(directory) / f"rank{rank}.jsonl").open("a", buffering=1)

    def add(self, epoch: int, step: int, batch: dict[str, Tensor], loss: Tensor) -> None:
        """Note a step, counted from 1 over all epochs."""
        if self._file is None:
            return
        digest = hashlib.blake2b(digest_size=8)
        for tensor in batch.values():
            digest.update(tensor.numpy().tobytes())
        line = {
            "pid": os.getpid(),
            "epoch": epoch,
            "step": step,
            "rows": batch["row.id"].tolist(),
            "bytes": digest.hexdigest(),
            "loss": loss.detach().item().hex(),
        }
        self._file.write(json.dumps(line) + "\n")


def job_arguments() -> argparse.ArgumentParser:
    """Return the arguments that the training examples have in common."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", help="directory of the click log")
    parser.add_argument("checkpoints", help="directory of the checkpoints")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--save-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--stop-after", type=int, metavar="STEP", help="as if time were over")
    parser.add_argument("--record", help="directory for a record of what each step trained on")
    return parser
