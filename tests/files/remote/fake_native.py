"""A queue in Python in place of the native store's, so that tests ask a broker one by one."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field
from typing import Any

from torchparquet.errors import CorruptFileError

WAIT_SECONDS = 60


@dataclass(eq=False)
class FakeRequest:
    """A request, and the answer to it."""

    kind: str
    file: int
    refused: bool = False
    offset: int = 0
    num_bytes: int = 0
    answer: Any = None
    answered: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> Any:
        assert self.answered.wait(WAIT_SECONDS), "the broker did not answer"
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class FakeRemoteStore:
    """Has the methods of `torchparquet._impl.native.RemoteStore`."""

    def __init__(self) -> None:
        self.closed = False
        self._requests: queue.Queue[FakeRequest | None] = queue.Queue()

    def next_request(self) -> FakeRequest | None:
        request = self._requests.get()
        if request is None:
            self._requests.put(None)
        return request

    def give_bytes(self, request: FakeRequest, content: Any) -> None:
        assert request.kind == "bytes"
        assert len(content) == request.num_bytes
        request.answer = bytes(content)
        request.answered.set()

    def fail(self, request: FakeRequest, kind: str, message: str) -> None:
        errors = {"not_found": FileNotFoundError, "changed": CorruptFileError, "io": OSError}
        request.answer = errors[kind](message)
        request.answered.set()

    def close(self) -> None:
        self.closed = True
        self._requests.put(None)

    def stats(self) -> dict[str, int]:
        return {}

    def ask(self, **request: Any) -> Any:
        """Put a request and wait for its answer."""
        made = FakeRequest(**request)
        self._requests.put(made)
        return made.wait()

    def read(self, file: int, offset: int, num_bytes: int) -> bytes:
        return bytes(self.ask(kind="bytes", file=file, offset=offset, num_bytes=num_bytes))
