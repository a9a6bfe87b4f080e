"""Reads texts in portions, decoded ahead by the native reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from torchparquet._impl.batches.columns import MESSAGE
from torchparquet._impl.batches.fields import Field
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.plan.ranges import Ranges
from torchparquet._impl.plan.share import Share
from torchparquet._impl.reading.stream import Stream
from torchparquet._impl.reading.streams import StreamOpener
from torchparquet.jagged import Jagged

# For each thread of the tokenizer, so that all have some documents; a few portions are in memory.
_PORTION_BYTES, _MOST_BYTES, _PORTION_ROWS = 512 << 10, 8 << 20, 1 << 11
_FEWER = 8  # times fewer rows, for texts that do not fit the memory


class Portion(NamedTuple):
    """Consecutive texts of a share, or conversations: lists of messages, dicts of MESSAGE."""

    texts: list[Any]
    # The portion's rows of each row group, and whether they end it.
    parts: list[tuple[int, bool]]
    place_of: Callable[[int], str]


class TextReader:
    """Reads a column of texts, or those of conversations, in portions."""

    def __init__(self, streams: StreamOpener) -> None:
        """Read nothing yet."""
        self.stream: Stream | None = None  # that the latest portions are read from
        self._streams = streams
        self._fields = streams.fields
        mean_bytes = max(1.0, sum(field.row_bytes for field in self._fields))
        portion_bytes = min(_MOST_BYTES, _PORTION_BYTES * streams.options.threads_per_worker(1))
        self._portion_rows = max(1, min(_PORTION_ROWS, int(portion_bytes / mean_bytes)))

    @property
    def manifest(self) -> Manifest:
        """The files."""
        return self._streams.manifest

    def of_part(self, part: slice) -> Share:
        """Return the rows of some row groups: those of a file, or of a part of a large file."""
        num_rows = np.zeros_like(self.manifest.row_group_num_rows)
        num_rows[part] = self.manifest.row_group_num_rows[part]
        return EpochPlan(num_rows, PlanOptions(batch_size=1)).share(0)

    def portions(self, share: Share) -> Iterator[Portion]:
        """Open a stream of the texts of a share, whatever its batches."""
        portion_rows = self._portion_rows
        return self._portions(share, portion_rows, self._opened(share, portion_rows))

    def close(self) -> None:
        """Join the threads of the latest portions."""
        if self.stream is not None:
            self.stream.close()

    def _opened(self, share: Share, portion_rows: int) -> Stream:
        self.close()
        self.stream = self._streams.open([replace(share, batch_size=portion_rows)], 1)
        return self.stream

    def _portions(self, share: Share, portion_rows: int, stream: Stream) -> Iterator[Portion]:
        """Read the portions, smaller ones if the share's long texts are side by side."""
        while True:
            try:
                for batch in stream:
                    found = self._portion(share, batch)
                    share = replace(share, skipped_rows=share.skipped_rows + len(found.texts))
                    yield found
            except MemoryError:
                if portion_rows == 1:
                    raise
                portion_rows = max(1, portion_rows // _FEWER)
                stream = self._opened(share, portion_rows)
            else:
                return

    def _portion(self, share: Share, batch: Batch) -> Portion:
        """Return the texts that follow the skipped rows of a share."""
        ranges, claims = share.order, share.claims
        if claims is not None:
            ranges = ranges.pick(np.array(claims.taken, dtype=np.intp))
        ranges = ranges.pick(ranges.num_rows > 0)
        columns = [batch[field.name] for field in self._fields]
        begin = first = share.skipped_rows
        end = begin + len(columns[0])
        is_within = (ranges.ends > begin) & (ranges.ends - ranges.num_rows < end)
        parts = []
        for last in ranges.ends[is_within].tolist():
            parts.append((min(last, end) - first, last <= end))
            first = last
        place_of = partial(self._place_of, ranges, begin)
        pairs = zip(self._fields, columns, strict=True)
        texts = [self._texts(*pair, place_of) for pair in pairs]
        return Portion(_joined(texts, place_of), parts, place_of)

    def _place_of(self, ranges: Ranges, begin: int, row: int) -> str:
        at = int(np.searchsorted(ranges.ends, begin + row, side="right"))
        first = int(ranges.ends[at - 1]) if at else 0
        return self.manifest.place_of(int(ranges.row_group[at]), begin + row - first)

    def _texts(self, field: Field, column: Jagged, place_of: Callable[[int], str]) -> list[Any]:
        try:
            return column.to_str()
        except UnicodeDecodeError:
            for row in range(len(column)):
                try:
                    column[row : row + 1].to_str()
                except UnicodeDecodeError as error:
                    raise ValueError(
                        "a text is not UTF-8; write it anew, or leave its row out with rows=: "
                        f"{place_of(row)}, column {field.sources[0]!r}, byte {error.start}"
                    ) from None
            raise


def _joined(columns: list[list[Any]], place_of: Callable[[int], str]) -> list[Any]:
    """Return texts, or the conversations of their roles and contents."""
    if len(columns) == 1:
        return columns[0]
    made = []
    for row, of_row in enumerate(zip(*columns, strict=True)):
        try:
            messages = list(zip(*of_row, strict=True))
        except ValueError:
            raise ValueError(
                f"a conversation has {len(of_row[0])} roles and {len(of_row[1])} contents: "
                f"{place_of(row)}"
            ) from None
        made.append([dict(zip(MESSAGE, message, strict=True)) for message in messages])
    return made


def checked_text(field: Field, chat: bool) -> Field:
    """Return a field; raise unless it has one text a row, or one a message."""
    is_text = field.has_strings and field.num_offsets == 1 + chat and not field.keyed
    if not is_text or field.words is not None or field.transforms or field.decoded:
        if chat:
            raise ValueError(
                "chat=True is for a column of lists of messages, structs of role and content; "
                f"{field.sources[0]!r} is {field.kinds[0][0]}"
            )
        raise ValueError(
            "tokenizer is for a column of strings; leave it out for lists of tokens: "
            f"{field.name!r} is {field.kinds[0][0]}"
        )
    if field.nulls == "mask":
        raise ValueError(
            f'nulls="mask" does not go with pack; {field.name!r} takes "empty" or "error"'
        )
    return replace(field, takes_mask=False)
