"""The life of an iterator: its threads and files, its end, interrupts, forks, pickles, exit."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

import torchparquet
from tests.fixtures.datasets import opener
from torchparquet import CorruptFileError, ParquetDataset, mix

NUM_ROWS = 40_000
BATCH_SIZE = 1000
NUM_BATCHES = NUM_ROWS // BATCH_SIZE
# Room for few batches of the 40: threads wait for the consumer in the middle of an epoch.
MAX_MEMORY = "150KB"
ENDINGS = (
    *("end", "close iterator", "close dataset", "break", "exception", "forget", "cycle"),
    *("never begun", "data set first"),
)


def write(path: Path, begin: int, end: int, row_group_size: int = 700, nulls: Any = ()) -> None:
    ids = np.arange(begin, end)
    mask = np.isin(ids, nulls)
    table = pa.table({"id": ids, "n": pa.array(ids, mask=mask), "x": (ids % 50).astype(np.float32)})
    pq.write_table(table, path, row_group_size=row_group_size)


@pytest.fixture(scope="module")
def data(tmp_path_factory: Any) -> Any:
    """Three files, 60 row groups, 40,000 rows; `id` is the row number."""
    root = tmp_path_factory.mktemp("lifecycle")
    for number, (begin, end) in enumerate(pairwise([0, 15_000, 26_000, NUM_ROWS])):
        write(root / f"{number}.parquet", begin, end)
    return root


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Two files; a page in the middle of the second one is overwritten."""
    write(tmp_path / "0.parquet", 0, 2000)
    path = tmp_path / "1.parquet"
    write(path, 2000, 4000)
    offset = pq.read_metadata(path).row_group(1).column(0).dictionary_page_offset
    content = bytearray(path.read_bytes())
    content[offset : offset + 40] = b"\xff" * 40
    path.write_bytes(content)
    return tmp_path


open_dataset = opener(batch_size=BATCH_SIZE, num_threads=3, max_memory=MAX_MEMORY)


def ids_of(batches: Any) -> Any:
    return np.concatenate([batch["id"].numpy() for batch in batches]).tolist()


def thread_ids() -> set[int]:
    return {thread.id for thread in psutil.Process().threads()}


def open_paths() -> list[str]:
    return sorted(file.path for file in psutil.Process().open_files())


class Baseline:
    """The threads and open files of this process, as they were when this was made."""

    def __init__(self) -> None:
        gc.collect()
        self._threads = thread_ids()
        self._paths = open_paths()
        self._num_fds = psutil.Process().num_fds()

    def num_new_threads(self) -> int:
        return len(thread_ids() - self._threads)

    def check_threads(self) -> None:
        # The kernel lists a thread for a moment longer than a join of it lasts.
        deadline = time.monotonic() + 2
        while self.num_new_threads() and time.monotonic() < deadline:
            os.sched_yield()
        assert self.num_new_threads() == 0

    def check(self) -> None:
        self.check_threads()
        assert open_paths() == self._paths
        assert psutil.Process().num_fds() <= self._num_fds


def leave(how: str, dataset: ParquetDataset) -> Any:
    """Iterate, end it in that way, and return what a user might still hold."""
    if how == "break":
        for _ in dataset:
            break
        return None
    if how == "exception":
        try:
            for _ in dataset:
                raise ZeroDivisionError
        except ZeroDivisionError:
            return None
    if how == "data set first":
        dataset = pickle.loads(pickle.dumps(dataset))
    iterator = iter(dataset)
    if how == "never begun":
        return None
    if how == "end":
        assert sum(1 for _ in iterator) == NUM_BATCHES
        for _ in range(3):
            assert next(iterator, None) is None
        return iterator
    next(iterator)
    if how == "data set first":
        del dataset
        next(iterator)
    elif how.startswith("close"):
        for _ in range(2):
            (iterator if how == "close iterator" else dataset).close()
        return iterator
    elif how == "cycle":
        iterator.owner = [iterator]  # type: ignore[attr-defined]
    del iterator
    gc.collect()
    return None


# Threads and files


