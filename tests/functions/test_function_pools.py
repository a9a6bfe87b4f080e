"""The user's functions on threads and in processes, ahead of the loop: what must not change."""

from __future__ import annotations

import functools
import gc
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import threading
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.datasets import ids_by_batch, opener
from tests.fixtures.tree import completed
from torchparquet import Ahead, CorruptFileError, ParquetDataset, TransformError, batch_seed

NUM_ROWS = 1000
long = pytest.mark.long
SECONDS = 60  # for what must happen
THREADS: dict[str, Any] = {"threads": 3}
PROCESSES: dict[str, Any] = {"processes": 2}
SLOW_PROCESSES = pytest.mark.parametrize(
    "pool",
    [pytest.param(THREADS, id="threads"), pytest.param(PROCESSES, id="processes", marks=long)],
)
EITHER = pytest.mark.parametrize("pool", [THREADS, PROCESSES], ids=["threads", "processes"])


@pytest.fixture(scope="module")
def data(tmp_path_factory: Any) -> Any:
    root = tmp_path_factory.mktemp("pools")
    ids = np.arange(NUM_ROWS)
    table = pa.table({"id": ids, "text": [f"row {i}" for i in ids]})
    pq.write_table(table, root / "a.parquet", row_group_size=70)
    return root


opened = opener(batch_size=32, shuffle=True, num_threads=1, rank=0, world_size=1)


def open_dataset(
    data: Any,
    transform: Any = None,
    threads: int | None = None,
    processes: int | None = None,
    **options: Any,
) -> ParquetDataset:
    if threads is not None or processes is not None:
        transform = Ahead(transform, threads, processes)
    dataset: ParquetDataset = opened(data, transform=transform, **options)
    return dataset


def changed(batch: Any) -> dict[str, Any]:
    """Return all that a batch leads to, random numbers too."""
    drawn = np.random.default_rng(batch_seed()).integers(1 << 60)
    return {
        "id": batch["id"] + 1,
        "length": batch["text"].lengths,
        "text": batch["text"],
        "drawn": int(drawn),
    }


def shown(batches: Any) -> list[Any]:
    return [
        (
            batch["id"].tolist(),
            batch["length"].tolist(),
            batch["text"].to_str(),
            batch["drawn"],
        )
        for batch in batches
    ]


def test_seeds_of_ranks_differ(data: Any) -> None:
    seeds = [
        batch["drawn"]
        for rank in range(3)
        for batch in open_dataset(data, transform=changed, rank=rank, world_size=3, **THREADS)
    ]
    assert len(set(seeds)) == len(seeds)
    with pytest.raises(RuntimeError, match="batch_seed"):
        batch_seed()


def draw_from_all(batch: Any) -> Any:
    drawn = [random.random(), np.random.random(), torch.rand(1).item()]
    return {"id": batch["id"], "drawn": drawn}


@long
def test_processes_seed_the_generators_that_functions_share(data: Any) -> None:
    pooled = open_dataset(data, transform=draw_from_all, **PROCESSES)
    first, again = [[batch["drawn"] for batch in pooled] for _ in range(2)]
    pooled.set_epoch(0)
    assert [batch["drawn"] for batch in pooled] == first
    assert first[0] not in again
    pooled.close()


def test_as_many_batches_as_threads_are_worked_on(data: Any) -> None:
    """Each waits for two others."""
    barrier = threading.Barrier(3)

    def meet(batch: Any) -> Any:
        barrier.wait(SECONDS)
        return batch

    batches = list(
        open_dataset(data, batch_size=100, drop_last=True, limit_steps=9, transform=meet, **THREADS)
    )
    assert len(batches) == 9


