"""Training loops that are killed and resume, on the same ranks or on others."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from faults.processes.findings import Findings
from faults.processes.moments import NEVER, Moment, Tell, Work, run
from torchparquet import ParquetDataset

WORLDS = (1, 2, 3, 4)
_MOST_STEPS, _MOST_SECONDS = 12, 0.004


def write_rows(folder: Path) -> None:
    """Write files of several sizes, whose row groups do not fit batches."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for file in range(6):
        rows = int(rng.integers(400, 1200))
        table = pa.table({"x": rng.integers(0, 2**40, rows), "y": rng.random(rows)})
        pq.write_table(table, folder / f"{file}.parquet", row_group_size=170)


class KilledTraining:
    """Rounds of one epoch each, which begins again after each kill until it has ended."""

    def __init__(self, folder: Path, seed: int, *, changes_world: bool) -> None:
        """Prepare.

        Args:
            folder: Has the files in `rows`, and room for logs.
            seed: Of the moments and worlds.
            changes_world: True if each attempt has a number of ranks of its own.
        """
        self._data, self._folder = folder / "rows", folder
        self._draw = random.Random(f"{seed} {changes_world}")
        self._changes_world = changes_world
        self._whole: dict[tuple[int, str], list[list[str]]] = {}
        self.findings = Findings()

    def round(self) -> None:
        """Train one epoch, with as many attempts as kills leave it, and check what was consumed."""
        world = self._draw.choice(WORLDS)
        # Rows that repeat are marked by the first, and at most one of a rank by the second.
        even = self._draw.choice(["pad", "split"])
        first_world = last_world = world
        state, has_ended = None, False
        rows: Counter[int] = Counter()
        batches: list[list[str]] = [[] for _ in range(world)]
        while not has_ended:
            moment = Moment(
                self._draw.randint(0, _MOST_STEPS), self._draw.uniform(0, _MOST_SECONDS)
            )
            steps, has_ended = self._attempt(moment, world, even, state)
            for rank, own in enumerate(steps):
                for step in own:
                    rows.update(step["rows"])
                    if not self._changes_world:
                        batches[rank].append(step["digest"])
            if steps[0]:
                state, last_world = steps[0][-1]["state"], world
            if self._changes_world and not has_ended:
                world = self._draw.choice(WORLDS)
        self.findings.rounds += 1
        # Of all worlds, the last that made a step may have come to the end, where rows repeat.
        self._check_rows(rows, last_world if even == "split" else 1)
        if not self._changes_world:
            whole = self._uninterrupted(first_world, even)
            differing = sum(ours != theirs for ours, theirs in zip(batches, whole, strict=True))
            self.findings.add("other batches", differing, f"{first_world} ranks, even={even!r}")

    def _attempt(
        self, moment: Moment, world: int, even: str, state: Any
    ) -> tuple[list[list[Any]], bool]:
        """Return the steps of each rank that all ranks have saved, and whether all have ended."""
        logs = [self._folder / f"rank-{rank}.jsonl" for rank in range(world)]
        for log in logs:
            log.unlink(missing_ok=True)
        works = [self._work(rank, world, even, state, log) for rank, log in enumerate(logs)]
        children = run(works, moment, self._folder / "log")
        self.findings.add_kills(children)
        failed = [child.code for child in children if child.code not in (0, -9)]
        words = (self._folder / "log").read_text(errors="replace")[-2000:] if failed else ""
        self.findings.add("failed repeats", len(failed), words)
        steps = [_saved(log) for log in logs]
        common = min(map(len, steps))
        steps = [own[:common] for own in steps]
        states = {json.dumps(own[-1]["state"], sort_keys=True) for own in steps if own}
        self.findings.add("other batches", max(0, len(states) - 1), f"ranks' states: {states}")
        return steps, all(child.code == 0 for child in children) or bool(failed)

    def _work(self, rank: int, world: int, even: Any, state: Any, log: Path) -> Work:
        def work(tell: Tell) -> None:
            dataset = ParquetDataset(
                self._data,
                batch_size=37,
                shuffle=True,
                seed=11,
                shuffle_window=3,
                num_threads=2,
                row_ids=True,
                even=even,
                rank=rank,
                world_size=world,
            )
            if state is not None:
                dataset.load_state_dict(state)
            if dataset.epoch > 0:
                return  # The state is that of the epoch's end.
            with log.open("ab", buffering=0) as file:
                for number, batch in enumerate(dataset, 1):
                    valid = batch.get("row.valid")
                    ids = batch["row.id"] if valid is None else batch["row.id"][valid]
                    content = batch["x"].numpy().tobytes() + batch["y"].numpy().tobytes()
                    step = {
                        "rows": ids.tolist(),
                        "digest": hashlib.blake2b(content, digest_size=16).hexdigest(),
                        "state": dataset.state_dict(),
                    }
                    file.write(json.dumps(step).encode() + b"\n")
                    tell(steps=number)

        return work

    def _uninterrupted(self, world: int, even: str) -> list[list[str]]:
        """Return the digests of each rank's batches in a run that nobody kills."""
        if (world, even) not in self._whole:
            steps, _ = self._attempt(NEVER, world, even, None)
            self._whole[world, even] = [[step["digest"] for step in own] for own in steps]
        return self._whole[world, even]

    def _check_rows(self, rows: Counter[int], ranks: int) -> None:
        everything = sum(pq.read_metadata(path).num_rows for path in self._data.iterdir())
        lost = everything - len(rows)
        twice = rows.total() - len(rows)
        self.findings.add("rows lost", abs(lost), f"{len(rows)} of {everything}")
        # With even="split" all ranks but one may repeat a row, to have as many steps.
        words = f"{twice}, where {ranks - 1} may come again"
        self.findings.add("rows twice", max(0, twice - (ranks - 1)), words)


def _saved(log: Path) -> list[Any]:
    """Return the steps that were saved as a whole."""
    if not log.exists():
        return []
    *lines, _ = log.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines]
