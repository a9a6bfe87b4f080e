"""Streams of windows, which are copied from the rows of a block in one piece where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from torchparquet._impl.batches.batch_rows import gatherable, picked
from torchparquet._impl.batches.fields import Field
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.plan.plan_options import Int64Array
from torchparquet._impl.plan.share import Share
from torchparquet._impl.reading.reader_arguments import ROW_VALID
from torchparquet._impl.reading.stream import Stream
from torchparquet._impl.sampling.streams import SampledOpener, SampledStream
from torchparquet._impl.sampling.windows import Windows
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
            for field in self.fields
            if field.name in self.policy.window.columns
            for name in (field.name, *field.mask_names)
        }

    @property
    def names(self) -> list[str]:
        """Keys of a batch, in its order."""
        masks = dict.fromkeys(self.policy.window.mask_of.values())
        return [*self.rows.names, *masks, *([ROW_VALID] if self.row_valid else [])]

    def _stream(self, rows: Stream, shares: Sequence[Share]) -> WindowStream:
        return WindowStream(rows, self, shares)


class WindowStream(SampledStream):
    """Delivers the windows of a share."""

    _opener: WindowOpener

    def _picked(self, rows: Int64Array, index: Tensor) -> Batch:
        """Return the windows of anchors."""
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
        odd = np.arange(len(rows))
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
