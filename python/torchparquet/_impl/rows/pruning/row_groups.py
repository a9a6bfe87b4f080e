"""Row groups of which a condition is true for no row, or for every one, as far as files tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from torchparquet._impl.rows.pruning.bloom_filters import lacking
from torchparquet._impl.rows.pruning.bounds import (
    Mask,
    StoredColumn,
    bounds_of_chunks,
    flat_leaves,
)
from torchparquet._impl.rows.pruning.condition import Condition, Knowledge
from torchparquet._impl.rows.pruning.page_indexes import bounds_by_pages

if TYPE_CHECKING:
    import pyarrow.dataset as pads

    from torchparquet._impl.files.manifest import Manifest


@dataclass(frozen=True)
class PrunedFile:
    """A file whose row groups may be left out."""

    number: int
    footer: pads.ParquetFileFragment
    schema: pa.Schema
    names: Mapping[str, str]  # the file's, by those of the data set
    known: Mapping[str, pa.Scalar]  # values that all rows of the file have
    told: Mapping[str, pa.Scalar]  # the same, by the file's names


class RowGroupPruning:
    """Finds the row groups of files that need not be read for a condition."""

    def __init__(
        self, manifest: Manifest, schema: pa.Schema, condition: Condition, *, is_encrypted: bool
    ) -> None:
        """Take the schema of the columns that the condition names, and read nothing yet."""
        self._manifest = manifest
        self._schema = schema
        self._condition = condition
        self._is_encrypted = is_encrypted

    def by_known(self, files: Sequence[Mapping[str, pa.Scalar]]) -> tuple[Mask, Mask]:
        """Return of which files the condition may be true, and of which it may be anything else."""
        found = self._condition.outcomes(Knowledge(len(files), self._values(files)))
        return found[0], found[1] | found[2]

    def undecided(self, file: PrunedFile, in_file: Sequence[int]) -> tuple[set[int], set[int]]:
        """Return the row groups whose values must be read, and those whose rows are all true."""
        columns = self._columns(file)
        groups = [file.footer.metadata.row_group(number) for number in in_file]
        bounds = {
            name: bounds_of_chunks([group.column(leaf) for group in groups], stored)
            for name, (leaf, stored) in columns.items()
        }
        known = Knowledge(len(groups), self._values([file.known] * len(groups)), bounds)
        found = self._condition.outcomes(known)
        is_open = found[1] | found[2]
        numbers = np.array(in_file, np.int64)
        left: list[int] = numbers[found[0] & is_open].tolist()
        if left and not self._is_encrypted:
            left = self._by_page_indexes(file, columns, left)
            groups = [file.footer.metadata.row_group(number) for number in left]
            lacks = partial(lacking, self._manifest, file.number, groups, columns)
            known = Knowledge(len(left), self._values([file.known] * len(left)), lacks=lacks)
            left = np.array(left, np.int64)[self._condition.outcomes(known)[0]].tolist()
        return set(left), set(numbers[found[0] & ~is_open].tolist())

    def _by_page_indexes(
        self, file: PrunedFile, columns: Mapping[str, tuple[int, StoredColumn]], numbers: list[int]
    ) -> list[int]:
        metadata, kept = file.footer.metadata, []
        groups = [metadata.row_group(number) for number in numbers]
        having = {
            name: (leaf, stored)
            for name, (leaf, stored) in columns.items()
            if any(group.column(leaf).has_column_index for group in groups)
        }
        if not having:
            return numbers
        pages = bounds_by_pages(self._manifest, file.number, metadata, having, numbers)
        for number, num_sets, bounds in pages:
            known = Knowledge(num_sets, self._values([file.known] * num_sets), bounds)
            if not num_sets or self._condition.outcomes(known)[0].any():
                kept.append(number)
        return kept

    def _columns(self, file: PrunedFile) -> dict[str, tuple[int, StoredColumn]]:
        """Return the columns that the file stores, by number, with what they are stored as."""
        leaves = flat_leaves(file.footer.metadata.schema, file.schema)
        found = {}
        for field in self._schema:
            name = file.names.get(field.name, field.name)
            if name in leaves and field.name not in file.known:
                column = file.footer.metadata.schema.column(leaves[name])
                stored = StoredColumn(column, file.schema.field(name).type, field.type)
                found[field.name] = (leaves[name], stored)
        return found

    def _values(self, sets: Sequence[Mapping[str, pa.Scalar]]) -> dict[str, tuple[pa.Array, Mask]]:
        found = {}
        for field in self._schema:
            values = [known.get(field.name) for known in sets]
            marked = np.array([value is not None for value in values], bool)
            if marked.any():
                found[field.name] = (pa.array(values, field.type), marked)
        return found
