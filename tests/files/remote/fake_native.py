"""A stand-in for the native store: a queue in Python that reads whole files by way of a broker.

It lets the Python side be tested by itself. Footers and batches are real: the native reader gets
the bytes that came as files in memory.
"""

from __future__ import annotations

import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from torchparquet import native
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
    """Has the methods of `torchparquet.native.RemoteStore`."""

    made: list[FakeRemoteStore] = []  # noqa: RUF012

    def __init__(
        self, *, paths: list[str], num_bytes: Any, etags: list[str], with_addresses: bool
    ) -> None:
        assert len(paths) == len(num_bytes) == len(etags)
        assert num_bytes.dtype == np.int64
        self.paths = paths
        self.num_bytes = num_bytes
        self.etags = etags
        self.with_addresses = with_addresses
        self.closed = False
        self._requests: queue.Queue[FakeRequest | None] = queue.Queue()
        self.made.append(self)

    def next_request(self) -> FakeRequest | None:
        request = self._requests.get()
        if request is None:
            self._requests.put(None)
        return request

    def give_address(
        self, request: FakeRequest, url: str, headers: list[str], expires_at: float
    ) -> None:
        assert request.kind == "address"
        request.answer = (url, headers, expires_at)
        request.answered.set()

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
        if not self.with_addresses:
            return bytes(self.ask(kind="bytes", file=file, offset=offset, num_bytes=num_bytes))
        url, headers, _ = self.ask(kind="address", file=file)
        request = urllib.request.Request(url)
        for header in headers:
            request.add_header(*header.split(": ", 1))
        request.add_header("Range", f"bytes={offset}-{offset + num_bytes - 1}")
        if self.etags[file]:
            request.add_header("If-Match", self.etags[file])
        try:
            with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as response:
                return bytes(response.read())
        except urllib.error.HTTPError as error:
            kinds = {404: FileNotFoundError, 412: CorruptFileError}
            raise kinds.get(error.code, OSError)(self.paths[file], error.code) from None

    def contents(self) -> list[pa.Buffer]:
        """Return all files, each in two ranges."""
        made = []
        for file, size in enumerate(self.num_bytes.tolist()):
            half = size // 2
            first = self.read(file, 0, half) if half else b""
            made.append(pa.py_buffer(first + self.read(file, half, size - half)))
        return made


def _read_footers(
    paths: Sequence[str],
    threads: int,
    contents: Any,
    *rest: Any,
    remote: Any = None,
    **options: Any,
) -> Any:
    if remote is None:
        return _REAL_FOOTERS(paths, threads, contents, *rest, **options)
    return _REAL_FOOTERS(paths, threads, remote.contents(), *rest, **options)


def _data_files(*, remote: Any = None, **options: Any) -> Any:
    if remote is not None:
        options["contents"] = remote.contents()
    return _REAL_FILES(**options)


_REAL_FOOTERS: Any = native.read_footers
_REAL_FILES: Any = native.DataFiles


@contextmanager
def installed() -> Iterator[None]:
    """Put the stand-in in the place of the native store."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "RemoteStore", FakeRemoteStore, raising=False)
        patch.setattr(native, "read_footers", _read_footers)
        patch.setattr("torchparquet.reading.stream_parts.DataFiles", _data_files)
        FakeRemoteStore.made.clear()
        yield
