"""Streams of batches whose rows are dealt into steps of equal cost, window by window."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from torchparquet._impl.batches.batch_rows import joined, num_rows_of
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.plan.plan_options import Int64Array
from torchparquet._impl.plan.ranges import Ranges
from torchparquet._impl.plan.share import Share
from torchparquet._impl.reading.reader_arguments import ROW_VALID
from torchparquet._impl.reading.stream import Stream
from torchparquet._impl.sequences.by_length import chosen_rows
from torchparquet._impl.sequences.delivered_rows import ordered_windows
from torchparquet._impl.sequences.holding import HoldingOpener, HoldingStream
from torchparquet._impl.sequences.length_pass import RowGroupLengths
from torchparquet.errors import ListLengthError
from torchparquet.options import ByLength

# Pieces of a window that are decoded as a whole, so that the reader works ahead.
_PIECES = 16
_LEAST_PIECE_ROWS = 1024
_ROW_OF_BATCH = re.compile(r"row (\d+) of the batch")


@dataclass(kw_only=True)
class DealtOpener(HoldingOpener):
    """Opens streams of dealt rows, as `StreamOpener` opens those of rows in native windows."""

    by_length: ByLength

    def open(self, shares: Sequence[Share], num_workers: int) -> DealtStream:
        """Open a stream of shares whose rows are side by side in each batch."""
        return DealtStream(self.rows.open(self.shares_to_read(shares), num_workers), self, shares)

    def shares_to_read(self, shares: Sequence[Share]) -> list[Share]:
        """Return the share whose batches are the pieces of windows, in the order of reading."""
        pieces = Ranges.joined([Ranges.none(), *(pieces for _, pieces in windows_to_read(shares))])
        nothing = Ranges.none()
        return [Share(0, 1, None, nothing, 0, pieces, None, pieces.num_rows)]


def windows_to_read(shares: Sequence[Share]) -> list[tuple[int, Ranges]]:
    """Return the lane of each window and the pieces that are read, as batches need them."""
    found: list[tuple[int, int, int, Ranges]] = []
    for lane, share in enumerate(shares):
        if share.windows is None:
            continue  # without rows
        chunks, counts = share.in_windows()
        ends, delivered = np.cumsum(counts).tolist(), share.windows.num_rows
        first = (np.cumsum(delivered) - delivered) // (share.batch_size or 1)
        for window, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
            own = chunks.pick(slice(begin, end)).without_empty()
            longest = max(-(-int(own.num_rows.sum()) // _PIECES), _LEAST_PIECE_ROWS)
            found.append((int(first[window]), lane, window, own.cut_longer_than(longest)))
    return [(lane, pieces) for _, lane, _, pieces in sorted(found, key=lambda one: one[:3])]


class DealtStream(HoldingStream):
    """Delivers the batches of shares from the rows of their windows."""

    def __init__(self, rows: Stream, opener: DealtOpener, shares: Sequence[Share]) -> None:
        """Read nothing yet."""
        super().__init__(rows, max(share.num_steps for share in shares))
        self._opener = opener
        self._windows = iter(windows_to_read(shares))
        self._orders = [ordered_windows(share) for share in shares]
        self._rows_of_batch = [share.batch_size or 1 for share in shares]
        self._left = [share.total_rows for share in shares]
        # Of each share the windows at hand, and which of their rows come next.
        self._held: list[list[tuple[Batch, Int64Array]]] = [[] for _ in shares]

    def _made(self) -> Batch:
        if self._num_taken == self.num_batches:
            raise StopIteration
        while not self.next_is_ready:
            self._read_window()
        lanes = range(len(self._held))
        return joined([part for lane in lanes for part in self._taken(lane)])

    def _wanted(self, lane: int) -> int:
        return min(self._rows_of_batch[lane], self._left[lane])

    def _taken(self, lane: int) -> Iterator[Batch]:
        """Take the rows of a share that the next batch has."""
        held, wanted = self._held[lane], self._wanted(lane)
        self._left[lane] -= wanted
        while wanted:
            rows, order = held.pop(0)
            chosen, rest = order[:wanted], order[wanted:]
            yield chosen_rows(self._opener.by_length, rows, torch.from_numpy(chosen))
            wanted -= len(chosen)
            if len(rest):
                held.insert(0, (rows, rest))

    def _read_window(self) -> None:
        lane, pieces = next(self._windows)
        _, order = next(self._orders[lane])
        row_groups, begins, valid = (
            of.tolist() for of in (pieces.row_group, pieces.row_begin, pieces.valid)
        )
        read = [self._read(*of) for of in zip(row_groups, begins, valid, strict=True)]
        if len(order):
            self._held[lane].append((joined(read), order))

    def _read(self, row_group: int, row_begin: int, is_valid: bool) -> Batch:
        try:
            read = next(self._source)
        except ListLengthError as error:
            text = str(error)
            found = _ROW_OF_BATCH.search(text)
            if found is None:
                raise
            empty = np.zeros(0, np.int64)
            of = RowGroupLengths(self._opener.manifest, row_group, empty)
            place = of.place_of(row_begin + int(found[1]))
            raise ListLengthError(text.replace(found[0], place, 1)) from None
        if self._opener.row_valid:
            read[ROW_VALID] = torch.full((num_rows_of(read),), is_valid)
        return read

    @property
    def next_is_ready(self) -> bool:
        """True if `next` need not wait for reading, and has not ended."""
        return self._num_taken < self.num_batches and all(
            sum(len(order) for _, order in held) >= self._wanted(lane)
            for lane, held in enumerate(self._held)
        )

    def _drop(self) -> None:
        self._held = [[] for _ in self._held]
