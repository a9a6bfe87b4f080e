"""Row groups of which a condition is true for no row, or for every one, as far as files tell.

Statistics, page indexes and Bloom filters say what values there may be. pyarrow's data set engine
says whether the condition can be true, or anything else, of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from torchparquet._impl.rows.pruning.bloom_filters import Alternatives, BloomFilters
from torchparquet._impl.rows.pruning.bounds import (
    StoredColumn,
    bounds_of_chunk,
    flat_leaves,
    known_conditions,
)
from torchparquet._impl.rows.pruning.condition import Condition
from torchparquet._impl.rows.pruning.page_indexes import PageIndexes

if TYPE_CHECKING:
    import pyarrow.compute as pc
    import pyarrow.dataset as pads
    import pyarrow.parquet as pq

    from torchparquet._impl.files.manifest import Manifest


@dataclass(frozen=True)
class PrunedFile:
    """A file whose row groups may be left out.

    Attributes:
        renames: The file's names of columns that it stores by another, or "" for columns that it
            lacks although a column of that name is in it.
    """

    number: int
    fragment: pads.ParquetFileFragment
    renames: Mapping[str, str]
    known: Mapping[str, pa.Scalar]


@dataclass(frozen=True)
class _Facts:
    """The facts of a file that are asked for again and again."""

    metadata: pq.FileMetaData
    leaves: Mapping[str, int]
    columns: Mapping[int, tuple[str, StoredColumn]]  # those with bounds, by number
    always: list[pc.Expression]


# The work for a row group: stretches of pages, times the size of the condition.
_MAX_STRETCH_BYTES = 4 << 20


class RowGroupPruning:
    """Finds the row groups of files that need not be read for a condition."""

    def __init__(
        self,
        manifest: Manifest,
        schema: pa.Schema,
        expression: pc.Expression,
        needed: Alternatives,
        *,
        is_encrypted: bool,
        finds_whole: bool,
    ) -> None:
        """Take the schema of the columns that the condition names, and read nothing yet."""
        import pyarrow.compute as pc

        self._manifest = manifest
        self._schema = schema
        self._condition = Condition(expression, schema)
        is_false = ~pc.coalesce(expression, pc.scalar(value=False))
        self._failure = Condition(is_false, schema) if finds_whole else None
        self._needed = needed
        self._is_encrypted = is_encrypted

    def by_known(
        self, files: Sequence[Mapping[str, pa.Scalar]]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return of which files the condition may be true, and of which it may be anything else."""
        every = np.ones(len(files), bool)
        if not any(files):
            return every, every
        known = [known_conditions(values) for values in files]
        may_fail = every if self._failure is None else self._failure.may_hold(known)
        return self._condition.may_hold(known), may_fail

    def undecided(self, file: PrunedFile, in_file: Sequence[int]) -> tuple[set[int], set[int]]:
        """Return the row groups whose values must be read, and those whose rows are all true."""
        metadata = file.fragment.metadata
        leaves = flat_leaves(metadata.schema, file.fragment.physical_schema)
        known = {name: file.known[name] for name in self._schema.names if name in file.known}
        facts = _Facts(metadata, leaves, self._columns(file, leaves), known_conditions(known))
        if self._condition.is_plain and not file.renames:
            part = file.fragment.subset(self._condition.expression, schema=self._schema)
            kept = {row_group.id for row_group in part.row_groups}.intersection(in_file)
        else:
            kept = self._by_statistics(self._condition, facts, in_file)
        left = kept
        if self._failure is not None and self._failure.bounded:
            left = self._by_statistics(self._failure, facts, sorted(kept))
        whole = kept - left
        if not self._is_encrypted:
            left = self._by_page_indexes(file.number, facts, sorted(left))
            left = self._by_bloom_filters(file, facts, left)
        return left, whole

    def _by_statistics(
        self, condition: Condition, facts: _Facts, numbers: Sequence[int]
    ) -> set[int]:
        """Return the row groups of which a condition may be true by their footers."""
        known = [
            [
                bound
                for column, (name, stored) in facts.columns.items()
                if name in condition.bounded
                for bound in bounds_of_chunk(group.column(column), stored).conditions(name)
            ]
            for group in map(facts.metadata.row_group, numbers)
        ]
        may_hold = condition.may_hold(known, facts.always)
        return set(np.array(numbers, int)[may_hold].tolist())

    def _by_page_indexes(self, file: int, facts: _Facts, numbers: Sequence[int]) -> set[int]:
        groups = [facts.metadata.row_group(number) for number in numbers]
        names = {
            column: name
            for column, (name, _) in facts.columns.items()
            if name in self._condition.bounded
            and any(group.column(column).has_column_index for group in groups)
        }
        if not names:
            return set(numbers)
        having = {column: facts.columns[column][1] for column in names}
        indexes = PageIndexes(self._manifest, file, facts.metadata, having, numbers)
        kept = set()
        for number in numbers:
            known = self._by_row(indexes, number, names)
            if not known or self._holds_in_any(known, facts.always):
                kept.add(number)
        return kept

    def _holds_in_any(
        self, known: Sequence[Sequence[pc.Expression]], always: Sequence[pc.Expression]
    ) -> bool:
        """Return whether the condition may be true in one of the stretches, or they are many."""
        if len(known) * self._condition.num_bytes > _MAX_STRETCH_BYTES:
            return True
        begin, count = 0, 8
        while begin < len(known):
            if self._condition.may_hold(known[begin : begin + count], always).any():
                return True
            begin, count = begin + count, 2 * count
        return False

    def _by_row(
        self, indexes: PageIndexes, row_group: int, names: Mapping[int, str]
    ) -> list[list[pc.Expression]]:
        """Return what is known of rows from one beginning of a page to the next, in any column."""
        pages = {name: indexes.pages(row_group, column) for column, name in names.items()}
        having = {name: found for name, found in pages.items() if found is not None}
        if not having:
            return []
        first_rows = np.unique(np.concatenate([found.first_rows for found in having.values()]))
        conditions = {
            name: [bounds.conditions(name) for bounds in found.bounds]
            for name, found in having.items()
        }
        page_of = {
            name: np.searchsorted(found.first_rows, first_rows, side="right") - 1
            for name, found in having.items()
        }
        return [
            [condition for name in having for condition in conditions[name][page_of[name][at]]]
            for at in range(len(first_rows))
        ]

    def _by_bloom_filters(self, file: PrunedFile, facts: _Facts, kept: set[int]) -> set[int]:
        if not all(self._needed) or file.renames:
            return kept
        schema = file.fragment.physical_schema
        filters = BloomFilters(self._manifest, file.number, facts.metadata, schema, facts.leaves)
        return {number for number in kept if not filters.rule_out(number, self._needed)}

    def _columns(
        self, file: PrunedFile, by_path: Mapping[str, int]
    ) -> dict[int, tuple[str, StoredColumn]]:
        """Return the columns with bounds that the file stores, by number, with their names."""
        leaves, schema = file.fragment.metadata.schema, file.fragment.physical_schema
        found = {}
        failing = () if self._failure is None else self._failure.bounded
        for name in {*self._condition.bounded, *failing}:
            stored = file.renames.get(name, name)
            if stored in by_path and name not in file.known:
                number = by_path[stored]
                kinds = schema.field(stored).type, self._schema.field(name).type
                found[number] = (name, StoredColumn(leaves.column(number), *kinds))
        return found
