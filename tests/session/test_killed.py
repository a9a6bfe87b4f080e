"""A training loop that is killed anywhere and started again consumes the uninterrupted stream."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.datasets import opener

NUM_EPOCHS = 3


@pytest.fixture(scope="module")
def data(tmp_path_factory: Any) -> Any:
    root = tmp_path_factory.mktemp("killed")
    rng = np.random.default_rng(0)
    for file in range(6):
        rows = int(rng.integers(400, 1200))
        table = pa.table({"x": rng.integers(0, 2**40, rows), "y": rng.random(rows)})
        pq.write_table(table, root / f"part-{file}.parquet", row_group_size=170)
    return root


open_dataset = opener(
    rank=0, world_size=1, batch_size=37, shuffle=True, seed=11, shuffle_window=3, num_threads=2
)


def consumed(digest: Any, batch: Any) -> Any:
    """Chain what was consumed so far and one batch more."""
    link = hashlib.blake2b(bytes.fromhex(digest), digest_size=16)
    link.update(batch["x"].numpy().tobytes() + batch["y"].numpy().tobytes())
    return link.hexdigest()


def train(data: Any, checkpoint: Any, progress: Any) -> None:
    """Consume and save, step by step; tells of each step by a byte, so that it can be killed."""
    digest, steps = "", 0
    dataset = open_dataset(data)
    if checkpoint.exists():
        saved = json.loads(checkpoint.read_text())
        digest, steps = saved["digest"], saved["steps"]
        dataset.load_state_dict(saved["state"])
    for epoch in range(dataset.epoch, NUM_EPOCHS):
        dataset.set_epoch(epoch)
        for batch in dataset:
            digest, steps = consumed(digest, batch), steps + 1
            saved = {"digest": digest, "steps": steps, "state": dataset.state_dict()}
            draft = checkpoint.with_suffix(".draft")
            draft.write_text(json.dumps(saved))
            draft.replace(checkpoint)
            os.write(progress, b".")


def run_and_kill(data: Any, checkpoint: Any, num_steps: Any) -> bool:
    """Train in a forked process that is killed after its step `num_steps`; whether it ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            train(data, checkpoint, writing)
        except BaseException:
            os._exit(1)
        os._exit(0)
    os.close(writing)
    seen = 0
    while seen < num_steps and (heard := os.read(reading, num_steps - seen)):
        seen += len(heard)
    os.kill(child, signal.SIGKILL)
    os.close(reading)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code == 0


def check_killed(data: Any, checkpoint: Any, num_kills: Any, seed: int) -> None:
    digest, steps = "", 0
    dataset = open_dataset(data)
    for _ in range(NUM_EPOCHS):
        for batch in dataset:
            digest, steps = consumed(digest, batch), steps + 1
    draw = random.Random(seed)
    kills = rounds = 0
    while kills < num_kills:
        rounds += 1
        checkpoint.unlink(missing_ok=True)
        while not run_and_kill(data, checkpoint, draw.randrange(8)):
            kills += 1
        saved = json.loads(checkpoint.read_text())
        assert (saved["steps"], saved["digest"]) == (steps, digest), f"round {rounds}"


@pytest.mark.long
def test_40_kills(data: Any, tmp_path: Path) -> None:
    check_killed(data, tmp_path / "checkpoint.json", 40, seed=1)


@pytest.mark.soak
def test_1000_kills(data: Any, tmp_path: Path) -> None:
    check_killed(data, tmp_path / "checkpoint.json", 1000, seed=2)
