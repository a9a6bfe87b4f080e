"""A stream of batches from the native reader."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from operator import length_hint
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch._C import _from_dlpack

from torchparquet._impl.batches.tensors import Batch, BatchViews, tensors_of_items
from torchparquet._impl.native import BatchReader, ReaderMemory, ReaderParts, ReaderStats, filled
from torchparquet._impl.ranks.sharding import in_worker
from torchparquet._impl.reading import interpreter_exit
from torchparquet._impl.reading.null_values import with_way_out
from torchparquet._impl.reading.reader_arguments import native_shares
from torchparquet._impl.reading.stream import Stream
from torchparquet._impl.reading.waits import Gathered, WaitCounter
from torchparquet.errors import NullValueError

if TYPE_CHECKING:
    from torchparquet._impl.plan.claims import Claims
    from torchparquet._impl.plan.share import Share
    from torchparquet._impl.reading.reader_arguments import StreamParts

# How long the end of a stream waits for reads under way. A loop ends within a second of Ctrl-C, of
# which the wait for a batch takes up to 0.1 s.
_STUCK_SECONDS = 0.3
# Batches that are taken from the reader at once, beside those that it counts as in flight.
_RUN_BATCHES = 64
_RUN_BYTES = 1 << 20


class _Run(NamedTuple):
    """Batches that were taken from the reader together; there are none when slabs are cleared."""

    slabs: list[Any]
    unused: Iterator[Any]
    batches: Iterator[Batch]


class BatchStream(Stream):
    """Delivers the batches of one share, in order, from decode threads of its own.

    No thread exists before the first `next`. They end with the stream, with `close`, when the
    stream is collected, and at interpreter exit. An error is raised at its place in the order
    and again at every later `next`.
    """

    closed = False

    def __init__(
        self,
        parts: StreamParts,
        share: Share | Sequence[Share],
        *,
        num_threads: int,
        max_memory_bytes: int,
        pin_memory: bool,
        memory: ReaderMemory,
        lend_slabs: bool | None = None,
        packs_items: bool = False,
    ) -> None:
        """Prepare to read a share, or several whose rows are side by side in each batch.

        `packs_items` has the items of all fields of variable length in one piece of memory, which
        one copy can move to a device.
        """
        lends = pin_memory if lend_slabs is None else lend_slabs
        lanes = list(share) if isinstance(share, Sequence) else [share]
        self.task_names = parts.task_names
        self._parts = parts  # a store must live as long as the reader
        self.num_threads = num_threads
        self.max_memory_bytes = max_memory_bytes
        self.reading: Any = None  # whose `end` takes the final counts
        self.waited_seconds = 0.0  # in all, by who asks for batches
        self.waits = WaitCounter()  # of the loop for single batches; it counts them
        self.gathered = Gathered()  # of a stage that counts here
        first, *beside = native_shares(parts.row_groups, lanes)
        self._claims = lanes[0].claims
        own = filled(
            ReaderParts(parts.native),
            share=first,
            beside=beside,
            batch_rows=sum(lane.batch_size or 0 for lane in lanes),
            batch_sizes=lanes[0].batch_sizes if self._claims is None else (),
            num_threads=num_threads,
            max_memory_bytes=max_memory_bytes,
            lent_slabs=lends,
        )
        self._reader = BatchReader(parts=own, memory=memory)
        self.num_batches, self.max_batches = self._reader.num_batches, self._reader.max_slabs
        self.memory = self._reader.memory  # for a later stream
        slab_bytes = self._reader.slab_bytes
        # A worker shares a slab with its parent by one call, and each piece of it by another.
        self._views = BatchViews(
            parts.fields,
            self._reader.fields,
            parts.names,
            slab_bytes,
            in_pieces=not (lends or in_worker()),
        )
        self._takes_runs = not lends and not any(field.num_offsets for field in parts.fields)
        run_bytes = min(_RUN_BYTES, max_memory_bytes // 64) if self._takes_runs else 0
        self._run_batches = max(1, min(_RUN_BATCHES, run_bytes // slab_bytes))
        self._run = _Run([], iter(()), iter(()))
        self._slab_bytes = slab_bytes
        # By address; None if the reader allocates slabs itself.
        self._lent: dict[int, Tensor] | None = {} if lends else None
        self._pins_memory = pin_memory
        self._packs_items = packs_items or pin_memory
        self._started = self._ended = self._is_taken_from = False
        self._has_announced = parts.reading is None
        interpreter_exit.close_before(self)

    def __next__(self) -> Batch:
        """Return the next batch."""
        if interpreter_exit.has_begun:
            interpreter_exit.hold_daemon_thread()
        self._is_taken_from = True
        try:
            return self._next()
        except NullValueError as error:
            parts = self._parts
            raise with_way_out(
                error, parts.fields, parts.manifest, may_look=not parts.is_encrypted
            ) from None
        except RuntimeError:
            self._is_taken_from = False
            interpreter_exit.hold_daemon_thread()
            raise
        finally:
            self._is_taken_from = False

    def _next(self) -> Batch:
        for batch in self._run.batches:
            return batch
        if self._ended:
            raise StopIteration
        self.start()
        if self._claims is not None:
            self._claim(self._claims)
        begin = time.perf_counter()
        taken = self._reader.next(self._run_batches, self._views.pieces)
        self.waited_seconds += time.perf_counter() - begin
        if taken is None:
            self._ended = True
            self.close()
            raise StopIteration
        slabs, num_rows, items = taken
        if self._takes_runs:
            unused = iter(slabs)
            # At once, since an exception may come before and after.
            self._run = _Run(slabs, unused, self._views.cut_all(unused, num_rows))
            return next(self._run.batches)
        pieces = self._pieces(slabs[0])
        tensors = tensors_of_items(
            items,
            in_one_piece=bool(items) and self._packs_items,
            pin_memory=self._pins_memory,
        )
        return self._views.cut(pieces, num_rows, tensors)

    @property
    def at_hand(self) -> Iterable[Batch]:
        """The batches that were taken from the reader together with the latest one."""
        return self._run.batches if length_hint(self._run.unused) else ()

    def forget_run(self) -> None:
        """Give up the batches at hand."""
        self._run.slabs.clear()

    @property
    def next_is_ready(self) -> bool:
        """True if `next` need not wait for reading, and has not ended."""
        return not self._ended and (self._num_at_hand > 0 or self._reader.next_is_ready)

    def start(self) -> None:
        """Lend the reader the memory that it needs from torch; `next` does it too."""
        if self._started:
            return
        self._started = True
        if self._lent is not None:
            for _ in range(self._reader.max_slabs):
                self._lend(self._lent)

    def _claim(self, claims: Claims) -> None:
        """Take row groups until the next batch is in them, with a further one to read meanwhile."""
        reader = self._reader
        while reader.wants_claim:
            number = reader.num_claims
            position = claims.at(number)
            if position is None:
                reader.end_claims(claims.drops_last)
            else:
                reader.claim(number, position)

    @property
    def num_taken(self) -> int:
        """Also those that a signal's handler, or torch, lost before they were returned."""
        return self._reader.num_taken - self._num_at_hand

    @property
    def _num_at_hand(self) -> int:
        return length_hint(self._run.unused)

    def _pieces(self, memory: Any) -> Sequence[Tensor]:
        if self._lent is None:
            return [_from_dlpack(piece) for piece in memory]
        slab = self._lent.pop(memory)
        self._lend(self._lent)
        return [slab]

    def _lend(self, lent: dict[int, Tensor]) -> None:
        """Lend the reader a new slab of torch, under its address as its number."""
        try:
            pin_memory = self._pins_memory
            slab = torch.empty(self._slab_bytes, dtype=torch.uint8, pin_memory=pin_memory)
            address = slab.data_ptr()
            lent[address] = slab
            self._reader.lend(address, address)
        except BaseException:
            # Without this slab the stream could not continue without losing a batch.
            self.close()
            raise

    @property
    def wants_next(self) -> bool:
        """True if the bytes of the next stream can be asked for, and were not yet."""
        return not self._has_announced and self._reader.has_asked_for_all

    def announce(self, shares: Sequence[Share]) -> None:
        """Ask for the first bytes of the stream that this one's memory goes to."""
        self._has_announced = True
        if shares:
            self._reader.announce(native_shares(self._parts.row_groups, shares))

    def close(self) -> None:
        """Join the threads and give up the batches in flight. Idempotent."""
        self.closed = True
        self._reader.stop()
        self._end_reading()
        self.forget_run()
        if self._lent is not None:
            self._lent.clear()
        interpreter_exit.forget(self)

    def close_at_exit(self) -> None:
        """Close the stream, and wait up to a second for a thread that is taking a batch."""
        self.close()
        deadline = time.monotonic() + 1
        while self._is_taken_from and time.monotonic() < deadline:
            time.sleep(0.001)

    def __del__(self) -> None:
        """Join the threads before the memory that they write to is freed.

        A loop that ends, by Ctrl-C say, does not wait for a disk that does not answer: the memory
        then outlives the stream.
        """
        if not hasattr(self, "_reader"):
            return
        if self._reader.stop_within(_STUCK_SECONDS):
            self._end_reading()
        else:
            interpreter_exit.keep_until_stopped(self._reader, (self._lent, self._parts.reading))

    def _end_reading(self) -> None:
        reading, self.reading = self.reading, None
        if reading is not None:
            reading.end(self.stats, self.task_names)

    @property
    def reader(self) -> BatchStream:
        """This stage."""
        return self

    @property
    def stats(self) -> ReaderStats:
        """The counts so far, the waits, and the present batches in flight."""
        return self._reader.stats(self._num_at_hand)
