"""Streams of windows, which are copied from the rows of a block in one piece where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from torchparquet._impl.batches.batch_rows import gatherable, joined, picked
from torchparquet._impl.batches.fields import Field
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.plan.plan_options import Int64Array
from torchparquet._impl.plan.ranges import Ranges
from torchparquet._impl.plan.share import Share
from torchparquet._impl.reading.reader_arguments import ROW_VALID
from torchparquet._impl.reading.stream import Stream
from torchparquet._impl.sampling.streams import Part, SampledOpener
from torchparquet._impl.sampling.windows import Windows
from torchparquet._impl.sequences.holding import HoldingStream
from torchparquet.jagged import Jagged
from torchparquet.options import Window


@dataclass(kw_only=True)
class WindowOpener(SampledOpener):
    """Opens streams of windows of the rows of `rows`."""

    policy: Windows

    def __post_init__(self) -> None:
        """Find the tensors of windowed columns."""
        self.column_of = {
            name: field.name
            for field in self.rows.fields
            if field.name in self.policy.window.columns
            for name in (field.name, *field.mask_names)
        }

    @property
    def fields(self) -> tuple[Field, ...]:
        """The tensors of a batch, with the rows of windows."""
        length_of = {name: len(of) for name, of in self.policy.window.offsets_of.items()}
        return tuple(replace(field, window=length_of.get(field.name)) for field in self.rows.fields)

    @property
    def names(self) -> list[str]:
        """Keys of a batch, in its order."""
        masks = dict.fromkeys(self.policy.window.mask_of.values())
        return [*self.rows.names, *masks, *([ROW_VALID] if self.row_valid else [])]

    def open(self, shares: Sequence[Share], num_workers: int) -> WindowStream:
        """Open a stream of a share, whose blocks the reader delivers one by one."""
        (share,) = shares = self._first_steps(shares, num_workers)
        parts = self._parts(shares, num_workers)
        manifest = self._manifest_of(parts)
        num_rows = manifest.row_group_num_rows
        order = Ranges.whole(np.arange(len(num_rows)), num_rows)
        sizes = np.array([part.num_read for part in parts], np.int64)
        read = Share(0, 1, None, order, int(sizes.sum()), Ranges.none(), None, sizes)
        return WindowStream(self.rows.open([read], num_workers, manifest), self, share, parts)


class WindowStream(HoldingStream):
    """Delivers the windows of a share."""

    def __init__(
        self, rows: Stream, opener: WindowOpener, share: Share, parts: Sequence[Part]
    ) -> None:
        """Read nothing yet."""
        super().__init__(rows, share.num_steps)
        self._opener = opener
        self._batch_size = share.batch_size or 0
        self._parts = iter(parts)
        self._blocks = opener.blocks([share])
        self._held: Batch = {}
        self._rows = np.zeros(0, np.int64)  # in the order of samples, unless windows are pieces
        self._index = torch.zeros(0, dtype=torch.int64)  # of them among those that are held
        self._place = 0  # of the next sample
        self._is_valid = True

    def _made(self) -> Batch:
        made: list[Batch] = []
        missing = self._batch_size
        while missing:
            if self._place == len(self._index) and not self._read_block():
                break
            taken = slice(self._place, self._place + missing)
            index = self._index[taken]
            part = self._picked(self._rows[taken], index)
            if self._opener.row_valid:
                part[ROW_VALID] = torch.full((len(index),), self._is_valid)
            made.append(part)
            self._place += len(index)
            missing -= len(index)
        if not made:
            raise StopIteration
        return joined(made)

    def _read_block(self) -> bool:
        """Read what the next samples are of; return False if there are none."""
        part = next(self._parts, None)
        if part is None:
            return False
        self._held = {}
        self._is_valid = part.is_valid
        if not self._opener.policy.are_pieces:
            _, self._rows = next(self._blocks)
        self._index, self._place = torch.from_numpy(part.places.astype(np.int64)), 0
        self._held = next(self._source)
        return True

    @property
    def next_is_ready(self) -> bool:
        """True if `next` need not wait for reading, and has not ended."""
        is_enough = len(self._index) - self._place >= self._batch_size
        return self._num_taken < self.num_batches and (is_enough or self._source.next_is_ready)

    def _drop(self) -> None:
        self._held = {}

    def _picked(self, rows: Int64Array, index: Tensor) -> Batch:
        """Return the windows of anchors: their rows, unless all are pieces, and their places."""
        window, column_of = self._opener.policy.window, self._opener.column_of
        offsets_of, mask_of = window.offsets_of, window.mask_of
        made = picked({n: of for n, of in self._held.items() if n not in column_of}, index)
        places: dict[Sequence[float], _Places] = {}
        masks: Batch = {}
        for name, column in column_of.items():
            offsets = offsets_of[column]
            if offsets not in places:
                places[offsets] = _Places(self._opener.policy, rows, index, offsets)
            made[name] = places[offsets].copied(self._held[name], zeros=bool(mask_of))
            if mask_of and mask_of[column] not in masks:
                masks[mask_of[column]] = places[offsets].mask()
        return {name: made[name] for name in self._held} | masks


class _Places:
    """The places of the rows of windows.

    Windows that are whole, of offsets without a gap, are one piece of the held rows. The numbers
    of the others are in `_odd`, int64 `[o]`.
    """

    def __init__(
        self, policy: Windows, rows: Int64Array, index: Tensor, offsets: Sequence[float]
    ) -> None:
        """Take the anchors: the numbers of their rows, and where these are held."""
        episodes, self._length = policy.episodes, len(offsets)
        self._is_one_piece = episodes.times is None and offsets[-1] - offsets[0] < len(offsets)
        self._starts = index + int(offsets[0])
        if self._is_one_piece and policy.are_pieces:
            self._odd = index[:0]
            return
        odd = np.arange(len(index))
        if policy.are_pieces:
            places = np.tile(np.array(offsets, np.int64), (len(odd), 1))
            are_there = np.ones(places.shape, bool)
        else:
            if self._is_one_piece:
                first, last = episodes.around(rows)
                odd = np.flatnonzero((rows + offsets[0] < first) | (rows + offsets[-1] > last))
            places, are_there = episodes.places(rows[odd], offsets)
        self._odd = torch.from_numpy(odd)
        self._places = index[self._odd, None] + torch.from_numpy(places)  # [o, T]
        self._are_there = torch.from_numpy(are_there)

    def mask(self) -> Tensor:
        """Return which rows are in the episode, bool `[B, T]`."""
        mask = torch.ones((len(self._starts), self._length), dtype=torch.bool)
        if len(self._odd):
            mask[self._odd] = self._are_there
        return mask

    def copied(self, held: Tensor | Jagged, *, zeros: bool) -> Tensor | Jagged:
        """Return the windows of a column; with `zeros`, these stand for rows that are not there."""
        num_windows = len(self._starts)
        if isinstance(held, Jagged):
            places = self._starts[:, None] + torch.arange(self._length)
            if len(self._odd):
                places[self._odd] = self._places
            offsets = torch.arange(num_windows + 1) * self._length
            return Jagged(held.select(places.reshape(-1)), offsets)
        rows = gatherable(held).contiguous()
        shape = (num_windows, self._length, *rows.shape[1:])
        if len(self._odd) == num_windows:
            return self._by_rows(rows, zeros=zeros).view(shape).view(held.dtype)
        width, num_starts = rows[0].numel(), len(rows) - self._length + 1
        pieces = rows.as_strided((num_starts, self._length * width), (width, 1))
        made = pieces.index_select(0, self._starts.clamp(0, num_starts - 1)).view(shape)
        if len(self._odd):
            made[self._odd] = self._by_rows(rows, zeros=zeros)
        return made.view(held.dtype)

    def _by_rows(self, rows: Tensor, *, zeros: bool) -> Tensor:
        """Return the windows that are no piece, row by row."""
        found = rows.index_select(0, self._places.reshape(-1))
        if zeros:
            found[~self._are_there.reshape(-1)] = 0
        return found.view(len(self._odd), self._length, *rows.shape[1:])


def check_windowed(window: Window, fields: Sequence[Field]) -> None:
    """Check that columns can be windowed."""
    named = {field.name: field for field in fields}
    for name in window.columns:
        if name not in named:
            raise ValueError(
                f"columns of Window must be columns of the batch, {list(named)}; got {name!r}"
            )
        field = named[name]
        if field.keyed:
            raise ValueError(
                f"a KeyedJagged has no windows: name the columns of {name!r} one by one"
            )
        if field.decoded:
            raise ValueError(
                f"Column(decode=) does not go with windows: decode {name!r} in a transform"
            )
        if field.num_offsets and window.edges == "pad":
            raise ValueError(
                'edges="pad" needs columns of one shape: take "repeat" or "drop", or read the '
                f"column with a length; {name!r} has strings or lists of any length"
            )
        if len(field.mask_names) > 1:
            raise ValueError(
                f'nulls="mask" does not go with windows of lists: {name!r} takes a fill value'
            )
