"""ByLength: rows of similar length in one batch, and streams of such batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchparquet._impl.batches.batch_rows import element_mask_owner, num_rows_of
from torchparquet._impl.batches.fields import Field, check_padding, is_list_of_numbers
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.plan.ranges import Ranges
from torchparquet._impl.plan.share import Share
from torchparquet._impl.reading.reader_arguments import ROW_VALID
from torchparquet._impl.reading.stream import Stream
from torchparquet._impl.sequences.delivered_rows import WindowRows, delivered_rows
from torchparquet._impl.sequences.holding import HoldingOpener, HoldingStream
from torchparquet._impl.sequences.length_pass import Counted, LengthPass, RowGroupLengths
from torchparquet.jagged import Jagged
from torchparquet.options import ByLength

_MAX = 2**31


def _padded(by_length: ByLength, length: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the lengths that lists are padded to where these are the longest, int64 `[n]`."""
    lengths = -(-np.maximum(length, 1) // by_length.multiple_of) * by_length.multiple_of
    if by_length.max_tokens is None:
        return lengths
    most: NDArray[np.int64] = np.minimum(lengths, by_length.max_tokens)
    return np.maximum(length, most)


def _batches_of(by_length: ByLength, row_group: RowGroupLengths) -> list[NDArray[np.int64]]:
    """Return the rows of each batch of a row group, ascending, int64 `[B]` each."""
    lengths = row_group.lengths
    if by_length.max_tokens is None:
        return _of_buckets(by_length, lengths)
    too_long = np.flatnonzero(lengths > by_length.max_tokens)
    if len(too_long):
        row = int(too_long[0])
        raise ValueError(
            f"max_tokens must hold every list of {by_length.column!r}, and is "
            f"{by_length.max_tokens}: "
            f"{row_group.place_of(row)} has {lengths[row]}; leave out long rows with filters="
        )
    order = np.argsort(lengths, kind="stable")
    # Of each row, as the longest of its batch: how many rows of that length fit.
    most = by_length.max_tokens // _padded(by_length, lengths[order])
    most = np.minimum(most, by_length.max_rows or _MAX).tolist()
    begins = [0]
    for place, rows in enumerate(most):
        if place + 1 - begins[-1] > rows:
            begins.append(place)
    return [np.sort(rows) for rows in np.split(order, begins[1:])]


def _of_buckets(by_length: ByLength, lengths: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    sizes = by_length.bucket_batch_sizes or ()
    bucket = np.searchsorted(np.array(by_length.bucket_boundaries), lengths, side="right")
    rows_of = [(np.flatnonzero(bucket == number), size) for number, size in enumerate(sizes)]
    return [rows[at : at + size] for rows, size in rows_of for at in range(0, len(rows), size)]


def counted_field(by_length: ByLength, fields: Sequence[Field]) -> Field:
    """Return the field whose lengths count; check those that are named."""
    named = {field.name: field for field in fields}
    counted = named.get(by_length.column)
    if counted is not None and not is_list_of_numbers(counted):
        kind = "a group of columns" if len(counted.sources) > 1 else counted.kinds[0][0]
        raise ValueError(
            "ByLength counts the items of lists of numbers of any length: name a column of such "
            f"lists, as the tokens of a text are; {counted.name!r} is {kind}"
        )
    for name, value in ({by_length.column: 0} | by_length.padding_of).items():
        if name not in named:
            raise ValueError(f"ByLength names {name!r}, but the columns are {list(named)}")
        check_padding(named[name], value)
    return named[by_length.column]


def group_rows(length_pass: LengthPass, by_length: ByLength, field: Field) -> Manifest:
    """Return the manifest of the batches that rows become."""

    def count(row_group: RowGroupLengths) -> Counted:
        lengths = row_group.lengths
        batches = _batches_of(by_length, row_group)
        longest = np.array([lengths[rows].max() for rows in batches], np.int64)
        num_rows = np.array([len(rows) for rows in batches], np.int64)
        num_places = int((_padded(by_length, longest) * num_rows).sum())
        return len(batches), int(lengths.sum()), num_places, len(lengths)

    rules: list[object] = [by_length.max_tokens, by_length.max_rows, by_length.multiple_of]
    rules += [by_length.bucket_boundaries, by_length.bucket_batch_sizes]
    packed = length_pass.count([field], "batch", rules, count)
    return length_pass.manifest.pack(packed)


def sizes_of_batches(
    length_pass: LengthPass, by_length: ByLength, field: Field
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many rows each batch has, and the length to which its lists are padded."""
    sizes = [np.zeros((2, 0), np.int64)]
    for row_group in length_pass.lengths(field):
        batches = _batches_of(by_length, row_group)
        longest = np.array([row_group.lengths[rows].max() for rows in batches], np.int64)
        num_rows = np.array([len(rows) for rows in batches], np.int64)
        sizes.append(np.stack([num_rows, _padded(by_length, longest)]))
    num_rows, longest = np.concatenate(sizes, axis=1)
    return num_rows, longest


@dataclass
class GroupedOpener(HoldingOpener):
    """Opens streams of batches by length, as `StreamOpener` opens those of rows."""

    by_length: ByLength
    has_single_windows: bool

    @property
    def names(self) -> list[str]:
        """Keys of a batch, in its order."""
        padded = self.by_length.padding_of
        lengths = {name: [f"{name}.length"] for name in padded}
        names = [key for name in self.rows.names for key in (name, *lengths.get(name, ()))]
        return [*names, ROW_VALID] if self.row_valid else names

    def open(self, shares: Sequence[Share], num_workers: int) -> GroupedStream:
        """Open a stream of a share."""
        (share,) = shares
        return GroupedStream(self.rows.open(self.shares_to_read(shares), num_workers), self, share)

    def shares_to_read(self, shares: Sequence[Share]) -> list[Share]:
        """Return the shares of rows that shares of batches need."""
        return [_whole_row_groups(self.rows.manifest, share) for share in shares]


def _row_groups(share: Share) -> list[list[int]]:
    """Return the row groups of each window, or of each chunk without windows."""
    chunks, counts = share.in_windows()
    found = np.split(np.where(chunks.num_rows > 0, chunks.row_group, -1), counts.cumsum())[:-1]
    return [[group for group in dict.fromkeys(one.tolist()) if group >= 0] for one in found]


def _whole_row_groups(manifest: Manifest, share: Share) -> Share:
    """Return the share of rows that a share of batches needs.

    Row groups that two consecutive windows share are read once.
    """
    new: list[int] = []
    held: set[int] = set()
    for row_groups in _row_groups(share):
        new += [group for group in row_groups if group not in held]
        held = set(row_groups)
    row_group = np.array(new, np.int64)
    num_rows = manifest.row_group_num_rows[row_group]
    order = Ranges.whole(row_group, num_rows)
    return Share(0, 1, None, order, int(num_rows.sum()), Ranges.none(), None, num_rows)


class GroupedStream(HoldingStream):
    """Delivers the batches of a share from row groups of a window."""

    def __init__(self, rows: Stream, opener: GroupedOpener, share: Share) -> None:
        """Read nothing yet."""
        super().__init__(rows, share.total_rows)
        self._opener = opener
        self._windows = zip(delivered_rows(share), _row_groups(share), strict=True)
        self._window: WindowRows | None = None
        self._place = 0  # of the next batch in the window
        self._unread: list[int] = []
        self._held: dict[int, tuple[Batch, list[NDArray[np.int64]]]] = {}

    def _made(self) -> Batch:
        self._read_window()
        window, place = self._window, self._place
        assert window is not None  # noqa: S101
        rows, chosen = self._held[int(window.row_group[place])]
        chosen_of = torch.from_numpy(chosen[window.row[place]])
        made = chosen_rows(self._opener.by_length, rows, chosen_of)
        if self._opener.row_valid:
            num_rows = num_rows_of(made)
            made[ROW_VALID] = torch.full((num_rows,), bool(window.valid[place]))
        self._place += 1
        return made

    def _read_window(self) -> None:
        """Read what is needed for the next batch."""
        manifest, by_length = self._opener.rows.manifest, self._opener.by_length
        while True:
            while self._unread:
                row_group, rows = self._unread[0], next(self._source)
                lengths = rows[by_length.column].lengths.numpy()
                found = RowGroupLengths(manifest, row_group, lengths)
                self._held[row_group] = rows, _batches_of(by_length, found)
                del self._unread[0]
            if self._window is not None and self._place < len(self._window.row):
                return
            self._window, self._place = None, 0
            self._window, row_groups = next(self._windows)
            self._held = {group: self._held[group] for group in row_groups if group in self._held}
            self._unread = [group for group in row_groups if group not in self._held]

    @property
    def next_is_ready(self) -> bool:
        """True if `next` need not wait for reading, and has not ended."""
        if self._window is not None and not self._unread and self._place < len(self._window.row):
            return True
        # Of a window of several row groups one is not enough.
        is_enough = self._opener.has_single_windows and self._source.next_is_ready
        return self._num_taken < self.num_batches and is_enough

    def _drop(self) -> None:
        self._held.clear()


def chosen_rows(by_length: ByLength, rows: Batch, chosen: Tensor) -> Batch:
    """Return chosen rows of a batch, with lists padded."""
    padding = by_length.padding_of
    made: Batch = {}
    longest: dict[str, int] = {}
    for name, value in rows.items():
        owner = element_mask_owner(rows, name)
        if owner is not None:
            owner_name = name.removesuffix(".values.valid")
            valid = Jagged(value, owner.offsets).select(chosen)
            is_padded = owner_name in padding
            made[name] = valid.to_padded(longest[owner_name]) if is_padded else valid.values
        elif name in padding:
            lists = value.select(chosen)
            longest[name] = int(_padded(by_length, lists.lengths.max().numpy()))
            made[name] = lists.to_padded(longest[name], pad_value=padding[name])
            made[f"{name}.length"] = lists.lengths
        else:
            made[name] = value[chosen]
    return made
