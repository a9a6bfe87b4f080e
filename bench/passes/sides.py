"""The sides of a comparison, each in a process of its own, that take turns.

In one process the sides would pay for each other's memory: an allocator gives back what one pass
left behind during the pass of another. Between processes goes one JSON object a line, or a pickled
object where the process was forked.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Timer
from typing import Any, Literal, Protocol

from passes.consumption import PassTotals

Work = Callable[[], PassTotals]
# "same rows" in any order: the numbers of rows and bytes, but no sums, which depend on it.
Content = Literal["same", "same rows", "same in each", "unchecked"]


class ContentError(RuntimeError):
    """Two sides delivered different data."""


class SideError(RuntimeError):
    """The process of a side ended before it was told to."""


@dataclass(frozen=True)
class Pass:
    """One timed pass.

    Attributes:
        seconds: From the first call to the last byte read.
        cpu_seconds: Of all threads of the process.
        totals: The totals delivered.
    """

    seconds: float
    cpu_seconds: float
    totals: PassTotals

    @property
    def rows_per_second(self) -> float:
        """Of this pass."""
        return self.totals.num_rows / self.seconds

    @property
    def gb_per_second(self) -> float:
        """Of all tensors, in 1e9 bytes."""
        return self.totals.num_bytes / 1e9 / self.seconds


class Side(Protocol):
    """A side that takes turns with others."""

    name: str

    def timed_pass(self) -> Pass:
        """Runs an untimed pass and then a timed one."""

    def close(self) -> None:
        """Ends its process."""


def timed(work: Work) -> Pass:
    """Times one call of ``work``."""
    gc.collect()
    cpu_begin, begin = time.process_time(), time.perf_counter()
    totals = work()
    seconds = time.perf_counter() - begin
    return Pass(seconds, time.process_time() - cpu_begin, totals)


class ForkedSide:
    """Runs closures on demand in a fork of this process, which must have read no data yet."""

    def __init__(
        self,
        name: str,
        work: Work,
        others: Mapping[str, Callable[[], Any]] | None = None,
        cpus: Collection[int] | None = None,
    ) -> None:
        """Starts the process.

        Args:
            name: Unique among the sides.
            work: A pass; what it makes and keeps lives in the process from pass to pass.
            others: Further functions that ``ask`` may call, by name.
            cpus: The process keeps to these cores.
        """
        self.name = name
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        works = {**(others or {}), "warm": work, "pass": lambda: timed(work)}
        self._process = context.Process(target=_serve, args=(theirs, works, cpus), daemon=True)
        self._process.start()
        theirs.close()

    def begin(self, what: str) -> None:
        """Has the process call what ``name`` stands for, and does not wait."""
        self._pipe.send(what)

    def result(self) -> Any:
        """Waits for what was begun; raises what it raised."""
        try:
            answer = self._pipe.recv()
        except EOFError as error:
            raise SideError(f"the process of {self.name!r} ended") from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ask(self, what: str) -> Any:
        """Begins and waits."""
        self.begin(what)
        return self.result()

    def timed_pass(self) -> Any:
        """Runs an untimed pass and then a timed one."""
        self.ask("warm")
        return self.ask("pass")

    def close(self) -> None:
        """Ends the process."""
        with suppress(BrokenPipeError):  # it may have ended itself
            self._pipe.send("end")
        self._process.join()


def _serve(
    pipe: Connection, works: Mapping[str, Callable[[], Any]], cpus: Collection[int] | None
) -> None:
    if cpus:
        os.sched_setaffinity(0, cpus)
    while (what := pipe.recv()) != "end":
        try:
            pipe.send(works[what]())
        except Exception as error:
            pipe.send(error)


class Gang:
    """Several forked sides that run their passes at once, as ranks on one machine do."""

    def __init__(self, name: str, members: Sequence[ForkedSide]) -> None:
        """Takes over ``members``."""
        self.name = name
        self._members = members

    def timed_pass(self) -> Pass:
        """Runs an untimed pass of all, then a timed one; it lasts until the last has ended."""
        passes = {}
        for what in ("warm", "pass"):
            for member in self._members:
                member.begin(what)
            passes[what] = [member.result() for member in self._members]
        ended: list[Pass] = passes["pass"]
        return Pass(
            max(one.seconds for one in ended),
            sum(one.cpu_seconds for one in ended),
            PassTotals(
                sum(one.totals.num_rows for one in ended),
                sum(one.totals.num_bytes for one in ended),
            ),
        )

    def close(self) -> None:
        """Ends all processes."""
        for member in self._members:
            member.close()


class CommandSide:
    """A program that answers each line it reads with a pass as JSON, as ``answer_lines`` does."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path | None = None,
        limit_seconds: float = 600,
    ) -> None:
        """Starts the program.

        Args:
            name: Unique among the sides.
            command: The program and its arguments.
            log: A file for its standard error; None for that of this process.
            limit_seconds: When it has not answered by then, it is killed.
        """
        self.name = name
        self._limit_seconds = limit_seconds
        self._log = log
        with log.open("w") if log else nullcontext() as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def _ask(self) -> Pass:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watch = Timer(self._limit_seconds, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write("pass\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watch.cancel()
        if not line:
            said = self._log.read_text().split("\n") if self._log else []
            last = next(filter(None, reversed(said)), f"exit status {self._process.wait()}")
            raise SideError(f"the process of {self.name!r} ended: {last}")
        answer = json.loads(line)
        return Pass(**answer | {"totals": PassTotals(**answer["totals"])})

    def timed_pass(self) -> Pass:
        """Runs an untimed pass and then a timed one."""
        self._ask()
        return self._ask()

    def close(self) -> None:
        """Ends the program."""
        with suppress(BrokenPipeError):
            self._process.communicate()
        self._process.wait()


def answer_lines(make: Callable[[], Work]) -> None:
    """Answers each line of standard input with a timed pass on standard output, as JSON.

    Args:
        make: Returns the pass. All that it and the pass print goes to standard error.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    work = make()
    for _ in sys.stdin:
        print(json.dumps(asdict(timed(work))), file=answers, flush=True)


def _check_equal(name: str, totals: PassTotals, first: PassTotals) -> None:
    if not (totals.column_sums and first.column_sums):
        totals, first = replace(totals, column_sums={}), replace(first, column_sums={})
    if totals != first:
        raise ContentError(f"{name}: {totals} differ from those of another pass: {first}")


def take_turns(
    sides: Sequence[Side], repeats: int, *, content: Content = "same"
) -> dict[str, list[Pass]]:
    """Times ``repeats`` rounds in which all sides take turns, and ends their processes.

    Args:
        sides: Another one begins each round, so that none always follows the same one.
        repeats: Rounds.
        content: True if all must deliver the same rows and bytes, in one order or in any, or each
            the same in each pass.

    Returns:
        The passes of each side, by its name.

    Raises:
        ContentError: Totals of a pass differ.
    """
    passes: dict[str, list[Pass]] = {side.name: [] for side in sides}
    try:
        for repeat in range(repeats):
            begin = repeat % len(sides)
            for side in (*sides[begin:], *sides[:begin]):
                passes[side.name].append(side.timed_pass())
    finally:
        for side in sides:
            side.close()
    if content == "unchecked":
        return passes
    first = passes[sides[0].name][0].totals
    for name, those in passes.items():
        for one in those:
            other = those[0].totals if content == "same in each" else first
            if content == "same rows":
                other = replace(other, column_sums={})
            _check_equal(name, one.totals, other)
    return passes
