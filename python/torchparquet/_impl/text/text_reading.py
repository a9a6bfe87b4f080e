"""Reads texts of a file in portions, decoded ahead by the native reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.batches.columns import MESSAGE
from torchparquet._impl.batches.fields import Field
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.reading.streams import StreamOpener
from torchparquet.jagged import Jagged

# For each thread of the tokenizer, so that all have some documents; a few portions are in memory.
_PORTION_BYTES, _MOST_BYTES, _PORTION_ROWS = 512 << 10, 8 << 20, 1 << 11
_FEWER = 8  # times fewer rows, for texts that do not fit the memory

_Numbers: TypeAlias = NDArray[np.int64]


class Portion(NamedTuple):
    """Consecutive texts of a part, or conversations: lists of messages, dicts of MESSAGE."""

    texts: list[Any]
    # The portion's rows of each row group, and whether they end it.
    parts: list[tuple[int, bool]]
    place_of: Callable[[int], str]


class TextReader:
    """Reads a column of texts, or those of conversations, part after part.

    A part is a slice of the row groups: those of a file, or some of a large file.
    """

    def __init__(self, streams: StreamOpener) -> None:
        """Read nothing yet."""
        self._streams = streams
        self._fields = streams.fields
        mean_bytes = max(1.0, sum(field.row_bytes for field in self._fields))
        portion_bytes = min(_MOST_BYTES, _PORTION_BYTES * streams.options.threads_per_worker(1))
        self._portion_rows = max(1, min(_PORTION_ROWS, int(portion_bytes / mean_bytes)))

    @property
    def manifest(self) -> Manifest:
        """The files."""
        return self._streams.manifest

    def portions(self, part: slice) -> Iterator[Portion]:
        """Read the texts of a part, in smaller portions if its long texts are side by side."""
        portion_rows, begin = self._portion_rows, 0
        while True:
            try:
                for found in self._portions(part, portion_rows, begin):
                    begin += len(found.texts)
                    yield found
            except MemoryError:
                if portion_rows == 1:
                    raise
                portion_rows = max(1, portion_rows // _FEWER)
            else:
                return

    def _portions(self, part: slice, portion_rows: int, begin: int) -> Iterator[Portion]:
        """Read the texts of a part from a row on."""
        num_rows = np.zeros_like(self.manifest.row_group_num_rows)
        num_rows[part] = self.manifest.row_group_num_rows[part]
        row_groups = np.flatnonzero(num_rows)
        ends = np.cumsum(num_rows[row_groups])
        plan = EpochPlan(num_rows, PlanOptions(batch_size=portion_rows))
        num_read = 0
        with closing(self._streams.open([plan.share(0)], 1)) as stream:
            for batch in stream:
                columns = [batch[field.name] for field in self._fields]
                end = num_read + len(columns[0])
                columns = [column[max(begin - num_read, 0) :] for column in columns]
                num_read = end
                if end <= begin:
                    continue
                is_within = (ends > begin) & (ends - num_rows[row_groups] < end)
                parts, first = [], begin
                for last in ends[is_within].tolist():
                    parts.append((min(last, end) - first, last <= end))
                    first = last
                place_of = partial(self._place_of, row_groups, ends, begin)
                pairs = zip(self._fields, columns, strict=True)
                texts = [self._texts(*pair, place_of) for pair in pairs]
                yield Portion(_joined(texts, place_of), parts, place_of)
                begin = end

    def _place_of(self, row_groups: _Numbers, ends: _Numbers, begin: int, row: int) -> str:
        at = int(np.searchsorted(ends, begin + row, side="right"))
        first = int(ends[at - 1]) if at else 0
        return self.manifest.place_of(int(row_groups[at]), begin + row - first)

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
