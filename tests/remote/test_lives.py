"""Processes that read from a store: workers, ranks, those that are killed, and their ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from tests.fixtures.tree import child_environment
from tests.remote.reading import FaultyStore, by_http, digests, open_dataset
from tests.servers.faults import Fault
from tests.servers.faulty_origin import FaultyOrigin

# With each of them the suite would take too long.
pytestmark = pytest.mark.mostly_long(every=2)

SMALL = {"max_memory": "300KB"}


@pytest.fixture
def faulty(origin: FaultyOrigin, data: Path) -> FaultyStore:
    return by_http(origin, data / "train")


@pytest.mark.long
@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("was_read", [False, True])
def test_workers_of_a_loader(faulty: FaultyStore, data: Path, context: str, was_read: bool) -> None:
    """A process that reads already may fork."""
    loaders = []
    for dataset in (open_dataset(data / "train"), faulty.open()):
        if was_read:
            iterator = iter(dataset)
            next(iterator)
            dataset.set_epoch(0)
        loaders.append(
            DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=context)
        )
    assert digests(loaders[1]) == digests(loaders[0])


PROGRAM = """
    import json, os, sys, threading
    from tests.remote.reading import digests, open_dataset
    url, options = json.loads(sys.argv[1])
    dataset = open_dataset(url, **options)
    iterator = iter(dataset)
"""


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def end_programs() -> Iterator[None]:
    """Kill what a test that failed has left."""
    yield
    while STARTED:
        program = STARTED.pop()
        program.kill()
        program.communicate()


def started(program: str, *arguments: str) -> subprocess.Popen[str]:
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-c", program, *arguments]
    environment = child_environment(OMP_NUM_THREADS="1")
    STARTED.append(subprocess.Popen(command, env=environment, text=True, **pipes))
    return STARTED[-1]


def start(program: str, url: Any, **options: Any) -> subprocess.Popen[str]:
    """Start a program that has an iterator of the data set."""
    text = textwrap.dedent(PROGRAM) + textwrap.dedent(program)
    return started(text, json.dumps([url, options]))


EXITS = {
    "iterator global": (0, "next(iterator)"),
    "many batches held": (0, "held = [next(iterator) for _ in range(3)]"),
    "sys.exit in the loop": (3, "for batch in iterator: sys.exit(3)"),
    "exception in the loop": (1, "for batch in iterator: raise ValueError('mine')"),
    "after the end": (0, "digests(iterator)"),
    "after break": (0, "for batch in dataset: break"),
    "another thread iterates on": (
        0,
        # No thread may begin once the interpreter ends.
        "begun = iter(dataset); next(begun); "
        "threading.Thread(target=lambda: print(len(digests(begun)))).start()",
    ),
    "never begun": (0, ""),
}


@pytest.mark.parametrize("stalls", [False, True])
@pytest.mark.parametrize("name", EXITS)
@pytest.mark.long
def test_the_interpreter_ends_mid_iteration(faulty: FaultyStore, name: str, stalls: bool) -> None:
    """Though a store says nothing any more."""
    if stalls:
        if name in ("after the end", "another thread iterates on"):
            pytest.skip("this reads all")
        faulty.origin.script.add("GET *part-[234].parquet", [Fault()] * 6, forever=False)
        faulty.origin.script.add("GET *part-[234].parquet", [Fault("stall")], forever=True)
    code, program = EXITS[name]
    child = start(program, faulty.url, **SMALL)
    _, errors = child.communicate(timeout=120)
    assert child.returncode == code, errors
    if code == 1:
        assert errors.rstrip().endswith("ValueError: mine")
    elif code == 0:
        assert errors == ""


@pytest.mark.long
def test_an_interrupt_while_a_store_stalls(faulty: FaultyStore) -> None:
    ready_pipe, told = os.pipe()

    class Told(Fault):
        """Tells that a request has come, before it stalls."""

        @property
        def name(self) -> str:
            os.write(told, b".")
            return "stall"

    child = start(
        """
        print("opened", flush=True)
        sys.stdin.readline()
        digests(iterator)
        """,
        faulty.url,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "opened\n"
    faulty.origin.script.add("GET *", [Told("stall")], forever=True)
    child.stdin.write("\n")
    child.stdin.flush()
    os.read(ready_pipe, 1)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGINT, errors
    assert errors.rstrip().endswith("KeyboardInterrupt")


def train(url: Any, checkpoint: Path, told: int, cache: str | None) -> None:
    """Consume and save, step by step, telling of each."""
    dataset = open_dataset(url, shuffle=True, seed=5, cache_dir=cache)
    found: list[str] = []
    if checkpoint.exists():
        saved = json.loads(checkpoint.read_text())
        found = saved["found"]
        dataset.load_state_dict(saved["state"])
    for batch in dataset:
        found += digests([batch])
        draft = checkpoint.with_suffix(".draft")
        draft.write_text(json.dumps({"found": found, "state": dataset.state_dict()}))
        draft.replace(checkpoint)
        os.write(told, b".")


TRAIN = """
import json, sys
from pathlib import Path
from tests.remote.test_lives import train
train(json.loads(sys.argv[1]), Path(sys.argv[2]), 1, json.loads(sys.argv[3]))
"""


@pytest.mark.long
@pytest.mark.parametrize("has_cache", [False, True])
def test_a_rank_that_is_killed_goes_on(
    faulty: FaultyStore, data: Path, tmp_path: Path, has_cache: bool
) -> None:
    expected = digests(open_dataset(data / "train", shuffle=True, seed=5))
    checkpoint, cache = tmp_path / "checkpoint.json", tmp_path / "cache"
    given = json.dumps(str(cache) if has_cache else None)
    for steps in (1, 3, 2, 5, None):
        child = started(TRAIN, json.dumps(faulty.url), str(checkpoint), given)
        assert child.stdout is not None
        if steps is not None:
            assert len(child.stdout.read(steps)) == steps
            child.kill()
        _, errors = child.communicate(timeout=120)
        assert child.returncode == (0 if steps is None else -signal.SIGKILL), errors
    assert json.loads(checkpoint.read_text())["found"] == expected
    assert cache.exists() == has_cache
    if has_cache:
        # The blocks they left are whole, and serve the next run: it asks for footers, little else.
        dataset = faulty.open(shuffle=True, seed=5, cache_dir=cache)
        faulty.origin.forget()
        assert digests(dataset) == expected
        dataset.set_epoch(0)
        faulty.origin.forget()
        assert digests(dataset) == expected
        assert not faulty.origin.requests
