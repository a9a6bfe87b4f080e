"""Streams of sequences of texts that are tokenised on the way."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from torchparquet._impl.batches.batch_rows import num_rows_of, sliced
from torchparquet._impl.batches.fields import Field
from torchparquet._impl.batches.tensors import MARKS, Batch, batch_names, boundaries_of
from torchparquet._impl.native import DocumentPacker
from torchparquet._impl.plan.ranges import Ranges
from torchparquet._impl.plan.share import Share
from torchparquet._impl.reading.reader_arguments import pack_request
from torchparquet._impl.reading.stream import Stream
from torchparquet._impl.sequences.holding import HoldingOpener, HoldingStream
from torchparquet._impl.text.text_reading import TextReader
from torchparquet._impl.text.token_files import encoded
from torchparquet._impl.text.tokenizer import Tokenizer


@dataclass(kw_only=True)
class TextOpener(HoldingOpener):
    """Opens streams of packed sequences; `rows` are texts, `packed` the fields of their tokens."""

    tokenizer: Tokenizer
    packed: tuple[Field, ...]
    batch_size: int
    drop_last: bool

    @property
    def fields(self) -> tuple[Field, ...]:
        """The tensors of a batch."""
        return self.packed

    @property
    def names(self) -> list[str]:
        """Keys of a batch, in its order."""
        return batch_names(self.packed)

    def open(self, shares: Sequence[Share], num_workers: int) -> TextStream:
        """Open a stream of a share of claims."""
        (share,) = shares
        return TextStream(self, share)

    def shares_to_read(self, shares: Sequence[Share]) -> Sequence[Share]:
        """Return the shares as they are: nobody knows those of the next epoch."""
        return shares


class TextStream(HoldingStream):
    """Delivers batches of the sequences of row groups that the rank claims.

    Texts are read and tokenised ahead; sequences are packed when a batch needs them. How many a
    row group has is entered in the claims at its end, and so is in states: what is packed after
    them goes on there.
    """

    def __init__(self, opener: TextOpener, share: Share) -> None:
        """Read nothing yet."""
        claims = share.claims
        assert claims is not None  # noqa: S101
        self._opener, self._claims = opener, claims
        ends = np.cumsum([0, *claims.counts])
        self._number = int(np.searchsorted(ends, share.skipped_rows, side="right")) - 1
        self._num_skipped = share.skipped_rows - int(ends[self._number])
        rows = opener.rows.manifest.row_group_num_rows
        read = np.array(claims.taken[: self._number], dtype=np.intp)
        order = Ranges.whole(share.order.row_group, rows[share.order.row_group])
        texts = replace(
            share,
            order=order,
            dealt_rows=int(rows.sum()),
            skipped_rows=int(order.num_rows[read].sum()),
        )
        self._texts = TextReader(opener.rows)
        self._encoded = encoded(opener.tokenizer, self._texts.portions(texts))
        super().__init__(self._text_stream, -1)
        requests = [pack_request(field) for field in opener.packed]
        self._requests = [request for request in requests if request is not None]
        self._held: deque[Batch] = deque()
        self._num_held = 0
        self._begin_row_group()

    def _begin_row_group(self) -> None:
        self._packer = DocumentPacker(self._requests[0])
        self._values: list[NDArray[Any]] = [
            np.zeros(0, field.dtype) for field in self._opener.packed
        ]
        self._first_value = self._num_sequences = 0

    @property
    def _text_stream(self) -> Stream:
        """The stream of texts, or of a share's rest in smaller portions."""
        assert self._texts.stream is not None  # noqa: S101
        return self._texts.stream

    def _made(self) -> Batch:
        opener = self._opener
        while self._num_held < opener.batch_size:
            found = next(self._encoded, None)
            self._source = self._text_stream
            if found is None:
                break
            self._pack(*found)
        if self._num_held < (opener.batch_size if opener.drop_last else 1):
            raise StopIteration
        parts = self._taken(min(opener.batch_size, self._num_held))
        # A copy, for the batch is not to keep the memory of others.
        batch = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        if MARKS in batch:
            field = opener.packed[0]
            assert field.pack is not None  # noqa: S101
            found_of = boundaries_of(batch.pop(MARKS), field.pack)
            batch.update(zip(field.mask_names, found_of, strict=True))
        return {name: batch[name] for name in opener.names}

    def _taken(self, num_sequences: int) -> list[Batch]:
        """Take sequences off those that are held."""
        parts, self._num_held = [], self._num_held - num_sequences
        while num_sequences:
            rows = self._held.popleft()
            count = num_rows_of(rows)
            if count > num_sequences:
                self._held.appendleft(sliced(rows, num_sequences, count))
                rows = sliced(rows, 0, num_sequences)
            num_sequences -= num_rows_of(rows)
            parts.append(rows)
        return parts

    def _pack(self, tokens: pa.RecordBatch, is_end: bool) -> None:
        """Pack documents of a row group, and hold the sequences that are complete."""
        fields, packer = self._opener.packed, self._packer
        packer.add(np.diff(tokens[0].offsets.to_numpy()).astype(np.int64))
        for at, field in enumerate(fields):
            values = tokens[at].flatten().to_numpy(zero_copy_only=False)
            self._values[at] = np.concatenate([self._values[at], values.astype(field.dtype)])
        if is_end:
            packer.finish()
        count, made = packer.num_sequences, Batch()
        marks = np.empty((count, fields[0].length or 0), np.uint8) if fields[0].has_mask else None
        for at, field in enumerate(fields):
            out = np.empty((count, field.length or 0), field.dtype)
            of_field = None if at else marks
            packer.write(self._requests[at], self._values[at], self._first_value, out, of_field)
            made[field.name] = torch.from_numpy(out)
        if marks is not None:
            made[MARKS] = torch.from_numpy(marks)
        open_value = packer.clear()
        self._values = [values[open_value - self._first_value :] for values in self._values]
        self._first_value = open_value
        self._num_sequences += count
        skipped = min(self._num_skipped, count)
        self._num_skipped -= skipped
        if count > skipped:
            self._held.append(sliced(made, skipped, count))
            self._num_held += count - skipped
        if is_end:
            if self._number == len(self._claims.counts):
                self._claims.counts.append(self._num_sequences)
            self._number += 1
            self._begin_row_group()

    @property
    def next_is_ready(self) -> bool:
        """True if `next` need not wait, and has not ended."""
        return self._num_held >= self._opener.batch_size

    def _drop(self) -> None:
        # Another thread may close the stream while this one is within.
        with suppress(ValueError):
            self._encoded.close()
        self._held.clear()
        self._num_held = 0