class Noting:
    """A function that counts its batches, on any thread."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, batch: Any) -> Any:
        self.seen.append(len(batch["id"]))
        return batch


def test_functions_see_no_batch_beyond_the_limit(data: Any) -> None:
    first, second = Noting(), Noting()
    options = {"batch_size": 5, "limit_steps": 9} | THREADS
    iterator = iter(open_dataset(data, transform=first, **options))
    for _ in range(4):
        next(iterator)
    resumed = open_dataset(data, transform=second, **options)
    resumed.load_state_dict(iterator.state_dict())
    assert len(list(iterator)) == len(list(resumed)) == len(second.seen) == 5
    assert len(first.seen) == 9


def test_no_more_batches_are_held_than_twice_the_threads(data: Any) -> None:
    counting = Noting()
    dataset = open_dataset(data, batch_size=5, transform=counting, **THREADS)
    ahead = [len(counting.seen) - number for number, _ in enumerate(dataset, 1)]
    assert max(ahead) <= 6
    assert len(counting.seen) == 200


@SLOW_PROCESSES
@settings(max_examples=6, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.integers(0, 32), st.integers(1, 3))
def test_states_lead_to_the_batches_that_were_not_delivered(
    data: Any, pool: Any, num_batches: int, world: int
) -> None:
    dataset = open_dataset(data, transform=changed, **pool)
    iterator = iter(dataset)
    before = shown(batch for _, batch in zip(range(num_batches), iterator, strict=False))
    state = json.loads(json.dumps(iterator.state_dict()))
    plain = open_dataset(data, transform=changed)
    assert before == shown(plain)[:num_batches]
    again = open_dataset(data, transform=changed, **pool)
    again.load_state_dict(state)
    assert shown(again)[: 32 - num_batches] == shown(iterator)
    if 0 < num_batches < 32:
        seen = {number for ids, *_ in before for number in ids}
        for rank in range(world):
            other = open_dataset(
                data, transform=changed, **pool | {"rank": rank, "world_size": world}
            )
            other.load_state_dict(state)
            ids = [number for part, *_ in shown(other) for number in part]
            assert not seen & set(ids) or len(ids) - len(set(ids) - seen) <= 1
            seen |= set(ids)
            other.close()
        assert seen == set(range(1, NUM_ROWS + 1))
    dataset.close()
    again.close()


def fails_on(wanted: int, batch: Any) -> Any:
    if wanted in batch["id"].tolist():
        raise LookupError(f"of {wanted}")
    return batch


@pytest.mark.mostly_long(every=2)
@EITHER
def test_a_failure_comes_in_its_turn_and_names_its_batch(data: Any, pool: Any) -> None:
    plain = list(open_dataset(data))
    wanted = int(plain[5]["id"][7])
    dataset = open_dataset(data, transform=functools.partial(fails_on, wanted), **pool)
    iterator = iter(dataset)
    assert ids_by_batch(next(iterator) for _ in range(5)) == ids_by_batch(plain[:5])
    for _ in range(2):
        with pytest.raises(
            TransformError, match=r"LookupError: of \d+; given was batch 5 of epoch 0"
        ):
            next(iterator)
    assert isinstance(_cause(iterator), LookupError) or pool is PROCESSES
    dataset.skip(1)
    assert ids_by_batch(iterator) == [batch["id"].tolist() for batch in plain[6:]]
    dataset.close()


def of_a_graph(batch: Any) -> Any:
    return {"id": batch["id"] * torch.ones(1, requires_grad=True)}


def test_what_cannot_leave_a_process_names_its_batch(data: Any) -> None:
    dataset = open_dataset(data, of_a_graph, processes=1, columns=["id"])
    with pytest.raises(
        TransformError, match=r"cannot return .*autograd.*given was batch 0 of epoch 0"
    ):
        next(iter(dataset))
    dataset.close()


def _cause(iterator: Any) -> BaseException | None:
    try:
        next(iterator)
    except TransformError as error:
        return error.__cause__
    return None


def test_an_abandoned_iterator_ends_without_the_garbage_collector(data: Any) -> None:
    iterator = iter(open_dataset(data, transform=changed, **THREADS))
    next(iterator)
    reference = weakref.ref(iterator)
    gc.collect()
    gc.disable()
    try:
        del iterator
        assert reference() is None
    finally:
        gc.enable()


def test_errors_of_reading_come_after_the_batches_before(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"id": np.arange(100)})
    pq.write_table(table, path, row_group_size=10, use_dictionary=False, compression="none")
    content = bytearray(path.read_bytes())
    chunk = pq.read_metadata(path).row_group(4).column(0)
    content[chunk.data_page_offset : chunk.data_page_offset + 8] = b"\xff" * 8
    path.write_bytes(content)
    iterator = iter(open_dataset(path, batch_size=10, shuffle=False, transform=dict, **THREADS))
    assert [next(iterator)["id"][0].item() for _ in range(4)] == [0, 10, 20, 30]
    for _ in range(2):
        with pytest.raises(CorruptFileError, match="row group 4"):
            next(iterator)


class _InterruptError(Exception):
    pass


def test_an_exception_of_a_signal_loses_no_batch(data: Any) -> None:
    """It comes while `next` waits for the function, and once more after the batch was made."""
    release, main = threading.Event(), threading.main_thread().ident
    assert main is not None

    def hold(batch: Any) -> Any:
        if not release.is_set():
            signal.pthread_kill(main, signal.SIGUSR1)
            release.wait(SECONDS)
        return batch

    def interrupt(*_: Any) -> None:
        raise _InterruptError

    expected = ids_by_batch(open_dataset(data))
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        iterator = iter(open_dataset(data, transform=hold, threads=1))
        with pytest.raises(_InterruptError):
            next(iterator)
        release.set()
        assert ids_by_batch(iterator) == expected
    finally:
        signal.signal(signal.SIGUSR1, before)


def own_process(batch: Any) -> Any:
    is_shared = batch["id"].is_shared()
    return {"id": batch["id"] * 2, "pid": os.getpid(), "is_shared": is_shared}


@pytest.mark.long
def test_processes_get_and_give_tensors_by_shared_memory(data: Any) -> None:
    dataset = open_dataset(data, transform=own_process, **PROCESSES)
    batches = list(dataset)
    assert all(batch["is_shared"] and batch["id"].is_shared() for batch in batches)
    pids = {batch["pid"] for batch in batches}
    assert os.getpid() not in pids
    assert len(pids) <= 2
    dataset.close()
    assert not any(psutil.pid_exists(pid) and _is_alive(pid) for pid in pids)


def _is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def ends_on(wanted: int, once: Path | None, batch: Any) -> Any:
    """End the process on a batch; only the first time if a file tells of it."""
    if wanted in batch["id"].tolist() and not (once and once.exists()):
        if once:
            once.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return batch


@long
def test_a_crash_names_its_batch_and_one_that_comes_once_costs_none(
    data: Any, tmp_path: Path
) -> None:
    plain = list(open_dataset(data))
    row = int(plain[3]["id"][0])
    dataset = open_dataset(data, functools.partial(ends_on, row, None), **PROCESSES)
    iterator = iter(dataset)
    assert ids_by_batch(next(iterator) for _ in range(3)) == ids_by_batch(plain[:3])
    with pytest.raises(TransformError, match=r"ended abruptly.*given was batch 3 of epoch 0"):
        next(iterator)
    dataset.skip(1)
    assert next(iterator)["id"].tolist() == plain[4]["id"].tolist()
    dataset.close()
    dataset = open_dataset(data, functools.partial(ends_on, row, tmp_path / "ended"), **PROCESSES)
    with pytest.warns(RuntimeWarning, match="ended abruptly"):
        assert ids_by_batch(dataset) == ids_by_batch(plain)
    dataset.close()


def hangs(batch: Any) -> Any:
    threading.Event().wait()
    return batch


@pytest.mark.long
def test_close_ends_processes_that_hang(data: Any) -> None:
    dataset = open_dataset(data, transform=hangs, **PROCESSES)
    iterator = iter(dataset)

    def raise_timeout(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, raise_timeout)
    signal.setitimer(signal.ITIMER_REAL, 5)
    try:
        with pytest.raises(TimeoutError):
            next(iterator)
    finally:
        signal.signal(signal.SIGALRM, before)
    children = [
        child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())
    ]
    assert children
    dataset.close()
    _, alive = psutil.wait_procs(children, timeout=SECONDS)
    assert alive == []


FUNCTIONS = """
import pyarrow as pa
from torch.utils.data import DataLoader
from torchparquet import Ahead, ParquetDataset