def test_no_thread_before_the_first_next(data: Any) -> None:
    baseline = Baseline()
    dataset = open_dataset(data)
    baseline.check_threads()
    dataset.set_epoch(3)
    assert len(dataset) == NUM_BATCHES
    dataset.get_shard_distribution_info()
    iterator = iter(dataset)
    assert baseline.num_new_threads() == 0
    next(iterator)
    assert baseline.num_new_threads() == 3


@pytest.mark.mostly_long(every=3)
@pytest.mark.parametrize("how", ENDINGS)
def test_no_thread_and_no_open_file_is_left(data: Any, how: str) -> None:
    dataset = open_dataset(data)
    baseline = Baseline()
    held = leave(how, dataset)
    baseline.check()
    del held
    assert ids_of(dataset) == list(range(NUM_ROWS))
    baseline.check()


def test_an_error_leaves_nothing(damaged: Path) -> None:
    dataset = open_dataset(damaged)
    baseline = Baseline()
    with pytest.raises(CorruptFileError):
        list(dataset)
    gc.collect()
    baseline.check()


def test_break_after_every_batch_then_a_new_epoch(data: Any) -> None:
    dataset = open_dataset(data, shuffle=True)
    baseline = Baseline()
    for count in range(NUM_BATCHES + 1):
        dataset.set_epoch(count)
        taken = []
        if count:
            for batch in dataset:
                taken.append(batch)
                if len(taken) == count:
                    break
        dataset.set_epoch(count)
        whole = ids_of(dataset)
        assert sorted(whole) == list(range(NUM_ROWS))
        assert whole[: count * BATCH_SIZE] == (ids_of(taken) if taken else [])
    del batch, taken
    baseline.check()


# After the end


@pytest.mark.parametrize("num_taken", [0, 1, NUM_BATCHES])
def test_next_after_close_raises(data: Any, num_taken: Any) -> None:
    iterator = iter(open_dataset(data))
    for _ in range(num_taken):
        next(iterator)
    iterator.close()
    assert iterator.closed
    for _ in range(3):
        with pytest.raises(RuntimeError, match="closed"):
            next(iterator)


@pytest.mark.parametrize("shuffle", [False, True])
def test_an_error_comes_at_its_place_and_again(damaged: Path, shuffle: bool) -> None:
    options = {"batch_size": 100, "shuffle": shuffle, "shuffle_window": 2 if shuffle else None}
    outcomes = set()
    for num_threads in (1, 3, 3, 3):
        dataset = open_dataset(damaged, **options, num_threads=num_threads)
        iterator, texts = iter(dataset), set()
        batches: list[Any] = []
        with pytest.raises(CorruptFileError):
            batches.extend(iterator)
        for _ in range(3):
            with pytest.raises(CorruptFileError) as caught:
                next(iterator)
            texts.add(str(caught.value))
        iterator.close()
        # The row group that is damaged begins at row 2700.
        assert shuffle or ids_of(batches) == list(range(2700))
        outcomes.add((str(ids_of(batches)), *texts))
    ((_, text),) = outcomes
    assert str(damaged / "1.parquet") in text


def test_a_data_set_is_usable_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, 0, 2000)
    dataset = open_dataset(tmp_path, batch_size=100)
    hidden = path.rename(tmp_path / "_hidden")
    with pytest.raises(FileNotFoundError, match=r"a\.parquet"):
        list(dataset)
    hidden.rename(path)
    assert ids_of(dataset) == list(range(2000))


def test_close_from_another_thread_ends_next(data: Any) -> None:
    dataset = open_dataset(data)
    outcomes: list[Any] = []
    stopping = threading.Event()

    def consume() -> None:
        while not stopping.is_set():
            iterator = iter(dataset)
            iterators.append(iterator)
            try:
                outcomes.append(sum(1 for _ in iterator))
            except RuntimeError as error:
                outcomes.append(str(error))

    baseline = Baseline()
    iterators: list[Any] = []
    consumer = threading.Thread(target=consume)
    consumer.start()
    closed = 0
    while closed < 50:
        if iterators:
            iterators.pop().close()
            closed += 1
    stopping.set()
    consumer.join(20)
    assert not consumer.is_alive()
    assert all("closed" in outcome for outcome in outcomes if isinstance(outcome, str))
    iterators.clear()
    baseline.check()


