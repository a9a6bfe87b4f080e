"""Runs cases in forked children with limits of time and memory, and counts what came of them."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from faults.injection import shim

TIME_LIMIT_SECONDS = 20
_MEMORY_LIMIT_BYTES = 1 << 30
_POLL_SECONDS = 0.001
_MAX_DETAIL = 600
_PR_SET_PDEATHSIG = 1
CRASH, HANG, WRONG = "crash", "hang", "wrong"


class Case(NamedTuple):
    """One fault at one place.

    Attributes:
        fault: The row of the table.
        name: Tells it from the other cases of the row.
        run: Runs in the child; returns the outcome, and raises if a promise is broken.
        during: Runs in the parent once the fault has fired, with the child's process number.
        counts_itself: True if `run` returns the outcome and how often the fault fired, as
            "OUTCOME|COUNT".
        memory_limit: Bytes beyond what the child has at first.
        seconds: The time that it may take.
    """

    fault: str
    name: str
    run: Callable[[], str]
    during: Callable[[int], None] | None = None
    counts_itself: bool = False
    memory_limit: int | None = _MEMORY_LIMIT_BYTES
    seconds: int = TIME_LIMIT_SECONDS


class Result(NamedTuple):
    """The outcome of a case; `is_finding` is True if a promise was broken."""

    case: Case
    label: str
    fired: int
    detail: str = ""

    @property
    def is_finding(self) -> bool:
        """True if the process crashed or hung, or rows or an error were wrong."""
        return self.label in (CRASH, HANG, WRONG)


def run_case(case: Case, folder: Path) -> Result:
    """Run a case in a child of its own."""
    shim.forget()
    read_end, write_end = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        _child(case, folder, write_end)
    os.close(write_end)
    told = _told(case, child, read_end)
    os.close(read_end)
    if told is None:
        os.kill(child, signal.SIGABRT)  # which tells where it hangs
    _, status = os.waitpid(child, 0)
    fired = shim.fired()
    said = _said(folder)
    if told is None:
        return Result(case, HANG, fired, said)
    if not told or status != 0:
        return Result(case, CRASH, fired, f"wait status {status}: {said}")
    answer = json.loads(told)
    label = answer["label"]
    if case.counts_itself and label != WRONG:
        label, _, text = label.partition("|")
        fired = int(text)
    return Result(case, label, fired, answer["detail"])


def _said(folder: Path) -> str:
    """Return what the child wrote about its end, without the list of its libraries."""
    errors = folder / "stderr"
    if not errors.exists():
        return ""
    said, *_ = errors.read_text(errors="replace").split("\nExtension modules:")
    return said[:_MAX_DETAIL]


def _told(case: Case, child: int, pipe: int) -> bytes | None:
    """Return what the child says before its end; None if it takes too long."""
    told, is_due = b"", case.during is not None
    # Turn by turn: while all of us are stopped, time goes on and no child can write.
    num_turns, seconds = case.seconds, 1.0
    if is_due:
        num_turns, seconds = int(case.seconds / _POLL_SECONDS), _POLL_SECONDS
    for _ in range(num_turns):
        if is_due and shim.fired() > 0:
            is_due = False
            assert case.during is not None
            case.during(child)
        if not select.select([pipe], [], [], seconds)[0]:
            continue
        some = os.read(pipe, 65536)
        if not some:
            return told
        told += some
    return None


def _child(case: Case, folder: Path, pipe: int) -> None:
    """Run the case and tell the pipe what came of it; never returns."""
    status = 1
    try:
        # A child that is stuck must not outlive a run that is killed.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        errors = os.open(folder / "stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(errors, 2)
        os.close(errors)
        faulthandler.enable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if case.memory_limit is not None:
            limit = _data_bytes() + case.memory_limit
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        try:
            answer = {"label": case.run(), "detail": ""}
        except Exception as error:
            shim.disarm()
            traceback.print_exc()
            detail = f"{type(error).__name__}: {error}"[:_MAX_DETAIL]
            answer = {"label": WRONG, "detail": detail}
        os.write(pipe, json.dumps(answer).encode())
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _data_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the system does not say how much memory is in use")


def in_child(work: Callable[[], None]) -> None:
    """Do work that may leave threads, in a process that ends."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    if os.waitpid(child, 0)[1] != 0:
        raise RuntimeError("files could not be written")


class Table:
    """Counts of outcomes for each fault."""

    def __init__(self) -> None:
        """Begin without a row."""
        self._cases: Counter[str] = Counter()
        self._fired: Counter[str] = Counter()
        self._unstruck: Counter[str] = Counter()
        self._labels: dict[str, Counter[str]] = {}

    def run(self, cases: Iterable[Case], folder: Path) -> None:
        """Run cases, and print findings as they come."""
        # Children collect garbage several times, and would look at all that is loaded.
        gc.collect()
        gc.freeze()
        for case in cases:
            result = run_case(case, folder)
            self._cases[case.fault] += 1
            self._fired[case.fault] += result.fired
            self._unstruck[case.fault] += result.fired == 0
            self._labels.setdefault(case.fault, Counter())[result.label] += 1
            if result.is_finding:
                print(f"{case.fault}: {case.name}: {result.label}: {result.detail}", flush=True)

    @property
    def has_failed(self) -> bool:
        """True if a promise was broken, or a fault never fired."""
        broken = (counts[label] for counts in self._labels.values() for label in _FINDINGS)
        return any(broken) or any(self._fired[fault] == 0 for fault in self._cases)

    def print(self) -> None:
        """Print it as Markdown."""
        print("| fault | cases | fired | not struck | outcomes | crashes | hangs | wrong |")
        print("|---|--:|--:|--:|---|--:|--:|--:|")
        for fault, num_cases in self._cases.items():
            counts = self._labels[fault]
            fine = sorted((label, count) for label, count in counts.items())
            shown = ", ".join(f"{c} {label}" for label, c in fine if label not in _FINDINGS)
            ends = " | ".join(str(counts[label]) for label in _FINDINGS)
            numbers = f"{num_cases} | {self._fired[fault]} | {self._unstruck[fault]}"
            print(f"| {fault} | {numbers} | {shown} | {ends} |")


_FINDINGS = (CRASH, HANG, WRONG)


def seconds_since(begin: float) -> str:
    """Return a time span as text."""
    return f"{time.perf_counter() - begin:.0f} s"