def read(function, loader_of=None, processes=None):
    table = pa.table({"x": range(40)})
    transform = function if processes is None else Ahead(function, processes=processes)
    data = ParquetDataset(table, batch_size=10, transform=transform)
    try:
        print("rows", sum(len(batch["x"]) for batch in (loader_of or iter)(data)))
    except Exception as error:
        print(f"{type(error).__name__}: {error}")

def spawning(data):
    return DataLoader(data, batch_size=None, num_workers=1, multiprocessing_context="spawn")

def found(batch):
    return batch

"""
GUARDED = """
if __name__ == "__main__":
    def lost(batch):
        return batch

"""


def output_of(program: str, folder: Path | None) -> str:
    """What a program prints, from a file or from stdin; its errors too."""
    if folder is None:
        done = completed("-", given=program)
    else:
        (folder / "program.py").write_text(program)
        done = completed(folder / "program.py")
    return done.stdout + done.stderr


def test_processes_that_do_not_find_a_function_say_so(tmp_path: Path) -> None:
    """As in a notebook, whose functions no module has."""
    calls = ("found, processes=1", "lost, processes=1", "lost, spawning")
    body = "".join(f"    read({call})\n" for call in calls)
    lines = output_of(FUNCTIONS + GUARDED + body, tmp_path).splitlines()
    lines = [line for line in lines if line.startswith(("rows", "TypeError"))]
    assert lines[0] == "rows 40"
    assert [line.split(":")[0] for line in lines[1:3]] == ["TypeError"] * 2
    assert "'lost'" in lines[1]


@pytest.mark.parametrize("kind", [pytest.param("stdin", marks=pytest.mark.long), "no guard"])
def test_processes_that_cannot_begin_blame_no_batch(tmp_path: Path, kind: str) -> None:
    program = FUNCTIONS.replace("    try:", "    if True:").partition("    except")[0]
    program += "\ndef found(batch):\n    return batch\n\nread(found, processes=1)"
    output = output_of(program, None if kind == "stdin" else tmp_path)
    assert "RuntimeError: the processes of Ahead end as they begin" in output
    assert "in a module" in output
    assert "batch 0" not in output


def test_functions_for_processes_must_be_picklable(data: Any) -> None:
    dataset = open_dataset(data, transform=lambda batch: batch, **PROCESSES)
    with pytest.raises(TypeError, match=r"functions must be picklable.*transform is not"):
        next(iter(dataset))
    dataset.close()


def test_a_data_set_travels_without_its_threads(data: Any) -> None:
    dataset = open_dataset(data, transform=changed, **THREADS)
    expected = shown(dataset)
    other = pickle.loads(pickle.dumps(dataset))
    other.set_epoch(0)
    assert shown(other) == expected


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"threads": 0}, ValueError, "threads must be >= 1"),
        ({"threads": 1.5}, TypeError, "threads must be an int"),
        ({**THREADS, **PROCESSES}, ValueError, "either threads or processes"),
        ({**THREADS, "transform": None}, ValueError, "needs functions"),
        ({**THREADS, "transform": 5}, TypeError, "must be callable"),
    ],
)
def test_options_that_do_not_fit(data: Any, options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        open_dataset(data, **{"transform": changed} | options)


PROGRAM = """
import os, sys
from tests.functions.test_function_pools import changed, hangs, open_dataset
if __name__ == "__main__":
    dataset = open_dataset(sys.argv[1], transform={function}, {option})
    iterator = iter(dataset)
    {body}
