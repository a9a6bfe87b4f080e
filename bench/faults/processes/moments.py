"""Moments at which processes are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from faults.processes.children import Child, fork, wait_for

Tell = Callable[..., None]
Work = Callable[[Tell], None]
HANG_SECONDS = 60.0


@dataclass(frozen=True)
class Moment:
    """When to kill.

    Attributes:
        steps: After each child has told of so many steps.
        seconds: And so long after that; None for never.
        event: Or at this audit event of the child; 0 for none.
    """

    steps: int = 0
    seconds: float | None = None
    event: int = 0


NEVER = Moment()


@dataclass(frozen=True)
class Course:
    """The course of a run that nobody kills: the span from which moments are drawn."""

    seconds: float
    events: int

    def draw(self, draw: random.Random) -> Moment:
        """Return a moment anywhere in it: by an event of Python's, or by time."""
        if draw.random() < 0.5:
            return Moment(event=draw.randint(1, self.events))
        return Moment(seconds=draw.uniform(0, self.seconds))


def run(works: Sequence[Work], moment: Moment, log: Path) -> list[Child]:
    """Run works in forked children until all have ended or were killed at the moment.

    Args:
        works: The work of each child. It gets a function that tells the parent numbers by name.
        moment: When to kill all of them.
        log: The file that their output is appended to.

    Raises:
        RuntimeError: A child hangs.
    """
    children: list[Child] = []
    for work in works:
        child, pipe = fork(log)
        if child is None:
            _work(work, moment.event, pipe)
        children.append(child)
    limit = time.monotonic() + HANG_SECONDS
    kill_at: float | None = None
    while living := [child for child in children if child.code is None]:
        now = time.monotonic()
        if kill_at is None and moment.seconds is not None:
            told = min(child.facts.get("steps", 0) for child in children)
            kill_at = now + moment.seconds if told >= moment.steps else None
        if now >= min(limit, kill_at or limit):
            for child in living:
                os.kill(child.pid, signal.SIGKILL)
        if now >= limit:
            raise RuntimeError(f"a child hangs: {log.read_text(errors='replace')[-2000:]}")
        wait_for(living, max(0.0, min(limit, kill_at or limit) - now))
        for child in living:
            child.look()
    return children


def course_of(work: Work, log: Path) -> Course:
    """Run the work once, and return what it takes."""
    begin = time.monotonic()
    (child,) = run([work], NEVER, log)
    if child.code != 0:
        raise RuntimeError(log.read_text(errors="replace"))
    return Course(time.monotonic() - begin, child.facts["events"])


def _work(work: Work, event: int, pipe: int) -> NoReturn:
    """Be a child that works, and ends at the event if there is one."""
    code, events = 1, 0

    def count(*_: Any) -> None:
        nonlocal events
        events += 1
        if events == event:
            os.kill(os.getpid(), signal.SIGKILL)

    def tell(**facts: int) -> None:
        os.write(pipe, json.dumps(facts).encode() + b"\n")

    try:
        sys.addaudithook(count)
        work(tell)
        tell(events=events)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
