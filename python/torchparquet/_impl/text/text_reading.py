"""Reads texts of a file in portions, decoded ahead by the native reader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
    """Consecutive texts of a file."""

    texts: list[str]
    # The portion's rows of each row group, and whether they end it.
    parts: list[tuple[int, bool]]


class TextReader:
    """Reads a column of texts, file after file."""

    def __init__(self, streams: StreamOpener) -> None:
        """Read nothing yet."""
        self._streams = streams
        (self._field,) = streams.fields
        mean_bytes = max(1.0, self._field.row_bytes)
        portion_bytes = min(_MOST_BYTES, _PORTION_BYTES * streams.options.threads_per_worker(1))
        self._portion_rows = max(1, min(_PORTION_ROWS, int(portion_bytes / mean_bytes)))

    @property
    def manifest(self) -> Manifest:
        """The files."""
        return self._streams.manifest

    def portions(self, file: int) -> Iterator[Portion]:
        """Read the texts of a file, in smaller portions if its long texts are side by side."""
        portion_rows, begin = self._portion_rows, 0
        while True:
            try:
                for found in self._portions(file, portion_rows, begin):
                    begin += len(found.texts)
                    yield found
            except MemoryError:
                if portion_rows == 1:
                    raise
                portion_rows = max(1, portion_rows // _FEWER)
            else:
                return

    def _portions(self, file: int, portion_rows: int, begin: int) -> Iterator[Portion]:
        """Read the texts of a file from a row on."""
        manifest = self.manifest
        num_rows = np.where(manifest.row_group_file == file, manifest.row_group_num_rows, 0)
        row_groups = np.flatnonzero(num_rows)
        ends = np.cumsum(num_rows[row_groups])
        plan = EpochPlan(num_rows, PlanOptions(batch_size=portion_rows))
        num_read = 0
        with closing(self._streams.open([plan.share(0)], 1)) as stream:
            for batch in stream:
                column = batch[self._field.name]
                end = num_read + len(column)
                column = column[max(begin - num_read, 0) :]
                num_read = end
                if end <= begin:
                    continue
                is_within = (ends > begin) & (ends - num_rows[row_groups] < end)
                parts, first = [], begin
                for last in ends[is_within].tolist():
                    parts.append((min(last, end) - first, last <= end))
                    first = last
                yield Portion(self._texts(column, row_groups, ends, begin), parts)
                begin = end

    def _texts(self, column: Jagged, row_groups: _Numbers, ends: _Numbers, begin: int) -> list[str]:
        try:
            return column.to_str()
        except UnicodeDecodeError:
            for row, content in enumerate(column.to_bytes()):
                try:
                    content.decode()
                except UnicodeDecodeError as error:
                    at = int(np.searchsorted(ends, begin + row, side="right"))
                    first = int(ends[at - 1]) if at else 0
                    place = self.manifest.place_of(int(row_groups[at]), begin + row - first)
                    raise ValueError(
                        "a text is not UTF-8; write it anew, or leave its row out with rows=: "
                        f"{place}, column {self._field.sources[0]!r}, byte {error.start}"
                    ) from None
            raise


def checked_text(field: Field) -> Field:
    """Return a field; raise unless it has one text a row."""
    is_text = field.has_strings and field.num_offsets == 1 and not field.keyed
    if not is_text or field.words is not None or field.transforms or field.decoded:
        raise ValueError(
            "tokenizer is for a column of strings; leave it out for lists of tokens: "
            f"{field.name!r} is {field.kinds[0][0]}"
        )
    if field.nulls == "mask":
        raise ValueError(
            f'nulls="mask" does not go with pack; {field.name!r} takes "empty" or "error"'
        )
    return field
