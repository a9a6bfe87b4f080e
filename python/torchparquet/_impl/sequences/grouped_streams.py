"""Streams of batches whose rows were chosen by length, from row groups that are read whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchparquet._impl.batches.batch_rows import element_mask_owner, num_rows_of
from torchparquet._impl.plan.ranges import Ranges
from torchparquet._impl.plan.share import Share
from torchparquet._impl.reading.stream import Stage, Stream
from torchparquet._impl.reading.stream_parts import ROW_VALID
from torchparquet._impl.sequences.by_length import batches_of, padded
from torchparquet._impl.sequences.delivered_rows import WindowRows, delivered_rows
from torchparquet._impl.sequences.length_pass import RowGroupLengths
from torchparquet.jagged import Jagged

if TYPE_CHECKING:
    from torchparquet._impl.batches.tensors import Batch
    from torchparquet._impl.files.manifest import Manifest
    from torchparquet._impl.reading.streams import StreamOpener
    from torchparquet.options import ByLength


@dataclass
class GroupedOpener:
    """Opens streams of batches by length, as `StreamOpener` opens those of rows."""

    rows: StreamOpener
    manifest: Manifest
    by_length: ByLength
    has_single_windows: bool
    pins_for_device: bool = True
    row_valid: bool = False

    @property
    def fields(self) -> tuple[Any, ...]:
        """The tensors of a batch, as they are read."""
        return self.rows.fields

    @property
    def names(self) -> list[str]:
        """Keys of a batch, in its order."""
        padded = self.by_length.padding_of
        names = [
            key
            for name in self.rows.names
            for key in ((name, f"{name}.length") if name in padded else (name,))
        ]
        return [*names, ROW_VALID] if self.row_valid else names

    def open(self, shares: Sequence[Share], num_workers: int) -> GroupedStream:
        """Open a stream of a share."""
        (share,) = shares
        return GroupedStream(self.rows.open(self.shares_to_read(shares), num_workers), self, share)

    def shares_to_read(self, shares: Sequence[Share]) -> list[Share]:
        """Return the shares of rows that shares of batches need."""
        return [_whole_row_groups(self.rows.manifest, share) for share in shares]

    def delivering(self, stream: Stream) -> Stream:
        """Return the stream, with its last stage where batches are delivered on a device."""
        return self.rows.delivering(stream, pin_memory=self.pins_for_device)

    def forget(self) -> None:
        """Free the memory of ended streams."""
        self.rows.forget()

    def __copy__(self) -> GroupedOpener:
        """Return one with memory of its own."""
        return replace(self, rows=replace(self.rows))


def _row_groups(share: Share) -> list[list[int]]:
    """Return the row groups of each window, or of each chunk without windows."""
    chunks, counts = share.in_windows()
    found, end = [], 0
    for count in counts.tolist():
        begin, end = end, end + count
        has_rows = chunks.num_rows[begin:end] > 0
        found.append(list(dict.fromkeys(chunks.row_group[begin:end][has_rows].tolist())))
    return found


def _whole_row_groups(manifest: Manifest, share: Share) -> Share:
    """Return the share of rows that a share of batches needs."""
    row_group = np.array(list(chain.from_iterable(_row_groups(share))), np.int64)
    num_rows = manifest.row_group_num_rows[row_group]
    sequence = Ranges.whole(row_group, num_rows)
    return Share(0, 1, None, sequence, int(num_rows.sum()), Ranges.none(), None, num_rows)


class GroupedStream(Stage):
    """Delivers the batches of a share, in order. Holds the row groups of one window.

    An error comes where a row group of its window is read. It closes the stream, since it may have
    come between two of them: who goes on opens another one.
    """

    def __init__(self, rows: Stream, opener: GroupedOpener, share: Share) -> None:
        """Read nothing yet."""
        super().__init__(rows)
        self.num_batches = share.total_rows
        self._num_taken = 0
        self._opener = opener
        self._windows = zip(delivered_rows(share), _row_groups(share), strict=True)
        self._window: WindowRows | None = None
        self._place = 0  # of the next batch in the window
        self._unread: list[int] = []
        self._held: dict[int, _RowGroup] = {}
        self._owner_pid = os.getpid()

    def __next__(self) -> Batch:
        """Return the next batch."""
        if os.getpid() != self._owner_pid:
            raise RuntimeError("the reader was begun in another process; begin a new iteration")
        try:
            self._read_window()
            window, place = self._window, self._place
            assert window is not None  # noqa: S101
            made = self._held[int(window.row_group[place])].batch(int(window.row[place]))
            if self._opener.row_valid:
                num_rows = num_rows_of(made)
                made[ROW_VALID] = torch.full((num_rows,), bool(window.valid[place]))
            self._place += 1
        except BaseException:
            self.close()
            raise
        self._num_taken += 1
        if self._num_taken == self.num_batches:
            self.close()
        return made

    def _read_window(self) -> None:
        """Read what is needed for the next batch."""
        manifest, by_length = self._opener.rows.manifest, self._opener.by_length
        while True:
            while self._unread:
                row_group, batch = self._unread[0], next(self._source)
                self._held[row_group] = _RowGroup(batch, manifest, row_group, by_length)
                del self._unread[0]
            if self._window is not None and self._place < len(self._window.row):
                return
            self._window, self._place = None, 0
            self._held.clear()
            self._window, self._unread = next(self._windows)

    @property
    def next_is_ready(self) -> bool:
        """True if `next` need not wait for reading, and has not ended."""
        if self._window is not None and not self._unread and self._place < len(self._window.row):
            return True
        # Of a window of several row groups one is not enough.
        is_enough = self._opener.has_single_windows and self._source.next_is_ready
        return self._num_taken < self.num_batches and is_enough

    @property
    def num_taken(self) -> int:
        """Batches that `next` has returned."""
        return self._num_taken

    def close(self) -> None:
        """Join the threads and give up what is in flight. Idempotent."""
        self._source.close()
        self._held.clear()


class _RowGroup:
    """A row group in memory, and the rows of its batches."""

    def __init__(
        self, rows: Batch, manifest: Manifest, row_group: int, by_length: ByLength
    ) -> None:
        """Choose the rows of batches, as they were counted."""
        self._rows = rows
        self._by_length = by_length
        lengths = rows[by_length.column].lengths.numpy()
        chosen = batches_of(by_length, RowGroupLengths(manifest, row_group, lengths))
        self._chosen = [torch.from_numpy(rows) for rows in chosen]

    def batch(self, number: int) -> Batch:
        """Return a batch: chosen rows, and lists padded."""
        chosen, padding = self._chosen[number], self._by_length.padding_of
        made: Batch = {}
        longest: dict[str, int] = {}
        for name, value in self._rows.items():
            owner = element_mask_owner(self._rows, name)
            if owner is not None:
                owner_name = name.removesuffix(".values.valid")
                valid = Jagged(value, owner.offsets).select(chosen)
                is_padded = owner_name in padding
                made[name] = valid.to_padded(longest[owner_name]) if is_padded else valid.values
            elif name in padding:
                lists = value.select(chosen)
                longest[name] = self._padded(lists.lengths)
                made[name] = lists.to_padded(longest[name], pad_value=padding[name])
                made[f"{name}.length"] = lists.lengths
            else:
                made[name] = value.select(chosen) if isinstance(value, Jagged) else value[chosen]
        return made

    def _padded(self, lengths: Tensor) -> int:
        return int(padded(self._by_length, lengths.numpy().max(keepdims=True))[0])