"""


def run_program(data: Any, **parts: str) -> subprocess.Popen[str]:
    program = textwrap.dedent(PROGRAM).format(**{"function": "changed"} | parts)
    return subprocess.Popen(
        [sys.executable, "-c", program, str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


@pytest.mark.long
@pytest.mark.parametrize("option", ["threads=2", pytest.param("processes=2", marks=long)])
@pytest.mark.parametrize(
    "body", ["next(iterator)", "list(iterator)", "next(iterator); sys.exit(3)"]
)
def test_a_program_ends_in_mid_iteration(data: Any, option: str, body: str) -> None:
    process = run_program(data, option=option, body=body)
    _, errors = process.communicate(timeout=SECONDS)
    assert errors == ""
    assert process.returncode == (3 if "exit" in body else 0)


@long
def test_processes_end_with_a_killed_parent(data: Any) -> None:
    body = 'next(iterator); print("begun", flush=True); sys.stdin.read()'
    process = run_program(data, option="processes=2", body=body)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 2
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=SECONDS)
    assert alive == []


def test_a_forked_child_leaves_the_processes_of_its_parent_alone(data: Any) -> None:
    dataset = open_dataset(data, transform=changed, processes=1)
    batches = iter(dataset)
    found = [next(batches)]
    child = os.fork()
    if child == 0:
        del batches
        dataset.close()
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one says that a process ended
        found += batches
    assert len(found) == len(dataset)
