"""Decodes everything in a file, and locates failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

from torchparquet._impl.batches.fields import Field
from torchparquet._impl.files.footers.leaf import Leaf
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.opening import opened, source_of
from torchparquet._impl.files.schemas import Schemas
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.reading.read_options import ReadOptions
from torchparquet._impl.reading.streams import StreamOpener
from torchparquet._impl.reading.window_limits import window_memory
from torchparquet.errors import one_line
from torchparquet.tools.inspect.column_chunks import chunk_places, read_footer
from torchparquet.tools.inspect.pages import PageFacts, page_headers
from torchparquet.tools.inspect.tensors import tensor_of

_BATCH_ROWS = 8192
_BATCHES_IN_MEMORY = 8

Advance = Callable[[int], None]


@dataclass(frozen=True)
class Failure:
    """One fault of a file.

    Attributes:
        row_group: Number within the file; None if the fault concerns the file.
    """

    path: str
    row_group: int | None
    column: str | None
    error: str


@dataclass
class FileCheck:
    """The findings of one file."""

    rows: int = 0
    columns: int = 0
    columns_by_pyarrow: list[str] = field(default_factory=list)
    pages: int = 0
    pages_with_checksum: int = 0
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True)
class _Column:
    """A column as the stream delivers it, with facts from its footer."""

    path: str
    field: Field
    counts_nulls: bool
    nulls: tuple[int | None, ...]


class FileDecoder:
    """Decodes one file as a whole, or piece by piece if that fails."""

    def __init__(self, manifest: Manifest, options: ReadOptions) -> None:
        """Read the footer."""
        (self._path,) = manifest.files
        self._manifest = manifest
        self._options = options
        self._metadata = read_footer(self._path, manifest.remote)
        self._leaves = manifest.schemas[int(manifest.file_schema[0])]
        self._columns: list[_Column] = []
        self._others: list[int] = []
        schemas = Schemas(manifest)
        for index, leaf in enumerate(self._leaves):
            _, found = tensor_of(leaf.path, schemas)
            if found is None:
                self._others.append(index)
            else:
                self._columns.append(self._column(index, leaf, found))

    def _column(self, index: int, leaf: Leaf, found: Field) -> _Column:
        nulls = []
        for row_group in range(self._metadata.num_row_groups):
            chunk = self._metadata.row_group(row_group).column(index)
            known = chunk.is_stats_set and chunk.statistics.has_null_count
            nulls.append(chunk.statistics.null_count if known else None)
        # Numbers stand for names: a column "a.valid" would collide with the mask of a column "a".
        return _Column(leaf.path, replace(found, name=str(index)), not leaf.num_lists, tuple(nulls))

    def check(self, advance: Advance) -> FileCheck:
        """Decode everything, and return the findings."""
        found = FileCheck(rows=self._manifest.num_rows, columns=len(self._leaves))
        if self._columns:
            found.failures += self._check_all(advance)
        else:
            advance(self._manifest.num_rows)
        for index in self._others:
            found.columns_by_pyarrow.append(self._leaves[index].path)
            found.failures += self._check_by_pyarrow(index)
        self._count_pages(found)
        return found

    def _check_all(self, advance: Advance) -> list[Failure]:
        groups = range(self._manifest.num_row_groups)
        done = 0

        def forward(rows: int) -> None:
            nonlocal done
            done += rows
            advance(rows)

        try:
            faults = self._faults(self._columns, groups, forward)
        except Exception as error:  # whatever fails, its row group names it
            faults = [(None, one_line(error))]
        advance(self._manifest.num_rows - done)
        if not faults:
            return []
        failures = [failure for group in groups for failure in self._check_row_group(group)]
        # A fault that no row group shows alone concerns the file.
        return failures or [Failure(self._path, None, column, error) for column, error in faults]

    def _check_row_group(self, group: int) -> list[Failure]:
        number = int(self._manifest.row_group_in_file[group])
        try:
            faults = self._faults(self._columns, [group])
        except Exception as error:
            faults = []
            for column in self._columns:
                try:
                    faults += self._faults([column], [group])
                except Exception as own:
                    faults.append((column.path, one_line(own)))
            faults = faults or [(None, one_line(error))]
        return [Failure(self._path, number, column, error) for column, error in faults]

    def _faults(
        self,
        columns: Sequence[_Column],
        groups: Sequence[int],
        advance: Advance = lambda _: None,
    ) -> list[tuple[str | None, str]]:
        """Decode columns of row groups; return each contradiction to the footer with its column."""
        kept = np.zeros(self._manifest.num_row_groups, bool)
        kept[list(groups)] = True
        manifest = self._manifest.keep(kept)
        if manifest.num_rows == 0:
            return []
        rows = dict.fromkeys([column.field.name for column in columns], 0)
        nulls = dict(rows)
        for batch in self._batches(manifest, columns):
            num_rows = 0
            for column in columns:
                name = column.field.name
                num_rows = len(batch[name])
                rows[name] += num_rows
                nulls[name] += num_rows - int(batch[f"{name}.valid"].sum())
            advance(num_rows)
        faults: list[tuple[str | None, str]] = []
        for column in columns:
            name = column.field.name
            if rows[name] != manifest.num_rows:
                said = f"the footer claims {manifest.num_rows} rows, {rows[name]} were read"
                faults.append((column.path, said))
            known = [column.nulls[int(self._manifest.row_group_in_file[group])] for group in groups]
            if column.counts_nulls and None not in known:
                expected = sum(count for count in known if count is not None)
                if nulls[name] != expected:
                    said = f"the footer claims {expected} nulls, {nulls[name]} were read"
                    faults.append((column.path, said))
        return faults

    def _batches(self, manifest: Manifest, columns: Sequence[_Column]) -> Iterator[dict[str, Any]]:
        fields = tuple(column.field for column in columns)
        memory = self._options.memory_per_worker(1)
        room = memory / _BATCHES_IN_MEMORY
        of_row = window_memory(fields, _BATCH_ROWS, memory, row_ids=False, row_valid=False)
        batch_size = max(1, min(_BATCH_ROWS, int(room / of_row.bytes_per_row)))
        share = EpochPlan(manifest.row_group_num_rows, PlanOptions(batch_size)).share(0)
        stream = StreamOpener(manifest, fields, self._options, False, False).open([share], 1)
        try:
            yield from stream
        finally:
            stream.close()

    def _check_by_pyarrow(self, index: int) -> Iterator[Failure]:
        column = self._leaves[index].path
        for group in range(self._metadata.num_row_groups):
            row_group = self._metadata.row_group(group)
            stored = row_group.column(index).path_in_schema
            try:
                with pq.ParquetFile(
                    source_of(self._path, self._manifest.remote),
                    pre_buffer=False,
                    page_checksum_verification=True,
                ) as file:
                    batches = file.iter_batches(_BATCH_ROWS, [group], [stored])
                    rows = sum(batch.num_rows for batch in batches)
                if rows != row_group.num_rows:
                    raise ValueError(
                        f"the footer claims {row_group.num_rows} rows, {rows} were read"
                    )
            except Exception as error:
                yield Failure(self._path, group, column, f"by pyarrow: {one_line(error)}")

    def _count_pages(self, found: FileCheck) -> None:
        pages = PageFacts()
        try:
            with opened(self._path, self._manifest.remote) as file:
                for group in range(self._metadata.num_row_groups):
                    for place in chunk_places(self._path, self._metadata, group, self._leaves):
                        pages.add(page_headers(place, file))
        except OSError as error:
            if not found.failures:
                found.failures.append(Failure(self._path, None, None, one_line(error)))
        found.pages, found.pages_with_checksum = pages.num_pages, pages.num_checksums
