"""Streams of samples: the rows of a block are read once, and go to batches in their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.files.manifest import Manifest, RowSelection
from torchparquet._impl.native import mark_sampled_rows
from torchparquet._impl.plan.plan_options import Int64Array
from torchparquet._impl.plan.ranges import Ranges
from torchparquet._impl.plan.share import Share, Windows
from torchparquet._impl.reading.stream import Stream
from torchparquet._impl.sampling.policy import Policy
from torchparquet._impl.sequences.holding import HoldingOpener


class Chunk(NamedTuple):
    """Units of blocks, one block of each share side by side."""

    blocks: tuple[int, ...]
    begin: int
    num_units: int
    is_valid: bool


class Part(NamedTuple):
    """The samples of one chunk of a share.

    `selection` has the rows to read, of `row_groups`, int64 `[g]`. `places` are those of the
    samples among these rows, uint32 `[n]`.
    """

    is_valid: bool
    row_groups: Int64Array
    selection: RowSelection
    places: NDArray[np.uint32]

    @property
    def num_read(self) -> int:
        """The rows that are read."""
        return int(self.selection.num_rows.sum())


# Bytes of `max_memory` for each sample whose order, of 4 bytes, a stream has: a sixteenth is for
# orders, which are there twice while the reader takes them.
_MEMORY_PER_SAMPLE = 128


@dataclass(kw_only=True)
class SampledOpener(HoldingOpener):
    """Opens streams of samples of the rows of `rows`."""

    policy: Policy

    def open(self, shares: Sequence[Share], num_workers: int) -> Stream:
        """Open a stream of shares side by side; each chunk is a window of a given order.

        It ends where orders of more samples would not fit their part of the memory.
        """
        shares = self._first_steps(shares, num_workers)
        parts = self._parts(shares, num_workers)
        manifest = self._manifest_of(parts)
        num_read = np.array([part.num_read for part in parts], np.int64)
        num_samples = np.array([len(part.places) for part in parts], np.int64)
        none = np.zeros_like(num_read)
        windows = Windows(
            num_read, none.astype(np.uint64), none, num_samples, np.full(len(parts), None)
        )
        batch_size, batch_sizes = shares[0].batch_size, np.zeros(0, np.int64)
        unit = self.policy.rows_of_unit * len(shares)
        if unit > 1:
            # The last batch of a block may be short, wherever it stands.
            cut = [np.diff(np.arange(0, n + unit, unit).clip(max=n)) for n in num_samples.tolist()]
            batch_size, batch_sizes = None, np.concatenate([batch_sizes, *cut])
        num_row_groups = np.array([len(part.row_groups) for part in parts], np.int64)
        valid = np.repeat(np.array([part.is_valid for part in parts], bool), num_row_groups)
        numbers = np.arange(len(valid))
        read = Share(
            index=0,
            num_shares=1,
            batch_size=batch_size,
            order=Ranges.none(),
            dealt_rows=0,
            further=Ranges(numbers, np.zeros_like(numbers), manifest.row_group_num_rows, valid),
            windows=windows,
            batch_sizes=batch_sizes,
            orders=[part.places for part in parts],
        )
        return self.rows.open([read], num_workers, manifest)

    def shares_to_read(self, shares: Sequence[Share]) -> Sequence[Share]:
        """Return nothing: what the next epoch reads is other rows of row groups."""
        return ()

    def first_rows(self, shares: Sequence[Share]) -> tuple[Int64Array, Int64Array]:
        """Return the row groups and rows of the first batch of shares side by side."""
        first = [share.steps(0, 1) for share in shares]
        return self._places(np.concatenate([rows for _, rows in self.blocks(first)]))

    def row_ids(self, epoch: int) -> Iterator[Int64Array]:
        """Yield the global numbers of the rows of each block of an epoch."""
        first_rows = self.rows.manifest.row_group_first_row
        for block in range(len(self.policy.units)):
            rows = np.sort(self.policy.chosen(epoch, block))
            row_group, local = self._places(rows)
            for number in np.unique(row_group).tolist():
                stored = self.rows.manifest.stored_rows(number, local[row_group == number])
                yield first_rows[number] + stored

    def blocks(self, shares: Sequence[Share]) -> Iterator[tuple[bool, Int64Array]]:
        """Yield the samples of each chunk of shares side by side, and if they are no repeats."""
        for chunk in self.chunks(shares):
            yield chunk.is_valid, self.samples(shares[0].epoch, chunk)

    def _first_steps(self, shares: Sequence[Share], num_workers: int) -> Sequence[Share]:
        """Return the shares up to as many samples as a stream has orders of."""
        memory = self.rows.options.memory_per_worker(num_workers)
        most_units = memory // _MEMORY_PER_SAMPLE // (self.policy.rows_of_unit * len(shares))
        return [share.steps(0, max(1, most_units // (share.batch_size or 1))) for share in shares]

    def chunks(self, shares: Sequence[Share]) -> list[Chunk]:
        """Return the chunks of shares side by side, which have as many, of as many units."""
        lanes = [share.chunks.without_empty() for share in shares]
        blocks = zip(*(lane.row_group.tolist() for lane in lanes), strict=True)
        first = lanes[0]
        of_first = (first.row_begin.tolist(), first.num_rows.tolist(), first.valid.tolist())
        return list(map(Chunk, blocks, *of_first))

    def _parts(self, shares: Sequence[Share], num_workers: int) -> list[Part]:
        """Return the parts of all chunks of shares, found by several threads."""
        epoch = shares[0].epoch
        self.policy.begin(epoch)

        def found(chunk: Chunk) -> Part:
            return Part(chunk.is_valid, *self._wanted(self.samples(epoch, chunk)))

        num_threads = self.rows.options.threads_per_worker(num_workers)
        with ThreadPoolExecutor(min(num_threads, self.policy.most_threads)) as pool:
            return list(pool.map(found, self.chunks(shares)))

    def _manifest_of(self, parts: Sequence[Part]) -> Manifest:
        """Return the manifest of the rows to read; a row group is there for each part."""
        selection = RowSelection.joined([part.selection for part in parts])
        row_groups = [np.zeros(0, np.int64), *(part.row_groups for part in parts)]
        return self.rows.manifest.repeating(np.concatenate(row_groups), selection)

    def samples(self, epoch: int, chunk: Chunk) -> Int64Array:
        """Return the rows of a chunk; each unit has those of all shares."""
        policy = self.policy
        begin = chunk.begin * policy.rows_of_unit
        end = begin + chunk.num_units * policy.rows_of_unit
        found = [policy.part(epoch, block, begin, end) for block in chunk.blocks]
        units = [of.reshape(chunk.num_units, -1) for of in found] if len(found) > 1 else found
        return np.concatenate(units, axis=-1).reshape(-1)

    def _places(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the row groups of rows, and their numbers there, int64 `[n]` each."""
        first_row = self.policy.order.first_row
        row_group: Int64Array = np.searchsorted(first_row, rows, side="right") - 1
        return row_group, rows - first_row[row_group]

    def _wanted(self, rows: Int64Array) -> tuple[Int64Array, RowSelection, NDArray[np.uint32]]:
        """Return the rows to read, by row group, and the place of each row among them."""
        sizes = self.policy.order.row_group_rows
        firsts = np.append(0, np.cumsum(sizes))
        row_groups, words, places = mark_sampled_rows(self.policy.needed(rows), rows, firsts)
        marks = np.unpackbits(words.view(np.uint8), bitorder="little").view(bool)
        # The marks of each row group begin a word of 64.
        begins = np.cumsum(-(-sizes[row_groups] // 64) * 64)[:-1]
        parts = zip(row_groups.tolist(), np.split(marks, begins), strict=True)
        masks = [self._stored(number, mask[: sizes[number]]) for number, mask in parts]
        return row_groups, RowSelection.of_masks(masks), places

    def _stored(self, row_group: int, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a mask of the stored rows of a row group, of one of its selected rows."""
        if self.rows.manifest.selection is None:
            return mask
        stored = self.rows.manifest.stored_rows(row_group, np.flatnonzero(mask))
        # How many are stored is not known. The first of them must not look like all of them.
        found = np.zeros(int(stored[-1]) + 1 + (len(stored) == stored[-1] + 1), bool)
        found[stored] = True
        return found
