"""Answers what the native reader asks of a store's library: addresses, and ranges of files."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from torchparquet.errors import one_line
from torchparquet.files.remote.addresses import AddressMaker
from torchparquet.files.remote.file_access import ChangedError, FileAccess, plain_errors
from torchparquet.files.remote.stamps import may_be_same
from torchparquet.files.remote.urls import redacted

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined, unused-ignore]

# Threads of fsspec's asynchronous file systems only wait; each has one range in flight.
_BYTES_THREADS = 16
_ADDRESS_THREADS = 4
# A call of a library that hangs is abandoned: its thread does not keep the process.
_JOIN_SECONDS = 2.0


class Request(Protocol):
    """A request of the native reader."""

    @property
    def kind(self) -> str:
        """Of what: "address" or "bytes"."""

    @property
    def file(self) -> int:
        """Number of the file."""

    @property
    def refused(self) -> bool:
        """Of an address: the store refused the one before."""

    @property
    def offset(self) -> int:
        """Of bytes: the first one."""

    @property
    def num_bytes(self) -> int:
        """Of bytes: how many."""


class RequestQueue(Protocol):
    """The native reader's side: `torchparquet.native.RemoteStore`."""

    def next_request(self) -> Request | None:
        """Wait for the next request, without the GIL; None once the queue is closed."""

    def give_address(
        self, request: Any, url: str, headers: list[str], expires_at: float, ca_file: str
    ) -> None:
        """Answer a request for an address."""

    def give_bytes(self, request: Any, content: Buffer) -> None:
        """Answer a request for bytes."""

    def fail(self, request: Any, kind: str, message: str) -> None:
        """Answer that it cannot be done: "not_found", "changed" or "io"."""

    def close(self) -> None:
        """End the waits of all threads."""

    def stats(self) -> dict[str, Any]:
        """Return counters."""


@dataclass(frozen=True)
class BrokeredFiles:
    """The files that a broker reads.

    Attributes:
        access: Of their store.
        names: As the store's library calls them.
        num_bytes: Their sizes when they were listed.
        stamps: Their stamps when they were listed.
        make_address: Makes their addresses; None if they have none.
        known: Numbers of the files that are known to be those that were listed.
    """

    access: FileAccess
    names: Sequence[str]
    num_bytes: Sequence[int]
    stamps: Sequence[str]
    make_address: AddressMaker | None
    known: set[int] = field(default_factory=set)


class Broker:
    """Threads that answer requests until `close`, or until nobody holds the broker any more.

    The threads hold neither the broker nor a data set. In a forked child the broker is dead.
    """

    def __init__(self, queue: RequestQueue, files: BrokeredFiles) -> None:
        """Start the threads."""
        count = _BYTES_THREADS if files.make_address is None else _ADDRESS_THREADS
        self._queue = queue
        self._pid = os.getpid()
        # The exit joins them in `_close_all`. Were they not daemons, it would wait for them
        # before that.
        self._threads = [
            threading.Thread(
                target=_serve, args=(queue, files), name=f"torchparquet-broker-{index}", daemon=True
            )
            for index in range(count)
        ]
        self._end = weakref.finalize(self, _end, queue, self._pid)
        self._end.atexit = False
        _open.add(self)
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the threads and wait for them."""
        _open.discard(self)
        self._end()
        if self._pid != os.getpid():
            return
        end = time.monotonic() + _JOIN_SECONDS
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))


_open: weakref.WeakSet[Broker] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for broker in list(_open):
        broker.close()


def _forget_all() -> None:
    """Forget, in a forked child, the brokers of its parent."""
    _open.clear()


os.register_at_fork(after_in_child=_forget_all)


def _end(queue: RequestQueue, pid: int) -> None:
    # A thread that does not exist in a forked child may hold the queue's lock.
    if pid == os.getpid():
        queue.close()


def _serve(queue: RequestQueue, files: BrokeredFiles) -> None:
    while (request := queue.next_request()) is not None:
        try:
            if request.kind == "address":
                _give_address(queue, files, request)
            else:
                _give_bytes(queue, files, request)
        except FileNotFoundError as error:
            queue.fail(request, "not_found", one_line(error))
        except ChangedError as error:
            queue.fail(request, "changed", one_line(error))
        except Exception as error:
            queue.fail(request, "io", redacted(one_line(error), files.access.secrets))


def _give_address(queue: RequestQueue, files: BrokeredFiles, request: Request) -> None:
    name = files.names[request.file]
    shown = files.access.shown(name)
    address = None
    if files.make_address is not None:
        with plain_errors("make an address of", shown, files.access.secrets):
            address = files.make_address(name, files.stamps[request.file])
    if address is None:
        queue.fail(request, "io", f"the store gives no address of the file: {shown!r}")
        return
    queue.give_address(
        request, address.url, list(address.headers), address.expires_at, address.ca_file
    )


def _give_bytes(queue: RequestQueue, files: BrokeredFiles, request: Request) -> None:
    file = request.file
    if file not in files.known:
        _check_unchanged(files, file)
        files.known.add(file)
    content = files.access.read(files.names[file], request.offset, request.num_bytes)
    if len(content) != request.num_bytes:
        raise ChangedError(
            "the file has changed, or the store cannot read a part of it: "
            f"{files.access.shown(files.names[file])!r}, {request.num_bytes} bytes at "
            f"{request.offset} were asked for, {len(content)} came"
        )
    queue.give_bytes(request, content)


def _check_unchanged(files: BrokeredFiles, file: int) -> None:
    name = files.names[file]
    shown = files.access.shown(name)
    entry = files.access.look_up(name, afresh=True)
    if entry is None:
        raise FileNotFoundError(f"no such file: {shown!r}")
    same_size = entry.num_bytes == files.num_bytes[file]
    if not same_size or not may_be_same(entry.stamp, files.stamps[file]):
        raise ChangedError(f"the file has changed since it was listed: {shown!r}")
