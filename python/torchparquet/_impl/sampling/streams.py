"""Streams of samples: the rows of a block are read once, and copied to batches in their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from torchparquet._impl.batches.batch_rows import joined, num_rows_of, picked
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

    @property
    def names(self) -> list[str]:
        """Keys of a batch, in its order."""
        return [*self.rows.names, ROW_VALID] if self.row_valid else self.rows.names

    def open(self, shares: Sequence[Share], num_workers: int) -> SampledStream:
        """Open a stream of a share, whose blocks the reader delivers one by one."""
        (share,) = shares
        row_groups, masks, sizes = [], [], []
        for _, rows in self._blocks(share):
            distinct = np.unique(rows)
            sizes.append(len(distinct))
            for row_group, of_group in self._by_row_group(distinct):
                row_groups.append(row_group)
                masks.append(self._mask(row_group, of_group))
        selection = RowSelection.of_masks(masks)
        manifest = self.rows.manifest.repeating(np.array(row_groups), selection)
        order = Ranges.whole(np.arange(len(row_groups)), selection.num_rows)
        total, batches = int(selection.num_rows.sum()), np.array(sizes, np.int64)
        read = Share(0, 1, None, order, total, Ranges.none(), None, batches)
        return SampledStream(self.rows.open([read], num_workers, manifest), self, share)

    def shares_to_read(self, shares: Sequence[Share]) -> Sequence[Share]:
        """Return nothing: what the next epoch reads is other rows of row groups."""
        return ()

    def first_rows(self, share: Share) -> tuple[Int64Array, Int64Array]:
        """Return the row groups and rows of the first batch of a share."""
        first = share.steps(0, 1)
        rows = np.concatenate([rows for _, rows in self._blocks(first)])
        order = self.policy.order
        row_group = np.searchsorted(order.first_row, rows, side="right") - 1
        return row_group, rows - order.first_row[row_group]

    def row_ids(self, epoch: int) -> Iterator[Int64Array]:
        """Yield the global numbers of the rows of each block of an epoch."""
        first_rows = self.rows.manifest.row_group_first_row
        for block in range(len(self.policy.units)):
            for row_group, rows in self._by_row_group(np.sort(self.policy.rows(epoch, block))):
                yield first_rows[row_group] + self.rows.manifest.stored_rows(row_group, rows)

    def _blocks(self, share: Share) -> Iterator[tuple[bool, Int64Array]]:
        """Yield the samples of each chunk of a share, and whether they count as delivered."""
        chunks, policy = share.chunks.without_empty(), self.policy
        for chunk in zip(*(array.tolist() for array in chunks.arrays()), strict=True):
            block, begin, count, is_valid = chunk
            first, end = (of * policy.rows_of_unit for of in (begin, begin + count))
            yield is_valid, policy.rows(share.epoch, block)[first:end]

    def _by_row_group(self, rows: Int64Array) -> Iterator[tuple[int, Int64Array]]:
        """Yield the row groups of ascending rows, and which of the rows each has."""
        firsts = self.policy.order.first_row
        row_group = np.searchsorted(firsts, rows, side="right") - 1
        groups, begins = np.unique(row_group, return_index=True)
        for group, part in zip(groups.tolist(), np.split(rows, begins[1:]), strict=True):
            yield group, part - firsts[group]

    def _mask(self, row_group: int, rows: Int64Array) -> NDArray[np.bool_]:
        """Return which stored rows of a row group are wanted."""
        stored = self.rows.manifest.stored_rows(row_group, rows)
        num_rows = int(self.rows.manifest.row_group_num_rows[row_group])
        if self.rows.manifest.selection is not None:
            # How many are stored is not known. The first of them must not look like all of them.
            num_rows = int(stored[-1]) + 1 + (len(stored) == stored[-1] + 1)
        mask = np.zeros(num_rows, bool)
        mask[stored] = True
        return mask


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
        self._index = torch.zeros(0, dtype=torch.int64)  # of held rows, in the order of samples
        self._place = 0  # of the next sample
        self._is_valid = True

    def _made(self) -> Batch:
        parts: list[Batch] = []
        missing = self._batch_rows
        while missing:
            if self._place == len(self._index) and not self._read_block():
                break
            index = self._index[self._place : self._place + missing]
            part = picked(self._held, index)
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
        self._is_valid, rows = block
        self._held = {}
        self._held = next(self._source)
        distinct, index = np.unique(rows, return_inverse=True)
        if num_rows_of(self._held) != len(distinct):
            raise RuntimeError(
                f"{num_rows_of(self._held)} rows were read for {len(distinct)} that are sampled"
            )
        self._index, self._place = torch.from_numpy(index.reshape(-1)), 0
        return True

    @property
    def next_is_ready(self) -> bool:
        """True if `next` need not wait for reading, and has not ended."""
        left = len(self._index) - self._place
        is_enough = left >= self._batch_rows or (left > 0 and self._are_batches)
        return self._num_taken < self.num_batches and (is_enough or self._source.next_is_ready)

    def _drop(self) -> None:
        self._held = {}
