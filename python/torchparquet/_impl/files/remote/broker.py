"""Answers what the native reader asks of a store's library: addresses, and ranges of files."""

from __future__ import annotations

import atexit
import functools
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from torchparquet._impl.files.remote.addresses import Address, AddressMaker
from torchparquet._impl.files.remote.failures import (
    ChangedError,
    Patience,
    patiently,
    plain_errors,
    short_answer,
)
from torchparquet._impl.files.remote.file_access import may_be_same
from torchparquet._impl.files.remote.urls import redacted
from torchparquet.errors import one_line

if TYPE_CHECKING:
    from torchparquet._impl.files.remote.remote_files import RemoteFiles
    from torchparquet._impl.native import RemoteRequest, RemoteStore

# Threads of fsspec's asynchronous file systems only wait; each has one range in flight.
_BYTES_THREADS = 16
_ADDRESS_THREADS = 4
# A call of a library that hangs is abandoned: its thread does not keep the process.
_JOIN_SECONDS = 2.0

Result = TypeVar("Result")


class Broker:
    """Threads that answer requests until `close`, or until nobody holds the broker any more.

    The threads hold neither the broker nor a data set. In a forked child the broker is dead.
    """

    def __init__(
        self,
        queue: RemoteStore,
        files: RemoteFiles,
        make_address: AddressMaker | None = None,
        *,
        just_listed: bool = False,
    ) -> None:
        """Start the threads."""
        num_threads = _BYTES_THREADS if make_address is None else _ADDRESS_THREADS
        answers = _Answers(queue, files, make_address, just_listed)
        self._pid = os.getpid()
        # The exit joins them in `_close_all`. Were they not daemons, it would wait for them
        # before that.
        self._threads = [
            threading.Thread(target=answers.serve, name=f"torchparquet-broker-{index}", daemon=True)
            for index in range(num_threads)
        ]
        self._end = weakref.finalize(self, _end, answers, self._pid)
        self._end.atexit = False
        _watch_process()
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


@functools.cache
def _watch_process() -> None:
    """Begin to with the first broker, for a process may import the package and read nothing."""
    atexit.register(_close_all)
    os.register_at_fork(after_in_child=_open.clear)


def _close_all() -> None:
    for broker in list(_open):
        broker.close()


def _end(answers: _Answers, pid: int) -> None:
    # A thread that does not exist in a forked child may hold the queue's lock.
    if pid == os.getpid():
        answers.end()


class _Answers:
    """The state that all threads of a broker share, and the work of each of them."""

    def __init__(
        self,
        queue: RemoteStore,
        files: RemoteFiles,
        make_address: AddressMaker | None,
        just_listed: bool,
    ) -> None:
        self._queue, self._files = queue, files
        self._make_address, self._just_listed = make_address, just_listed
        self._access = files.storage.access()
        self._patience = Patience.of(files.fetch)
        self._comparisons = [_Comparison(files, file) for file in range(len(files.names))]
        self._ended = threading.Event()

    def end(self) -> None:
        """End the waits of all threads."""
        self._ended.set()
        self._queue.close()

    def serve(self) -> None:
        """Answer until the end."""
        queue = self._queue
        while (request := queue.next_request()) is not None:
            try:
                if request.kind == "address":
                    self._give_address(request)
                else:
                    self._give_bytes(request)
            except FileNotFoundError as error:
                queue.fail(request, "not_found", one_line(error))
            except ChangedError as error:
                queue.fail(request, "changed", one_line(error))
            except Exception as error:
                queue.fail(request, "io", redacted(one_line(error), self._access.secrets))

    def _patiently(self, act: Callable[[], Result]) -> Result:
        return patiently(act, self._patience, self._ended.wait)

    def _give_address(self, request: RemoteRequest) -> None:
        files = self._files
        name, stamp = files.names[request.file], files.stamps[request.file]
        shown = self._access.shown(name)

        def make() -> Address | None:
            if self._make_address is None:
                return None
            with plain_errors("make an address of", shown, self._access.secrets):
                return self._make_address(name, stamp)

        address = self._patiently(make)
        if address is None:
            message = f"the store gives no address of the file: {shown!r}"
            self._queue.fail(request, "io", message)
            return
        self._queue.give_address(
            request, address.url, list(address.headers), address.expires_at, address.ca_file
        )

    def _give_bytes(self, request: RemoteRequest) -> None:
        self._queue.give_bytes(request, self._patiently(lambda: self._read(request)))

    def _read(self, request: RemoteRequest) -> bytes:
        files, file = self._files, request.file
        name, comparison = files.names[file], self._comparisons[file]
        try:
            content = self._access.read(name, request.offset, request.num_bytes)
        except (FileNotFoundError, PermissionError):
            raise
        except OSError:
            comparison.make()  # a change explains it better
            raise
        is_short = len(content) != request.num_bytes
        if is_short or not self._just_listed:
            comparison.make()
        if is_short:
            shown = self._access.shown(name)
            raise short_answer(shown, request.offset, request.num_bytes, len(content))
        return content


class _Comparison:
    """Compares a file with its listing, once for all threads that have just read of it.

    If the file is the one that was listed after a range of it was read, the range is right.
    """

    def __init__(self, files: RemoteFiles, file: int) -> None:
        self._files, self._file = files, file
        self._lock = threading.Lock()  # held while the store is asked
        self._num_begun = 0
        self._last_good = 0

    def make(self) -> None:
        """Return if the file is the same, by a look that began after the call."""
        num_before = self._num_begun
        with self._lock:
            if self._last_good > num_before:
                return
            self._num_begun += 1
            self._look()
            self._last_good = self._num_begun

    def _look(self) -> None:
        files, file, access = self._files, self._file, self._files.storage.access()
        shown = access.shown(files.names[file])
        entry = access.look_up(files.names[file], afresh=True)
        if entry is None:
            raise FileNotFoundError(f"no such file: {shown!r}")
        same_size = entry.num_bytes == files.num_bytes[file]
        if not same_size or not may_be_same(entry.stamp, files.stamps[file]):
            raise ChangedError(shown)
