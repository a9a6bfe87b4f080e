"""Streams of samples: the rows of a block are read once, and copied to batches in their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchparquet._impl.batches.batch_rows import joined, picked
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.files.manifest import RowSelection
from torchparquet._impl.plan.plan_options import Int64Array
from torchparquet._impl.plan.ranges import Ranges
from torchparquet._impl.plan.share import Share
from torchparquet._impl.reading.reader_arguments import ROW_VALID
from torchparquet._impl.reading.stream import Stream
from torchparquet._impl.sampling.policy import Policy
from torchparquet._impl.sequences.holding import HoldingOpener, HoldingStream


@dataclass(kw_only=True)
class SampledOpener(HoldingOpener):
    """Opens streams of samples of the rows of `rows`."""

    policy: Policy

    def open(self, shares: Sequence[Share], num_workers: int) -> HoldingStream:
        """Open a stream of a share, whose blocks the reader delivers one by one."""
        (share,) = shares
        row_groups: list[int] = []
        masks: list[NDArray[np.bool_]] = []
        sizes: list[int] = []
        for _, rows in self._blocks(share):
            wanted, _ = self._wanted(rows)
            sizes.append(sum(map(np.count_nonzero, wanted.values())))
            row_groups += wanted
            masks += [self._stored(row_group, mask) for row_group, mask in wanted.items()]
        selection = RowSelection.of_masks(masks)
        manifest = self.rows.manifest.repeating(np.array(row_groups), selection)
        order = Ranges.whole(np.arange(len(row_groups)), selection.num_rows)
        total, batches = int(selection.num_rows.sum()), np.array(sizes, np.int64)
        read = Share(0, 1, None, order, total, Ranges.none(), None, batches)
        return self._stream(self.rows.open([read], num_workers, manifest), share)

    def _stream(self, rows: Stream, share: Share) -> SampledStream:
        return SampledStream(rows, self, share)

    def shares_to_read(self, shares: Sequence[Share]) -> Sequence[Share]:
        """Return nothing: what the next epoch reads is other rows of row groups."""
        return ()

    def first_rows(self, share: Share) -> tuple[Int64Array, Int64Array]:
        """Return the row groups and rows of the first batch of a share."""
        first = share.steps(0, 1)
        rows = np.concatenate([rows for _, rows in self._blocks(first)])
        return self._places(rows)

    def row_ids(self, epoch: int) -> Iterator[Int64Array]:
        """Yield the global numbers of the rows of each block of an epoch."""
        first_rows = self.rows.manifest.row_group_first_row
        for block in range(len(self.policy.units)):
            rows = np.sort(self.policy.rows(epoch, block))
            row_group, local = self._places(rows)
            for number in np.unique(row_group).tolist():
                stored = self.rows.manifest.stored_rows(number, local[row_group == number])
                yield first_rows[number] + stored

    def _blocks(self, share: Share) -> Iterator[tuple[bool, Int64Array]]:
        """Yield the samples of each chunk of a share, and whether they count as delivered."""
        chunks, policy = share.chunks.without_empty(), self.policy
        for chunk in zip(*(array.tolist() for array in chunks.arrays()), strict=True):
            block, begin, count, is_valid = chunk
            first, end = (of * policy.rows_of_unit for of in (begin, begin + count))
            yield is_valid, policy.rows(share.epoch, block)[first:end]

    def _places(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the row groups of rows, and their numbers there, int64 `[n]` each."""
        first_row = self.policy.order.first_row
        row_group: Int64Array = np.searchsorted(first_row, rows, side="right") - 1
        return row_group, rows - first_row[row_group]

    def _wanted(self, rows: Int64Array) -> tuple[dict[int, NDArray[np.bool_]], Int64Array]:
        """Return masks of the rows to read, by row group, and the index of each row among them."""
        # By marks: a hundredth of the time that sorting takes.
        sizes = self.policy.order.row_group_rows
        needed = self.policy.needed(rows)
        row_group, local = self._places(needed)
        is_met = np.zeros(len(sizes), bool)
        is_met[row_group] = True
        ends = np.cumsum(np.where(is_met, sizes, 0))
        local += (ends - sizes)[row_group]
        mask = np.zeros(int(ends[-1]), bool)
        mask[local] = True
        if needed is not rows:
            row_group, local = self._places(rows)
            local += (ends - sizes)[row_group]
        met = np.flatnonzero(is_met)
        masks = dict(zip(met.tolist(), np.split(mask, ends[met[:-1]]), strict=True))
        return masks, (np.cumsum(mask, dtype=np.int32) - 1)[local].astype(np.int64)

    def _stored(self, row_group: int, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a mask of the stored rows of a row group, of one of its selected rows."""
        if self.rows.manifest.selection is None:
            return mask
        stored = self.rows.manifest.stored_rows(row_group, np.flatnonzero(mask))
        # How many are stored is not known. The first of them must not look like all of them.
        found = np.zeros(int(stored[-1]) + 1 + (len(stored) == stored[-1] + 1), bool)
        found[stored] = True
        return found


class SampledStream(HoldingStream):
    """Delivers the batches of a share."""

    def __init__(self, rows: Stream, opener: SampledOpener, share: Share) -> None:
        """Read nothing yet."""
        super().__init__(rows, share.num_steps)
        self._opener = opener
        self._are_batches = opener.policy.rows_of_unit > 1
        self._batch_rows = (share.batch_size or 0) * opener.policy.rows_of_unit
        self._blocks = opener._blocks(share)
        self._held: Batch = {}
        self._rows = np.zeros(0, np.int64)  # in the order of samples
        self._index = torch.zeros(0, dtype=torch.int64)  # of them among those that are held
        self._place = 0  # of the next sample
        self._is_valid = True

    def _made(self) -> Batch:
        parts: list[Batch] = []
        missing = self._batch_rows
        while missing:
            if self._place == len(self._index) and not self._read_block():
                break
            taken = slice(self._place, self._place + missing)
            index = self._index[taken]
            part = self._picked(self._rows[taken], index)
            if self._opener.row_valid:
                part[ROW_VALID] = torch.full((len(index),), self._is_valid)
            parts.append(part)
            self._place += len(index)
            missing = 0 if self._are_batches else missing - len(index)
        if not parts:
            raise StopIteration
        return joined(parts)

    def _read_block(self) -> bool:
        """Read what the next samples are of; return False if there are none."""
        block = next(self._blocks, None)
        if block is None:
            return False
        self._is_valid, self._rows = block
        self._held = {}
        self._held = next(self._source)
        self._index, self._place = torch.from_numpy(self._opener._wanted(self._rows)[1]), 0
        return True

    def _picked(self, rows: Int64Array, index: Tensor) -> Batch:
        """Return samples: numbers of their rows, and where these are held."""
        return picked(self._held, index)

    @property
    def next_is_ready(self) -> bool:
        """True if `next` need not wait for reading, and has not ended."""
        left = len(self._index) - self._place
        is_enough = left >= self._batch_rows or (left > 0 and self._are_batches)
        return self._num_taken < self.num_batches and (is_enough or self._source.next_is_ready)

    def _drop(self) -> None:
        self._held = {}