FRESH = """
    import os, pickle, signal, sys, torch, pyarrow.parquet, torchparquet

    def construct():
        return torchparquet.ParquetDataset(sys.argv[1], batch_size=1000, num_threads=2)

    def in_child(name, call):
        child = os.fork()
        if child == 0:
            signal.alarm(5)
            call()
            os._exit(0)
        print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    before = len(os.listdir("/proc/self/task"))
    dataset = construct()
    twin = pickle.loads(pickle.dumps(dataset))
    iterator = iter(dataset)
    print("threads", len(os.listdir("/proc/self/task")) - before)
    in_child("iterate", lambda: list(dataset))
    in_child("construct", construct)
    in_child("unpickle", lambda: pickle.loads(pickle.dumps(dataset)))
    in_child("compute", lambda: torch.ones(1_000_000).sum())
"""


@pytest.mark.long
def test_a_data_set_does_not_make_torch_start_threads(data: Any) -> None:
    """They would not survive a fork, and torch waits for them for ever in the child."""
    output, errors = start_program(FRESH, data).communicate(timeout=60)
    names = ("threads", "iterate", "construct", "unpickle", "compute")
    assert output.splitlines() == [f"{name} 0" for name in names], errors


# Signals


def test_signals_change_nothing(data: Any) -> None:
    fired = []
    previous = signal.signal(signal.SIGALRM, lambda *_: fired.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        for _ in range(5):
            assert ids_of(open_dataset(data)) == list(range(NUM_ROWS))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert len(fired) > 10


INTERRUPTED = """
    import sys, time
    from torchparquet import ParquetDataset
    dataset = ParquetDataset(sys.argv[1], batch_size=100, num_threads=2, max_memory="50KB")
    for _ in range(int(sys.argv[2])):
        try:
            print("ready", flush=True)
            while True:
                for batch in dataset:
                    pass
        except KeyboardInterrupt:
            print(time.monotonic(), flush=True)
    print("ready", flush=True)
    while True:
        for batch in dataset:
            pass
"""


def start_program(
    text: str, *arguments: object, before: tuple[str, ...] = ()
) -> subprocess.Popen[Any]:
    command = [*before, sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_interrupt_of_a_loop(data: Any) -> None:
    program = start_program(INTERRUPTED, data, 5)
    try:
        for number in range(6):
            assert program.stdout.readline() == "ready\n"  # type: ignore[union-attr]
            sent = time.monotonic()
            program.send_signal(signal.SIGINT)
            if number < 5:
                assert float(program.stdout.readline()) - sent < 1  # type: ignore[union-attr]
        _, errors = program.communicate(timeout=10)
    finally:
        program.kill()
    assert program.returncode == -signal.SIGINT, errors
    assert errors.rstrip().endswith("KeyboardInterrupt")


BLOCKED = """
    import os, pickle, sys, time
    with open(sys.argv[1], "rb") as file:
        dataset = pickle.load(file)
    print(os.getpid(), len(os.listdir("/proc/self/task")), flush=True)
    is_blocked = False
    try:
        READ
    except KeyboardInterrupt:
        is_blocked = True  # the exception ends here, and with it the last frame of the loop
    print(time.monotonic() if is_blocked else "not blocked", flush=True)
    raise KeyboardInterrupt
"""
DELAY_SECONDS = 3
# The iterator of a loop ends with it, and its threads are in a read.
READS = {"kept": "iterator = iter(dataset); next(iterator)", "loop": "list(dataset)"}


@pytest.mark.long
@pytest.mark.parametrize("how", READS)
def test_interrupt_of_a_blocked_next(tmp_path: Path, strace: str, how: str) -> None:
    path = tmp_path / "a.parquet"
    write(path, 0, 20_000)
    log = tmp_path / "strace.log"
    # The footer was read here, and the reader's first read is of it again.
    pickled = tmp_path / "dataset"
    pickled.write_bytes(pickle.dumps(ParquetDataset(path, batch_size=100, num_threads=2)))
    delay = f"inject=pread64:delay_enter={DELAY_SECONDS}s:when=2+"
    tracer = (strace, "-f", "--seccomp-bpf", "-qq", "-o", str(log), "-P", str(path))
    blocked = BLOCKED.replace("READ", READS[how])
    program = start_program(blocked, pickled, before=(*tracer, "-e", "trace=pread64", "-e", delay))
    try:
        pid, idle = map(int, program.stdout.readline().split())  # type: ignore[union-attr]
        reader = psutil.Process(pid)
        while reader.num_threads() == idle:
            os.sched_yield()
        sent = time.monotonic()
        reader.send_signal(signal.SIGINT)
        caught = program.stdout.readline()  # type: ignore[union-attr]
        _, errors = program.communicate(timeout=DELAY_SECONDS * 4)
    finally:
        program.kill()
    assert "DELAYED" in log.read_text()
    assert float(caught) - sent < 1, (caught, errors)
    assert program.returncode == -signal.SIGINT, errors


# Interpreter exit

# Imports once; every program runs in forks of that process, taken before it has a thread, and
# each ends its interpreter in the regular way.
EXITS = """
    import atexit, gc, json, os, signal, sys, threading
    early_hooks = []
    atexit.register(lambda: [hook() for hook in early_hooks])
    import torchparquet

    def dataset(**options):
        options = dict(batch_size=100, num_threads=3, max_memory="60KB") | options
        return torchparquet.ParquetDataset(DATA, **options)

    def fork_some(program, name):
        children = []
        for number in range(REPEATS):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                log = os.open(f"{OUT}/{name}.{number}", os.O_WRONLY | os.O_CREAT)
                os.dup2(log, 1)
                os.dup2(log, 2)
                return program
            children.append(child)
        statuses = [os.waitpid(child, 0)[1] for child in children]
        codes[name] = [os.waitstatus_to_exitcode(status) for status in statuses]

    DATA, OUT, REPEATS = sys.argv[1], sys.argv[2], int(sys.argv[3])
    codes = {}
    gc.freeze()  # the modules' objects: going over them again would take half of an exit
    for name, (_, text) in json.load(sys.stdin).items():
        mine = fork_some(text, name)
        if mine is not None:
            break
    else:
        with open(f"{OUT}/codes.json", "w") as file:
            json.dump(codes, file)
        mine = ""
    exec(mine, globals())
"""
BEGIN_LATE = "d = dataset()\ndef hook():\n  global it\n  it = iter(d); next(it)\n"
EXIT_PROGRAMS = {
    "nothing iterated": (0, "d = dataset()"),
    "iterator never used": (0, "it = iter(dataset())"),
    "iterator global": (0, "it = iter(dataset()); next(it)"),
    "iterator and batches global": (0, "it = iter(dataset()); b = [next(it) for _ in range(3)]"),
    "threads still decoding": (0, "it = iter(dataset(max_memory='1GiB', batch_size=7)); next(it)"),
    "in a frame": (0, "def f():\n  for b in dataset(): sys.exit()\nf()"),
    "sys.exit in the loop": (3, "for b in dataset(): sys.exit(3)"),
    "exception in the loop": (1, "for b in dataset(): raise ValueError('mine')"),
    "os._exit in the loop": (7, "for b in dataset(): os._exit(7)"),
    "after break": (0, "for b in dataset(): break"),
    "after the end": (0, "for b in dataset(): pass"),
    "after close": (0, "d = dataset(); it = iter(d); next(it); d.close()"),
    "reference cycle": (0, "gc.disable(); it = iter(dataset()); next(it); it.me = it; del it"),
    "suspended generator": (0, "def g():\n  for b in dataset(): yield b\ng = g(); next(g)"),
    "many iterators": (0, "its = [iter(dataset()) for _ in range(8)]; [next(i) for i in its]"),
    "other thread iterates on": (
        *(0, "threading.Thread(target=lambda: print(sum(1 for _ in dataset()))).start()"),
    ),
    # Keeps its tensors: torch ends the program itself when a daemon thread computes, or frees
    # a tensor, at exit.
    "daemon thread in the loop": (
        0,
        "d = dataset(); began = threading.Event(); kept = []\n"
        "def run():\n"
        "  while True:\n"
        "    for b in d: kept.append(b); began.set()\n"
        "threading.Thread(target=run, daemon=True).start(); began.wait()",
    ),
    "begun by an exit hook": (0, f"{BEGIN_LATE}atexit.register(hook)"),
    "begun by the last exit hook": (0, f"{BEGIN_LATE}early_hooks.append(hook)"),
    "SIGTERM in the loop": (
        *(-signal.SIGTERM, "for b in dataset(): os.kill(os.getpid(), signal.SIGTERM)"),
    ),
    "forked in the loop": (
        0,
        "it = iter(dataset()); next(it)\n"
        "if child := os.fork(): sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))",
    ),
}


@pytest.fixture(scope="module", params=[1, pytest.param(12, marks=pytest.mark.soak)])
def exits(data: Any, tmp_path_factory: Any, request: Any) -> dict[str, list[tuple[int, str]]]:
    """Exit code and output of every repeat of every program; the repeats run side by side."""
    out = tmp_path_factory.mktemp("exits")
    # Python 3.12 and later warn of forks beside threads.
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c"]
    subprocess.run(
        [*command, textwrap.dedent(EXITS), str(data), str(out), str(request.param)],
        input=json.dumps(EXIT_PROGRAMS),
        text=True,
        check=True,
        timeout=60 * request.param,
    )
    return {
        name: [(code, (out / f"{name}.{i}").read_text()) for i, code in enumerate(codes)]
        for name, codes in json.loads((out / "codes.json").read_text()).items()
    }


@pytest.mark.long
@pytest.mark.parametrize("name", EXIT_PROGRAMS)
def test_interpreter_exit(exits: dict[str, list[tuple[int, str]]], name: str) -> None:
    expected, _ = EXIT_PROGRAMS[name]
    assert {code for code, _ in exits[name]} == {expected}, exits[name]
    for _, output in exits[name]:
        if name == "exception in the loop":
            assert output.endswith("\nValueError: mine\n")
        elif name == "other thread iterates on":
            assert output == "400\n"
        elif name.startswith("daemon thread"):
            # The loop may or may not get to hear that its iterator was closed.
            assert "Fatal" not in output
            assert "terminate" not in output
        else:
            assert output == ""


# Fork


def in_fork(call: Any) -> object:
    """Run `call` in a forked child and return what it returns; a child that hangs is killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        try:
            outcome = call()
        except BaseException:  # goes to the parent, which shows it
            outcome = traceback.format_exc()
        os.write(writing, pickle.dumps(outcome))
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:  # noqa: PTH123
        outcome = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return pickle.loads(outcome)


def use_inherited(iterator: Any) -> list[str]:
    """Try all that an iterator of another process offers; return the errors' texts."""
    texts = []
    for number in range(3):
        if number == 2:
            iterator.close()
        with pytest.raises(RuntimeError) as caught:
            next(iterator)
        texts.append(str(caught.value))
    return texts


@pytest.mark.parametrize("num_taken", [0, 1])
def test_an_inherited_iterator_raises(data: Any, num_taken: int) -> None:
    iterator = iter(open_dataset(data))
    batches = [next(iterator) for _ in range(num_taken)]
    texts: Any = in_fork(lambda: use_inherited(iterator))
    assert all("another process" in text for text in texts)
    batches.extend(iterator)
    assert ids_of(batches) == list(range(NUM_ROWS))


@pytest.mark.parametrize("state", ["constructed", "under way", "ended", "closed"])
def test_a_child_begins_its_own_iteration(data: Any, state: str) -> None:
    dataset = open_dataset(data, shuffle=True)
    expected = [ids_of(dataset), ids_of(dataset)]
    dataset.set_epoch(0)
    iterator = iter(dataset)
    batches = []
    if state != "constructed":
        batches += [next(iterator), next(iterator)]  # one would be a look
    if state == "ended":
        batches.extend(iterator)
    if state == "closed":
        dataset.close()

    def iterate() -> Any:
        own = ids_of(dataset)
        dataset.set_epoch(0)
        again = ids_of(dataset)
        dataset.close()
        return own, again, ids_of(batches) if batches else []

    own, again, seen = in_fork(iterate)  # type: ignore[misc]
    # An iterator that was never used has begun no epoch.
    assert own == expected[0 if state == "constructed" else 1]  # type: ignore[has-type]
    assert again == expected[0]  # type: ignore[has-type]
    assert seen == expected[0][: len(seen)]  # type: ignore[has-type]
    if state != "closed":
        batches.extend(iterator)
        assert ids_of(batches) == expected[0]


@pytest.mark.long
def test_forks_while_threads_are_busy(data: Any) -> None:
    dataset = open_dataset(data, batch_size=50)
    epochs, iterators = [], []  # type: ignore[var-annotated]
    began, stopping = threading.Event(), threading.Event()

    def consume() -> None:
        while not stopping.is_set():
            iterators[:] = [iter(dataset)]
            began.set()
            epochs.append(ids_of(iterators[0]))

    def use_both() -> Any:
        # Between two epochs it has ended, here as there.
        if not iterators[0].closed:
            assert all("another process" in text for text in use_inherited(iterators[0]))
        return ids_of(dataset)

    consumer = threading.Thread(target=consume)
    consumer.start()
    began.wait()
    try:
        for _ in range(20):
            assert in_fork(use_both) == list(range(NUM_ROWS))
            subprocess.run(["true"], check=True)
    finally:
        stopping.set()
        consumer.join(20)
    assert epochs
    assert all(ids == list(range(NUM_ROWS)) for ids in epochs)


# Pickles

COPIES = {
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "old pickle": lambda value: pickle.loads(pickle.dumps(value, protocol=2)),
    "deepcopy": copy.deepcopy,
    "cloudpickle": lambda value: pickle.loads(pytest.importorskip("cloudpickle").dumps(value)),
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("state", ["constructed", "under way", "ended", "closed"])
def test_a_copy_goes_on_from_the_same_epoch(data: Any, how: str, state: str) -> None:
    dataset = open_dataset(data, shuffle=True, row_ids=True)
    expected = [ids_of(dataset) for _ in range(2)]
    dataset.set_epoch(0)
    if state != "constructed":
        iterator = iter(dataset)
        for _ in range(NUM_BATCHES if state == "ended" else 2):
            next(iterator)
    if state == "closed":
        dataset.close()
    baseline = Baseline()
    twin = COPIES[how](dataset)  # type: ignore[no-untyped-call]
    baseline.check_threads()
    first = 0 if state == "constructed" else 1
    assert twin.epoch == first
    assert twin.manifest.fingerprint == dataset.manifest.fingerprint
    assert ids_of(twin) == expected[first]
    # The copy's epochs are its own.
    assert ids_of(dataset) == expected[first]


@pytest.mark.parametrize("how", COPIES)
def test_an_iterator_has_no_copy(data: Any, how: str) -> None:
    with pytest.raises(TypeError, match="pickle"):
        COPIES[how](iter(open_dataset(data)))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("kind", ["data set", "rows", "mix"])
def test_a_pickle_of_another_version_says_so(data: Any, kind: str) -> None:
    dataset: Any = open_dataset(data)
    if kind == "mix":
        dataset = mix([dataset])
    elif kind == "rows":
        dataset = dataset.unbatched()
    own = torchparquet.__version__
    other = f"{'8' if own[0] == '9' else '9'}{own[1:]}"
    content = pickle.dumps(dataset).replace(own.encode(), other.encode())
    with pytest.raises(RuntimeError, match=f"torchparquet {re.escape(other)} pickled .* anew"):
        pickle.loads(content)


def test_a_copy_keeps_its_data_parallel_rank(data: Any) -> None:
    """Rank 2 of 4 is data-parallel rank 1 of 2, in a copy too; a pickled one says it cannot be."""
    dist.init_process_group("fake", store=FakeStore(), rank=2, world_size=4)
    try:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        dataset = open_dataset(data, ranks=mesh)
        topology = dataset.topology()
        assert (topology.rank, topology.world_size) == (1, 2)
        assert copy.copy(dataset).topology() == topology
        assert copy.deepcopy(dataset).topology() == topology
        with pytest.raises(ValueError, match="do not travel"):
            COPIES["pickle"](dataset).topology()  # type: ignore[no-untyped-call]
    finally:
        dist.destroy_process_group()
