"""The faults of an origin, and their times: scripted request by request, or drawn from a seed."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

Kind = Literal[
    "none",
    "reset",  # the connection is reset after `at` bytes of the body
    "short",  # it is closed there, in good order
    "stall",  # nothing follows after `at` bytes, until the client hangs up
    "drip",  # pieces of `at` bytes, `seconds` apart
    "status",  # an answer of `status`, with Retry-After if `seconds` are given
    "wrong range",  # Content-Range and body are `at` bytes further on
    "wrong header",  # Content-Range alone is
    "no header",  # 206 without Content-Range
    "whole",  # 200 and all of the object
    "endless",  # a body without a length, and with far more bytes than asked for
    "long length",  # Content-Length is `at` bytes more than the body, which then closes
    "short length",  # Content-Length is `at` bytes less than the body
    "etag",  # another ETag, whatever If-Match says
    "redirect",  # to the same path of the origin `to`
    "expired",  # 403, as S3 answers to a signature that has expired
    "error body",  # 200, with S3's XML of an error as the body
    "garbage",  # bytes that are no HTTP
    "listing without token",  # says that more follows, but not how to ask for it
    "listing that repeats",  # its token leads to the same page again
    "listing cut",  # XML that ends in the middle
]


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong."""

    kind: Kind = "none"
    at: int = 0
    seconds: float | None = None
    status: int = 503
    to: str = ""

    @property
    def name(self) -> str:
        """As counters have it."""
        return f"status {self.status}" if self.kind == "status" else self.kind


NONE = Fault()


def busy(count: int, status: int = 503, retry_after: float | None = None) -> list[Fault]:
    """Return a burst of answers that ask for patience."""
    return [Fault("status", status=status, seconds=retry_after)] * count


# Those that a client must overcome by asking again.
PASSING = (
    Fault("reset", at=0),
    Fault("reset", at=1),
    Fault("reset", at=5_000),
    Fault("short", at=0),
    Fault("short", at=3_000),
    Fault("long length", at=7),
    Fault("status", status=500),
    Fault("status", status=503),
    Fault("status", status=503, seconds=0),
    Fault("status", status=429, seconds=0),
    Fault("status", status=408),
    Fault("garbage"),
)


@dataclass(frozen=True)
class Rule:
    """Faults in the order of the requests that the pattern matches, each for one of them."""

    pattern: str
    faults: Sequence[Fault]
    forever: bool


class Script:
    """Decides about each request. Thread-safe.

    A pattern is of `fnmatch` and is matched with the method, a blank and the decoded path, such as
    `GET /bucket/train/*`. The first rule that matches and is not used up counts; if none does,
    chance decides.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._used: Counter[int] = Counter()
        self._tries: Counter[str] = Counter()
        self._chance: tuple[float, Sequence[Fault], int, int] = (0.0, (), 0, 0)

    def add(self, pattern: str, faults: Iterable[Fault], *, forever: bool = False) -> None:
        """Have the next requests that match fail in this way; the last fault lasts if `forever`."""
        with self._lock:
            self._rules.append(Rule(pattern, tuple(faults), forever))

    def by_chance(
        self,
        probability: float,
        faults: Sequence[Fault] = PASSING,
        *,
        seed: int = 0,
        most_in_a_row: int = 3,
    ) -> None:
        """Draw faults for reads of ranges that no rule decides about, whatever order they have."""
        with self._lock:
            self._chance = (probability, tuple(faults), seed, most_in_a_row)

    def clear(self) -> None:
        """Have everything go well from now on."""
        with self._lock:
            self._rules.clear()
            self._used.clear()
            self._chance = (0.0, (), 0, 0)

    def fault_for(self, subject: str, request: str | None) -> Fault:
        """Return what goes wrong with a request; `request` names a read of a range, for chance."""
        with self._lock:
            for number, rule in enumerate(self._rules):
                if not fnmatchcase(subject, rule.pattern):
                    continue
                used = self._used[number]
                if used < len(rule.faults) or rule.forever:
                    self._used[number] += 1
                    return rule.faults[min(used, len(rule.faults) - 1)]
            return NONE if request is None else self._draw(request)

    def _draw(self, request: str) -> Fault:
        probability, faults, seed, most_in_a_row = self._chance
        if not faults:
            return NONE
        self._tries[request] += 1
        draw = random.Random(f"{seed} {request} {self._tries[request]}")
        in_a_row = self._tries[f"row {request}"]
        if draw.random() >= probability or in_a_row >= most_in_a_row:
            self._tries[f"row {request}"] = 0
            return NONE
        self._tries[f"row {request}"] += 1
        return draw.choice(faults)
