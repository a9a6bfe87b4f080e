"""Brings bytes of listed files of a store: a native store, and threads that answer what it asks."""

from __future__ import annotations

import atexit
import functools
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING

import numpy as np

from torchparquet._impl.files.listing import Listing
from torchparquet._impl.files.remote.addresses import Address, AddressMaker, address_maker
from torchparquet._impl.files.remote.credentials import Given
from torchparquet._impl.files.remote.failures import (
    ChangedError,
    Patience,
    patiently,
    plain_errors,
)
from torchparquet._impl.files.remote.store import Entry, Store, entity_tag, may_be_same
from torchparquet._impl.files.remote.urls import redacted
from torchparquet._impl.processors import num_own_processors, num_ranks_here, num_ranks_of_job
from torchparquet.errors import one_line

if TYPE_CHECKING:
    from torchparquet._impl.native import RemoteRequest, RemoteStore

# Threads of fsspec's asynchronous file systems only wait; each has one range in flight.
_BYTES_THREADS, _ADDRESS_THREADS = 16, 4
# A call of a library that hangs is abandoned: its thread does not keep the process.
_JOIN_SECONDS = 2.0


class StoreReading:
    """A native store and its threads, until `close` or until nobody holds it any more.

    Belongs to one process; a forked child must make its own. The threads hold neither this nor a
    data set.
    """

    def __init__(
        self, listing: Listing, *, just_listed: bool = False, num_workers: int = 1
    ) -> None:
        """Start the threads."""
        # Imported here, so that unpickling does not load the native module.
        from torchparquet._impl import native

        store = listing.store
        assert store is not None  # noqa: S101
        # Options that a function gives may be late; an epoch that begins then must not fail.
        patiently(store.reached, Patience.of(listing.client), time.sleep)
        maker = address_maker(store)
        if maker is not None:
            with plain_errors("make an address of", listing.paths[0], store.secrets):
                if not native.has_http() or maker(listing.names[0], listing.stamps[0]) is None:
                    maker = None
        # A machine's processes that read share 64, and each has 8 at least. For footers and
        # conditions, which are small and mostly waited for, it has 32, or 64 in a small job: with
        # 64 each, 128 ranks of one store have more requests refused, and take longer. Large
        # machines have four for each processor: one thread of the client brings what three others
        # decode, or more, and needs 16.
        of_rank = max(64 // num_ranks_here(), 4 * num_own_processors())
        least = min(64, max(32, 4096 // num_ranks_of_job())) if just_listed else 8
        connections = max(least, of_rank // num_workers)
        client_threads = max(1, num_own_processors() // (4 * num_workers))
        client = {
            "max_connections": connections,
            "num_threads": client_threads,
            **listing.client,
        }
        cache = {
            name: client.pop(name) for name in ("cache_folder", "cache_limit") if name in client
        }
        self.native = native.RemoteStore(
            paths=list(listing.paths),
            num_bytes=np.array(listing.num_bytes, np.int64),
            etags=[entity_tag(stamp) for stamp in listing.stamps],
            identities=list(listing.stamps),
            with_addresses=maker is not None,
            options=native.filled(native.FetchOptions(), **client),
            **cache,
        )
        if listing.footers:
            self.native.footers = listing.footers[0]
        self._listing, self._pid = listing, os.getpid()
        answers = _Answers(self.native, listing, maker, just_listed)
        # They are daemons, which the exit joins in `_close_all`. It waits for others before that.
        self._threads = [
            threading.Thread(target=answers.serve, name=f"torchparquet-broker-{index}", daemon=True)
            for index in range(_BYTES_THREADS if maker is None else _ADDRESS_THREADS)
        ]
        self._end = weakref.finalize(self, _end, answers, self._pid)
        self._end.atexit = False
        _watch_process()
        _open.add(self)
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the threads and wait for them. Later readings use the footers of this one."""
        self._listing.footers[:] = [self.native.footers]
        _open.discard(self)
        self._end()
        if self._pid != os.getpid():
            return
        end = time.monotonic() + _JOIN_SECONDS
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))


_open: weakref.WeakSet[StoreReading] = weakref.WeakSet()


@functools.cache
def _watch_process() -> None:
    """Prepare for the exit and for forks, with the first reading: some processes read nothing."""
    atexit.register(_close_all)
    os.register_at_fork(after_in_child=_open.clear)


def _close_all() -> None:
    for reading in list(_open):
        reading.close()


def _end(answers: _Answers, pid: int) -> None:
    # A thread that does not exist in a forked child may hold the queue's lock.
    if pid == os.getpid():
        answers.ended.set()
        answers.queue.close()


class _Answers:
    """The state that all threads of a reading share, and the work of each of them."""

    def __init__(
        self, queue: RemoteStore, listing: Listing, maker: AddressMaker | None, just_listed: bool
    ) -> None:
        assert listing.store is not None  # noqa: S101
        self.queue, self.ended = queue, threading.Event()
        self._listing, self._store = listing, listing.store
        self._maker, self._just_listed = maker, just_listed
        self._patience = Patience.of(listing.client)
        self._given: dict[int, Given] = {}  # by file, what its latest address was made by
        listed = map(Entry, listing.names, listing.num_bytes, listing.stamps)
        self._comparisons = [_Comparison(listing.store, entry) for entry in listed]

    def serve(self) -> None:
        """Answer until the end."""
        queue = self.queue
        while (request := queue.next_request()) is not None:
            answer = self._give_address if request.kind == "address" else self._give_bytes
            try:
                answer(request)
            except FileNotFoundError as error:
                queue.fail(request, "not_found", one_line(error))
            except ChangedError as error:
                queue.fail(request, "changed", one_line(error))
            except Exception as error:
                queue.fail(request, "io", redacted(one_line(error), self._store.secrets))

    def _give_address(self, request: RemoteRequest) -> None:
        name, stamp = self._listing.names[request.file], self._listing.stamps[request.file]
        shown = self._store.shown(name)

        if request.refused and request.file in self._given:
            self._store.credentials.refuse(self._given[request.file])

        def make() -> Address | None:
            with plain_errors("make an address of", shown, self._store.secrets):
                return None if self._maker is None else self._maker(name, stamp)

        address = patiently(make, self._patience, self.ended.wait)
        if address is None:
            message = f"the store gives no address of the file: {shown!r}"
            self.queue.fail(request, "io", message)
            return
        self._given[request.file] = address.given
        headers = [f"{name}: {value}" for name, value in address.headers.items()]
        remedy = redacted(self._store.credentials.remedy, self._store.secrets)
        self.queue.give_address(
            request, address.url, headers, address.renew_at, address.ca_file, remedy
        )

    def _give_bytes(self, request: RemoteRequest) -> None:
        name, comparison = self._listing.names[request.file], self._comparisons[request.file]

        def read() -> bytes:
            try:
                content = self._store.read(name, request.offset, request.num_bytes)
            except (FileNotFoundError, PermissionError):
                raise
            except OSError:
                comparison.make()  # a change explains it better
                raise
            if not self._just_listed:
                comparison.make()
            return content

        self.queue.give_bytes(request, patiently(read, self._patience, self.ended.wait))


class _Comparison:
    """Compares a file with its listing, once for all threads that have just read of it.

    If the file is the one that was listed after a range of it was read, the range is right.
    """

    def __init__(self, store: Store, listed: Entry) -> None:
        self._store, self._listed = store, listed
        self._lock = threading.Lock()  # held while the store is asked
        self._num_begun = self._last_good = 0

    def make(self) -> None:
        """Return if the file is the same, by a look that began after the call."""
        num_before = self._num_begun
        with self._lock:
            if self._last_good > num_before:
                return
            self._num_begun += 1
            name, entry = self._listed.name, self._store.look_up(self._listed.name, afresh=True)
            if entry is None:
                raise FileNotFoundError(f"no such file: {self._store.shown(name)!r}")
            same_size = entry.num_bytes == self._listed.num_bytes
            if not same_size or not may_be_same(entry.stamp, self._listed.stamp):
                raise ChangedError(self._store.shown(name))
            self._last_good = self._num_begun
