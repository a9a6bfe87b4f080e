"""The native reader as Python sees it. The only module that imports the extension."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchparquet._core import (
    EPOCH_LEDGER_WORDS,
    FIELD_ALIGNMENT,
    LEAST_STAGED_COLUMNS,
    PYARROW_VERSION,
    WINDOW_ROW_BYTES,
    BatchReader,
    ChunkCursor,
    ColumnSpec,
    Decryption,
    FieldPlace,
    FieldSpec,
    Footers,
    LeafColumn,
    PageHeader,
    ReaderStats,
    SinkPool,
    SlabPool,
    Vocabulary,
    are_staged,
    begin_iteration,
    epoch_of,
    num_iterations,
    parse_page_header,
    read_footers,
    set_epoch_of,
    window_order,
)
from torchparquet.fields import Field
from torchparquet.tensors import Batch, BatchViews, LentSlabs, batch_names, slab_order

if TYPE_CHECKING:
    from torchparquet.manifest import Manifest
    from torchparquet.read_totals import Reading
    from torchparquet.share import Share

__all__ = [
    "EPOCH_LEDGER_WORDS",
    "FIELD_ALIGNMENT",
    "LEAST_STAGED_COLUMNS",
    "PYARROW_VERSION",
    "ROW_ID",
    "ROW_VALID",
    "WINDOW_ROW_BYTES",
    "BatchStream",
    "ChunkCursor",
    "Decryption",
    "FieldPlace",
    "Footers",
    "LeafColumn",
    "PageHeader",
    "ReaderStats",
    "SinkPool",
    "SlabPool",
    "are_staged",
    "begin_iteration",
    "epoch_of",
    "num_iterations",
    "parse_page_header",
    "read_footers",
    "set_epoch_of",
    "window_order",
]

ROW_ID = "row.id"
ROW_VALID = "row.valid"


class BatchStream(Iterator[Batch]):
    """The batches of one share, in order, from decode threads of its own.

    No thread exists before the first `next`. They end with the stream, with `close`, when the
    stream is collected, and at interpreter exit. An error is raised at its place in the order
    and again at every later `next`.
    """

    def __init__(
        self,
        manifest: Manifest,
        share: Share | Sequence[Share],
        fields: Sequence[Field],
        *,
        row_ids: bool,
        row_valid: bool,
        num_threads: int,
        max_memory_bytes: int,
        pin_memory: bool,
        pool: SlabPool | None,
        sinks: SinkPool | None = None,
        decryption: Decryption | None = None,
        lend_slabs: bool | None = None,
    ) -> None:
        """Prepare to read; reads nothing yet.

        Args:
            manifest: Of the files.
            share: What to read, with at least one row; or several shares of one batch size
                whose rows stand side by side in each batch, `batch_size` of each.
            fields: The tensors to deliver.
            row_ids: Add `row.id`, int64 `[B]`: global row number, in file order.
            row_valid: Add `row.valid`, bool `[B]`: False for repeated rows.
            num_threads: Decode threads.
            max_memory_bytes: Bound of the batches in flight.
            pin_memory: Deliver in page-locked memory of torch's host allocator.
            pool: Of an earlier stream, whose slabs may fit.
            sinks: Of an earlier stream, for values that the slabs do not hold.
            decryption: Keys of the files, for those that are encrypted.
            lend_slabs: Whether torch allocates the memory of batches; None for where it is pinned.

        Raises:
            ValueError: Two batches do not fit `max_memory_bytes`.
        """
        extra = [Field(ROW_ID, (), (), "int64", None, "error", 0)] if row_ids else []
        extra += [Field(ROW_VALID, (), (), "bool", None, "error", 0)] if row_valid else []
        given = [*fields, *extra]
        ordered = slab_order(given)
        lends = pin_memory if lend_slabs is None else lend_slabs
        lanes = list(share) if isinstance(share, Sequence) else [share]
        places = {field.name: index for index, field in enumerate(ordered)}
        # What each of a chunk's tasks brings, in the reader's order.
        self.task_names = [source for field in ordered for source in field.sources]
        self.task_names += [ROW_ID] * row_ids + [ROW_VALID] * row_valid
        self.num_threads = num_threads
        self.max_memory_bytes = max_memory_bytes
        self.reading: Reading | None = None
        self._reader = BatchReader(
            paths=list(manifest.files),
            contents=[file.content for file in manifest.memory],
            file_num_bytes=manifest.file_num_bytes,
            file_mtime_ns=manifest.file_mtime_ns,
            file_inode=manifest.file_inode,
            **_chunk_arrays(manifest, lanes),
            **_window_arrays(lanes),
            lane_num_chunks=[len(lane.num_rows) for lane in lanes],
            lane_index=[lane.index for lane in lanes],
            rank=lanes[0].index,
            world_size=lanes[0].num_shares,
            batch_rows=sum(lane.batch_size or 0 for lane in lanes),
            batch_sizes=lanes[0].batch_sizes,
            fields=[_field_spec(field) for field in ordered],
            columns=_column_specs(ordered),
            row_id_field=places[ROW_ID] if row_ids else -1,
            row_valid_field=places[ROW_VALID] if row_valid else -1,
            num_threads=num_threads,
            max_memory_bytes=max_memory_bytes,
            lent_slabs=lends,
            pool=pool,
            sinks=sinks,
            decryption=decryption,
        )
        self._views = BatchViews(ordered, self._reader.fields, self._reader.capacity_rows)
        # Only where what is cut is not in the user's order is a batch put in order again.
        names = batch_names(given)
        self._names = names if names != self._views.names else None
        self._lent = LentSlabs(self._reader.slab_bytes, pin_memory) if lends else None
        self._started = False
        self._ended = False
        self._closed = False
        self._is_taken_from = False
        _live_streams.add(self)

    def __next__(self) -> Batch:
        """Return the next batch.

        Raises:
            StopIteration: After the last batch.
            CorruptFileError: A file is damaged, or changed since it was planned.
            NullValueError: A null stands where none may.
            RuntimeError: The stream was closed, or was begun in another process.
        """
        if _exiting:
            _end_with_interpreter()
        self._is_taken_from = True
        try:
            return self._next()
        except RuntimeError:
            self._is_taken_from = False
            _end_with_interpreter()
            raise
        finally:
            self._is_taken_from = False

    def _next(self) -> Batch:
        if self._ended:
            raise StopIteration
        if not self._started:
            self._start()
        item = self._reader.next()
        if item is None:
            self._ended = True
            self.close()
            raise StopIteration
        memory, num_rows, items = item
        batch = self._views.cut(self._slab(memory), num_rows, items)
        if self._names is not None:
            batch = {name: batch[name] for name in self._names}
        return batch

    def _start(self) -> None:
        self._started = True
        if self._lent is not None:
            for _ in range(self._reader.max_slabs):
                self._lend(self._lent)

    def _slab(self, memory: object) -> Tensor:
        if self._lent is None:
            return torch.from_numpy(memory)
        assert isinstance(memory, int)  # noqa: S101
        slab = self._lent.take(memory)
        self._lend(self._lent)
        return slab

    def _lend(self, lent: LentSlabs) -> None:
        try:
            self._reader.lend(*lent.allocate())
        except BaseException:
            # With a slab missing the stream could not go on without losing a batch.
            self.close()
            raise

    def close(self) -> None:
        """Join the threads and give up what is in flight. Idempotent."""
        self._closed = True
        self._stop()
        if self._lent is not None:
            self._lent.clear()
        _live_streams.discard(self)

    def close_at_exit(self) -> None:
        """Close the stream, and wait up to a second for a thread that is taking a batch."""
        self.close()
        deadline = time.monotonic() + 1
        while self._is_taken_from and time.monotonic() < deadline:
            time.sleep(0.001)

    def __del__(self) -> None:
        """Join the threads before anything that they write to can go."""
        if hasattr(self, "_reader"):
            self._stop()

    def _stop(self) -> None:
        self._reader.stop()
        reading, self.reading = self.reading, None
        if reading is not None:
            reading.end(self._reader.stats, self.task_names)

    @property
    def closed(self) -> bool:
        """Whether the stream was closed or has ended."""
        return self._closed

    @property
    def num_batches(self) -> int:
        """Batches of the whole stream."""
        return self._reader.num_batches

    @property
    def max_batches(self) -> int:
        """Batches that may be in flight at once."""
        return self._reader.max_slabs

    @property
    def pool(self) -> SlabPool | None:
        """The memory of the batches, for a later stream; None where torch allocates it."""
        return self._reader.pool

    @property
    def sinks(self) -> SinkPool:
        """The memory of values of different lengths, for a later stream."""
        return self._reader.sinks

    @property
    def stats(self) -> ReaderStats:
        """What was read so far, who waited for whom, and how things stand."""
        return self._reader.stats


def _chunk_arrays(manifest: Manifest, lanes: Sequence[Share]) -> dict[str, Any]:
    row_group = np.concatenate([lane.row_group for lane in lanes])
    row_begin = np.concatenate([lane.row_begin for lane in lanes])
    return {
        "chunk_file": manifest.row_group_file[row_group],
        "chunk_row_group": manifest.row_group_in_file[row_group],
        "chunk_begin": row_begin,
        "chunk_num_rows": np.concatenate([lane.num_rows for lane in lanes]),
        "chunk_first_row_id": manifest.row_group_first_row[row_group] + row_begin,
        "chunk_valid": np.concatenate([lane.valid for lane in lanes]),
    }


def _window_arrays(lanes: Sequence[Share]) -> dict[str, Any]:
    windows = [lane.windows for lane in lanes]
    given = [one for one in windows if one is not None]
    no_counts = np.zeros(0, np.int64)
    return {
        "window_num_chunks": np.concatenate([no_counts, *(one.num_chunks for one in given)]),
        "window_key": np.concatenate([np.zeros(0, np.uint64), *(one.key for one in given)]),
        "window_begin": np.concatenate([no_counts, *(one.begin for one in given)]),
        "window_end": np.concatenate([no_counts, *(one.end for one in given)]),
        "lane_num_windows": [0 if one is None else len(one.num_chunks) for one in windows],
    }


def _field_spec(field: Field) -> FieldSpec:
    if field.num_offsets:
        # The slab holds the offsets of rows; values lie beside it.
        return FieldSpec(
            item_bytes=8,
            width=1,
            cell_items=1,
            has_valid=field.nulls == "mask",
            valid_items=1,
            num_offsets=field.num_offsets,
            has_item_valid=field.nulls == "mask" and field.has_lists,
            row_bytes=field.row_bytes,
        )
    return FieldSpec(
        item_bytes=getattr(torch, field.dtype).itemsize,
        width=field.width or 1,
        cell_items=(field.length or 1) * (field.items or 1),
        has_valid=field.nulls == "mask",
        valid_items=field.length or 1,
        num_offsets=0,
        has_item_valid=False,
        row_bytes=0.0,
    )


def _column_specs(fields: Sequence[Field]) -> list[ColumnSpec]:
    specs = []
    for index, field in enumerate(fields):
        vocabulary = _vocabulary(field)
        values_of = field.file_values or [()] * len(field.sources)
        specs += [
            ColumnSpec(
                path=source,
                kinds=list(kinds),
                dtype=field.dtype,
                cell_items=field.items or 1,
                num_offsets=field.num_offsets,
                list_length=field.length or 0,
                vocabulary=vocabulary,
                field=index,
                element=element,
                nulls_are_errors=field.nulls == "error",
                fill_bits=_bit_pattern(field.fill, field.dtype),
                default_bits=None
                if field.default is None
                else _bit_pattern(field.default, field.dtype),
                file_bits=_bit_patterns(values, field.dtype),
            )
            for element, (source, kinds, values) in enumerate(
                zip(field.sources, field.kinds, values_of, strict=True)
            )
        ]
    return specs


def _vocabulary(field: Field) -> Vocabulary | None:
    if field.words is None:
        return None
    # The core's codes are int64, of which a uint64's upper half has the same bits.
    unknown = field.unknown - 2**64 if field.unknown >= 2**63 else field.unknown
    return Vocabulary(list(field.words), unknown)


def _bit_pattern(value: float, dtype: str) -> int:
    """Return the bytes of `value` as `dtype`, as an unsigned little-endian number."""
    return _bit_patterns([value], dtype)[0]


def _bit_patterns(values: Sequence[float], dtype: str) -> list[int]:
    """Return the bytes of each value as `dtype`, as unsigned little-endian numbers."""
    stored = torch.tensor(values, dtype=getattr(torch, dtype))
    patterns: list[int] = stored.view(torch.uint8).numpy().view(f"<u{stored.itemsize}").tolist()
    return patterns


_live_streams: weakref.WeakSet[BatchStream] = weakref.WeakSet()
_exiting = False


@atexit.register
def _close_live_streams() -> None:
    """Join all decode threads while the libraries that they run in are still there."""
    global _exiting
    _exiting = True
    for stream in list(_live_streams):
        stream.close_at_exit()


def _end_with_interpreter() -> None:
    """Keep a daemon thread here for good once the interpreter has begun to exit.

    torch ends the program when such a thread is found in its code, cutting or freeing a
    tensor, so it gets neither a batch nor an exception, whose way out would free some.
    """
    if _exiting and threading.current_thread() is not threading.main_thread():
        threading.Event().wait()
