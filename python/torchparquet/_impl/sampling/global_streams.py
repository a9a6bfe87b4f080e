"""Streams of rows in an order of all rows: each batch is gathered from a store of decoded rows."""

from __future__ import annotations

import atexit
import copy
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch

from torchparquet._impl.batches.batch_rows import num_rows_of
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.plan.ranges import Ranges
from torchparquet._impl.plan.share import Share
from torchparquet._impl.reading.reader_arguments import ROW_VALID
from torchparquet._impl.reading.stream import Stream
from torchparquet._impl.sampling.policy import GlobalOrder
from torchparquet._impl.sampling.store.records import Slabs
from torchparquet._impl.sampling.store.row_store import RowStore
from torchparquet._impl.sampling.streams import Chunk, SampledOpener
from torchparquet._impl.sequences.holding import HoldingStream

# Small batches are gathered together, as handing a task to a thread takes as long as 1,000 rows.
_ROWS_OF_A_RUN = 1 << 14
# How the pass beside an epoch yields to it.
_NICE = 10


@dataclass(kw_only=True)
class GlobalOpener(SampledOpener):
    """Opens streams of rows of a store, which the first of them fills."""

    policy: GlobalOrder
    store: RowStore

    def open(self, shares: Sequence[Share], num_workers: int) -> Stream:
        """Open a stream of a share; reads no row yet."""
        (share,) = shares
        self.store.check_memory(num_workers)
        if self.policy.is_by_windows(share.epoch) and not self.store.is_whole():
            rows = replace(self.rows, row_valid=self.row_valid)
            opener = SampledOpener(rows=rows, manifest=self.manifest, policy=self.policy)
            return StoringStream(opener, self.store, share, num_workers)
        # It counts reads and waits of an iteration, delivers nothing, and has no thread.
        num_rows = self.rows.manifest.row_group_num_rows
        some = np.flatnonzero(num_rows)[:1]
        order, none = Ranges.whole(some, num_rows[some]), np.zeros(0, np.int64)
        unread = Share(0, 1, 1, order, int(num_rows[some].sum()), Ranges.none(), None, none)
        return GlobalStream(self.rows.open([unread], num_workers), self, share, num_workers)

    def forget(self) -> None:
        """Free the memory of ended streams, and of rows."""
        super().forget()
        self.store.forget()

    def __copy__(self) -> Self:
        """Return one with memory and a store of its own, either of which may be closed first."""
        return replace(super().__copy__(), store=copy.copy(self.store))

    def runs_ahead(self, share: Share, num_workers: int) -> tuple[int, int]:
        """Return how many batches a thread gathers at a time, and how many such runs are ahead.

        Two for each thread, if they fit memory.
        """
        size = share.batch_size or 1
        options = self.rows.options
        # Half of the memory may be for rows. The loop has one batch more.
        memory = options.memory_per_worker(num_workers) / 2
        fitting = max(1, int(memory / self.store.row_bytes / size) - 1)
        wanted = 2 * options.threads_per_worker(num_workers)
        # Those of one run are in the loop's hand.
        of_run = max(1, min(_ROWS_OF_A_RUN // size, fitting // (wanted + 1)))
        return of_run, min(wanted, fitting)


class GlobalStream(HoldingStream):
    """Delivers the batches of a share, which threads gather ahead of the loop, in order."""

    def __init__(self, rows: Stream, opener: GlobalOpener, share: Share, num_workers: int) -> None:
        """Begin no thread yet."""
        super().__init__(rows, share.num_steps)
        self._opener = opener
        self._share = share
        self._num_workers = num_workers
        self._num_threads = opener.rows.options.threads_per_worker(num_workers)
        self._num_ahead = 1
        self._wanted: Iterator[list[Chunk]] = iter(())
        self._slabs: Slabs | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._end: Callable[[], object] | None = None
        self._given: deque[Future[deque[Batch]]] = deque()
        self._at_hand: deque[Batch] = deque()
        self._failed: BaseException | None = None

    def _made(self) -> Batch:
        if self._failed is not None:
            raise self._failed
        if self._num_taken == self.num_batches:
            raise StopIteration
        begin = time.perf_counter()
        try:
            if self._threads is None:
                self._begin()
            if not self._at_hand:
                self._at_hand = self._given[0].result()
                self._given.popleft()
                self._give()
            made = self._at_hand.popleft()
        except Exception as error:
            self._failed = error
            raise
        reader, seconds = self.reader, time.perf_counter() - begin
        reader.waited_seconds += seconds
        reader.gathered.seconds += seconds
        reader.gathered.rows += num_rows_of(made)
        return made

    def _begin(self) -> None:
        """Fill the store, and have threads gather the first batches."""
        share, opener = self._share, self._opener
        opener.store.fill(share.index, share.num_shares, self._num_workers)
        layout = opener.store.layout
        assert layout is not None  # noqa: S101
        size = share.batch_size or 1
        of_run, self._num_ahead = opener.runs_ahead(share, self._num_workers)
        self._slabs = Slabs(layout, size, of_run * (self._num_ahead + 1) + 1)
        self._wanted = _runs(opener.chunks([share]), of_run * size)
        self._threads = ThreadPoolExecutor(self._num_threads, "torchparquet-gather")
        self._end = weakref.finalize(self, _shut_down, self._threads, os.getpid())
        self._give()

    def _give(self) -> None:
        """Have threads gather the next batches."""
        assert self._threads is not None  # noqa: S101
        assert self._slabs is not None  # noqa: S101
        while len(self._given) < self._num_ahead:
            wanted = next(self._wanted, None)
            if wanted is None:
                return
            # Threads do not hold the stream, which may be collected while they gather.
            of = self._opener, self._slabs, self._share.epoch, wanted
            self._given.append(self._threads.submit(_gathered, *of))

    @property
    def next_is_ready(self) -> bool:
        """True if `next` need not wait, and has not ended."""
        is_made = bool(self._at_hand) or (bool(self._given) and self._given[0].done())
        return is_made and not self.closed

    def _drop(self) -> None:
        self._threads = self._slabs = None
        self._given.clear()
        self._at_hand.clear()
        if self._end is not None:
            self._end()


def _gathered(
    opener: GlobalOpener, slabs: Slabs, epoch: int, chunks: Sequence[Chunk]
) -> deque[Batch]:
    """Return the batches of the rows of chunks."""
    store = opener.store
    assert store.layout is not None  # noqa: S101
    rows = np.concatenate([opener.samples(epoch, chunk) for chunk in chunks])
    batches = deque(store.layout.gather(store, rows, slabs))
    if opener.row_valid:
        are_valid = np.repeat([c.is_valid for c in chunks], [c.num_units for c in chunks])
        parts = torch.split(torch.from_numpy(are_valid), slabs.batch_rows)
        for batch, valid in zip(batches, parts, strict=True):
            batch[ROW_VALID] = valid.clone()
    return batches


def _shut_down(threads: ThreadPoolExecutor, owner_pid: int) -> None:
    if owner_pid == os.getpid():
        # Garbage may be collected on one of the threads, which cannot join itself.
        is_own = threading.current_thread().name.startswith("torchparquet-gather")
        threads.shutdown(wait=not is_own, cancel_futures=True)


class StoringStream(Stream):
    """Delivers the windows of a share from the files, while a thread beside it fills the store."""

    def __init__(
        self, opener: SampledOpener, store: RowStore, share: Share, num_workers: int
    ) -> None:
        """Begin no thread yet."""
        super().__init__(opener.open([share], num_workers))
        self._opener = opener
        self._wanted = store, share.index, share.num_shares, num_workers
        self._filling: _Filling | None = None

    def __next__(self) -> Batch:
        """Return the next batch."""
        if self._filling is not None and self._filling.failed is not None:
            raise self._filling.failed
        batch = next(self._source)
        if self._filling is None:
            # The first batch comes first.
            self._filling = _Filling(*self._wanted)
        return batch

    def close(self) -> None:
        """Join the threads and give up what is in flight. Idempotent."""
        super().close()
        if self._filling is not None:
            self._filling.close()
        self._opener.forget()


class _Filling:
    """A thread that fills a store, until it is closed or collected, or the interpreter exits."""

    def __init__(self, store: RowStore, index: int, num_sharers: int, num_workers: int) -> None:
        """Begin."""
        failures: list[Exception] = []
        ended = threading.Event()

        def fill() -> None:
            if sys.platform == "linux":
                # Decode threads inherit it.
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
            try:
                store.fill(index, num_sharers, num_workers, ended)
            except Exception as error:
                if not ended.is_set():
                    failures.append(error)

        self._failures = failures
        thread = threading.Thread(target=fill, name="torchparquet-store", daemon=True)
        self.close = weakref.finalize(self, _join, ended, thread)
        # Before streams are closed, which from then on hold up the thread for ever.
        atexit.register(self.close)
        thread.start()

    @property
    def failed(self) -> Exception | None:
        """What went wrong."""
        return self._failures[0] if self._failures else None


def _join(ended: threading.Event, thread: threading.Thread) -> None:
    ended.set()
    if thread is not threading.current_thread():  # where garbage may be collected
        thread.join()


def _runs(chunks: Sequence[Chunk], num_rows: int) -> Iterator[list[Chunk]]:
    """Yield the chunks of each run of so many rows, cut where runs end."""
    run: list[Chunk] = []
    room = num_rows
    for chunk in chunks:
        end = chunk.begin + chunk.num_units
        begin = chunk.begin
        while begin < end:
            count = min(room, end - begin)
            run.append(chunk._replace(begin=begin, num_units=count))
            begin, room = begin + count, room - count
            if room == 0:
                yield run
                run, room = [], num_rows
    if run:
        yield run
