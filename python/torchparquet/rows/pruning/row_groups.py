"""Row groups that have no row for which a condition is true, as far as their files tell.

Statistics, page indexes and Bloom filters say what values there may be. pyarrow's data set engine
says whether the condition can be true of these.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from torchparquet.rows.pruning.bloom_filters import Alternatives, BloomFilters
from torchparquet.rows.pruning.bounds import StoredColumn, bounds_of_chunk, known_conditions
from torchparquet.rows.pruning.page_indexes import PageIndexes

if TYPE_CHECKING:
    import pyarrow.compute as pc
    import pyarrow.dataset as pads
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    from torchparquet.files.manifest import Manifest


@dataclass(frozen=True)
class PrunedFile:
    """A file whose row groups may be left out.

    Attributes:
        number: Of the file, in the manifest.
        fragment: The file.
        renames: The file's names of columns that it stores by another, or "" for columns that it
            lacks although a column of that name is in it.
        known: The values of columns that are the same in all rows.
    """

    number: int
    fragment: pads.ParquetFileFragment
    renames: Mapping[str, str]
    known: Mapping[str, pa.Scalar]


@dataclass(frozen=True)
class _Facts:
    """What is asked about a file again and again.

    Attributes:
        metadata: Its footer.
        columns: The columns with bounds that it stores, by number, with their names.
        always: What holds for all rows.
    """

    metadata: pq.FileMetaData
    columns: Mapping[int, tuple[str, StoredColumn]]
    always: list[pc.Expression]


class RowGroupPruning:
    """Finds the row groups of files that a condition leaves."""

    def __init__(
        self,
        manifest: Manifest,
        schema: pa.Schema,
        condition: pc.Expression,
        needed: Alternatives,
        *,
        is_encrypted: bool,
    ) -> None:
        """Find out which columns the condition names.

        Args:
            manifest: The files.
            schema: The columns of all files, and the partition keys of their paths.
            condition: What must be true of a row. It fits the schema.
            needed: The equalities that `condition` needs.
            is_encrypted: True if files may have encrypted columns, whose indexes and filters are
                encrypted too.
        """
        self._manifest = manifest
        self._schema = schema
        self._condition = condition
        self._needed = needed
        self._is_encrypted = is_encrypted
        self._names = named_columns(condition, schema)
        loose = [name for name in self._names if self._may_hold_for_nan(name)]
        self._bounded = [name for name in self._names if name not in loose]
        # pyarrow takes all values to be within the bounds. NaN never is.
        self._knows_all = not loose

    def kept(self, file: PrunedFile, in_file: Sequence[int]) -> set[int]:
        """Return the row groups that may have a row for which the condition is true.

        Args:
            file: The file.
            in_file: Its row groups, as the file numbers them.

        Raises:
            OSError: The file cannot be read.
        """
        kept = set(in_file)
        # By names, and as if no value were outside of the bounds. NaN always is.
        by_pyarrow = self._knows_all and not file.renames
        if by_pyarrow:
            left = file.fragment.subset(self._condition, schema=self._schema)
            kept &= {row_group.id for row_group in left.row_groups}
        metadata = file.fragment.metadata
        facts = _Facts(metadata, self._columns(file), known_conditions(file.known))
        if not by_pyarrow:
            kept = self._by_statistics(facts, sorted(kept))
        if not self._is_encrypted:
            kept = self._by_page_indexes(file.number, facts, sorted(kept))
            kept = self._by_bloom_filters(file, kept)
        return kept

    def _by_statistics(self, facts: _Facts, numbers: Sequence[int]) -> set[int]:
        groups = map(facts.metadata.row_group, numbers)
        known = [
            [
                condition
                for column, (name, stored) in facts.columns.items()
                for condition in bounds_of_chunk(group.column(column), stored).conditions(name)
            ]
            for group in groups
        ]
        return set(np.array(numbers, int)[self._may_hold(known, facts.always)].tolist())

    def _by_page_indexes(self, file: int, facts: _Facts, numbers: Sequence[int]) -> set[int]:
        groups = [facts.metadata.row_group(number) for number in numbers]
        having = {
            column: stored
            for column, (_, stored) in facts.columns.items()
            if any(group.column(column).has_column_index for group in groups)
        }
        if not having:
            return set(numbers)
        names = {column: facts.columns[column][0] for column in having}
        indexes = PageIndexes(self._manifest, file, facts.metadata, having, numbers)
        kept = set()
        for number in numbers:
            known = list(self._by_row(indexes, number, names))
            if not known or self._may_hold(known, facts.always).any():
                kept.add(number)
        return kept

    def _by_row(
        self, indexes: PageIndexes, row_group: int, names: Mapping[int, str]
    ) -> Iterator[list[pc.Expression]]:
        """Yield what is known of rows from one beginning of a page to the next, in any column."""
        pages = {name: indexes.pages(row_group, column) for column, name in names.items()}
        having = {name: found for name, found in pages.items() if found is not None}
        if not having:
            return
        first_rows = np.unique(np.concatenate([found.first_rows for found in having.values()]))
        conditions = {
            name: [bounds.conditions(name) for bounds in found.bounds]
            for name, found in having.items()
        }
        page_of = {
            name: np.searchsorted(found.first_rows, first_rows, side="right") - 1
            for name, found in having.items()
        }
        for at in range(len(first_rows)):
            yield [
                condition for name in having for condition in conditions[name][page_of[name][at]]
            ]

    def _by_bloom_filters(self, file: PrunedFile, kept: set[int]) -> set[int]:
        if not all(self._needed) or file.renames:
            return kept
        fragment = file.fragment
        filters = BloomFilters(
            self._manifest, file.number, fragment.metadata, fragment.physical_schema
        )
        return {number for number in kept if not filters.rule_out(number, self._needed)}

    def _columns(self, file: PrunedFile) -> dict[int, tuple[str, StoredColumn]]:
        """Return the columns with bounds that the file stores, by number, with their names."""
        leaves, schema = file.fragment.metadata.schema, file.fragment.physical_schema
        by_path = {leaves.column(at).path: at for at in range(len(leaves))}
        found = {}
        for name in self._bounded:
            stored = file.renames.get(name, name)
            if stored in by_path and stored in schema.names:
                number = by_path[stored]
                kinds = schema.field(stored).type, self._schema.field(name).type
                found[number] = (name, StoredColumn(leaves.column(number), *kinds))
        return found

    def _may_hold_for_nan(self, name: str) -> bool:
        import pyarrow.compute as pc

        kind = self._schema.field(name).type
        if pa.types.is_float32(kind) or pa.types.is_float64(kind):
            is_nan = pc.field(name) == pa.scalar(float("nan"), kind)
            return bool(self._may_hold([[is_nan]])[0])
        # Nested ones may have such numbers within.
        return bool(pa.types.is_nested(kind) or pa.types.is_floating(kind))

    def _may_hold(
        self, known: Sequence[Sequence[pc.Expression]], always: Sequence[pc.Expression] = ()
    ) -> NDArray[np.bool_]:
        """Return for each list of what is known whether the condition may be true there."""
        import pyarrow.compute as pc
        import pyarrow.dataset as pads
        import pyarrow.fs as pafs

        files, kind = pafs.LocalFileSystem(), pads.ParquetFileFormat()
        # No file is opened; its name is its number.
        parts = [
            kind.make_fragment(
                str(number),
                filesystem=files,
                partition_expression=functools.reduce(
                    operator.and_, [*always, *conditions], pc.scalar(value=True)
                ),
            )
            for number, conditions in enumerate(known)
        ]
        found = np.zeros(len(parts), bool)
        dataset = pads.FileSystemDataset(parts, self._schema, kind, files)
        for left in dataset.get_fragments(filter=self._condition):
            found[int(left.path)] = True
        return found


def named_columns(expression: pc.Expression, schema: pa.Schema) -> list[str]:
    """Return the columns of a schema without which an expression does not fit it."""

    def fits(names: Iterable[str]) -> bool:
        import pyarrow.dataset as pads

        left = pa.schema([field for field in schema if field.name not in names])
        try:
            pads.dataset(left.empty_table()).scanner(columns={"": expression})
        except (pa.ArrowException, KeyError):
            return False
        return True

    def needed(names: Sequence[str]) -> list[str]:
        if fits(set(names)):
            return []
        if len(names) == 1:
            return list(names)
        middle = len(names) // 2
        return needed(names[:middle]) + needed(names[middle:])

    return needed(schema.names) if schema.names else []
