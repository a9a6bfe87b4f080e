"""Row groups of which a condition is true for no row, or for every one, as far as files tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from torchparquet._impl.rows.pruning.bloom_filters import lacking
from torchparquet._impl.rows.pruning.bounds import (
    Mask,
    StoredColumn,
    bounds_of_chunks,
    flat_leaves,
)
from torchparquet._impl.rows.pruning.condition import Condition, Knowledge, Outcomes
from torchparquet._impl.rows.pruning.page_indexes import bounds_by_pages

if TYPE_CHECKING:
    import pyarrow.dataset as pads
    import pyarrow.parquet as pq

    from torchparquet._impl.files.manifest import Manifest


@dataclass(frozen=True)
class PrunedFile:
    """A file whose row groups may be left out."""

    number: int
    row_groups: Sequence[int]  # in the file
    is_encrypted: bool
    footer: pads.ParquetFileFragment
    schema: pa.Schema
    names: Mapping[str, str]  # the file's, by those of the data set
    known: Mapping[str, pa.Scalar]  # values that all rows of the file have
    told: Mapping[str, pa.Scalar]  # the same, by the file's names


def by_known(
    condition: Condition, fields: pa.Schema, files: Sequence[Mapping[str, pa.Scalar]]
) -> tuple[Mask, Mask]:
    """Return of which files a condition may be true, and of which it may be anything else."""
    found = condition.outcomes(Knowledge(len(files), _values(fields, files)))
    return found[0], found[1] | found[2]


def undecided(
    manifest: Manifest, condition: Condition, fields: pa.Schema, file: PrunedFile
) -> tuple[set[int], set[int]]:
    """Return the row groups whose values must be read, and those whose rows are all true."""
    metadata = file.footer.metadata
    columns = _columns(fields, file)

    def outcomes(num_sets: int, **known: Any) -> Outcomes:
        values = _values(fields, [file.known] * num_sets)
        return condition.outcomes(Knowledge(num_sets, values, **known))

    def groups_of(numbers: Sequence[int]) -> list[pq.RowGroupMetaData]:
        return [metadata.row_group(number) for number in numbers]

    groups = groups_of(file.row_groups)
    bounds = {
        name: bounds_of_chunks([group.column(leaf) for group in groups], stored)
        for name, (leaf, stored) in columns.items()
    }
    found = outcomes(len(groups), bounds=bounds)
    is_open = found[1] | found[2]
    numbers = np.array(file.row_groups, np.int64)
    left: list[int] = numbers[found[0] & is_open].tolist()
    if left and not file.is_encrypted:
        groups = groups_of(left)
        having = {
            name: (leaf, stored)
            for name, (leaf, stored) in columns.items()
            if any(group.column(leaf).has_column_index for group in groups)
        }
        if having:
            pages = bounds_by_pages(manifest, file.number, metadata, having, left)
            left = [
                number
                for number, num_sets, bounds in pages
                if not num_sets or outcomes(num_sets, bounds=bounds)[0].any()
            ]
        lacks = partial(lacking, manifest, file.number, groups_of(left), columns)
        left = np.array(left, np.int64)[outcomes(len(left), lacks=lacks)[0]].tolist()
    return set(left), set(numbers[found[0] & ~is_open].tolist())


def _columns(fields: pa.Schema, file: PrunedFile) -> dict[str, tuple[int, StoredColumn]]:
    """Return the columns that the file stores, by number, with what they are stored as."""
    leaves = flat_leaves(file.footer.metadata.schema, file.schema)
    found = {}
    for field in fields:
        name = file.names.get(field.name, field.name)
        if name in leaves and field.name not in file.known:
            column = file.footer.metadata.schema.column(leaves[name])
            stored = StoredColumn(column, file.schema.field(name).type, field.type)
            found[field.name] = (leaves[name], stored)
    return found


def _values(
    fields: pa.Schema, sets: Sequence[Mapping[str, pa.Scalar]]
) -> dict[str, tuple[pa.Array, Mask]]:
    found = {}
    for field in fields:
        values = [known.get(field.name) for known in sets]
        marked = np.array([value is not None for value in values], bool)
        if marked.any():
            found[field.name] = (pa.array(values, field.type), marked)
    return found
