"""Session tokens that end after some requests or some time, for any process that asks."""

from __future__ import annotations

import fcntl
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.servers.faulty_origin import FaultyOrigin, Request

_NAME = "x-amz-security-token"

Answer = tuple[dict[str, Any], float | None]


def issue(ledger: Path, endpoint: str, seconds: float | None) -> Answer:
    """Return options with a new token; its number is one more than the lines of a file."""
    now = time.time()
    with ledger.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("issued\n")
        file.flush()
        number = file.tell() // len("issued\n")
    token = f"token-of-the-tests {number} {now!r}"
    options = {"key": "key", "secret": "secret", "token": token, "endpoint_url": endpoint}
    return options, None if seconds is None else now + seconds


class EndedTokens:
    """Has an origin refuse what has no token, or one that has ended.

    A token ends after `most_requests`, and when a later one is issued; or after `seconds`.
    """

    def __init__(
        self,
        origin: FaultyOrigin,
        ledger: Path,
        *,
        most_requests: int | None = None,
        seconds: float | None = None,
    ) -> None:
        self._ledger, self._lock = ledger, threading.Lock()
        self._most_requests, self._seconds = most_requests, seconds
        self._served: Counter[int] = Counter()
        origin.allows = self._allows
        # Users give it as storage_options=; it pickles.
        self.function: Callable[[], Answer] = partial(issue, ledger, origin.url, seconds)

    @property
    def num_issued(self) -> int:
        """How often the function was called, in all processes."""
        return len(self._ledger.read_text().splitlines()) if self._ledger.exists() else 0

    @property
    def num_used_up(self) -> int:
        """How many tokens have served as many requests as they may."""
        with self._lock:
            return sum(count == self._most_requests for count in self._served.values())

    def _allows(self, request: Request) -> bool:
        query = {name.lower(): value for name, value in request.query.items()}
        signed = query.get(_NAME, request.header(_NAME))
        _, _, rest = signed.partition(" ")
        if not rest:
            return False
        number, issued_at = rest.split()
        if self._seconds is not None:
            return time.time() < float(issued_at) + self._seconds
        with self._lock:
            if int(number) != self.num_issued or self._served[int(number)] == self._most_requests:
                return False
            self._served[int(number)] += 1
            return True
