"""The lists of row groups, counted by the files' writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from torchparquet._impl.files.manifest_reading import footers_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torchparquet._impl.files.manifest import Manifest
    from torchparquet._impl.native import Footers


def counted_lists(manifest: Manifest, column: str, num_threads: int | None) -> NDArray[np.int64]:
    """Return the items of a column's lists, and the lists that have some."""
    footers = footers_of(manifest, num_threads, with_contents=True)
    counts = np.full((manifest.num_row_groups, 2), -1)
    unchanged = footers.file_digest == manifest.file_digest
    for file in np.flatnonzero(unchanged).tolist():
        of_file = _counts_of_file(footers, file, column)
        row_groups = np.flatnonzero(manifest.row_group_file == file)
        if len(of_file):
            counts[row_groups] = of_file[manifest.row_group_in_file[row_groups]]
    # A footer that wrongly says so would lose the row group, as nothing of it is read.
    counts[counts[:, 0] <= 0] = -1
    return counts


def _counts_of_file(footers: Footers, file: int, column: str) -> NDArray[np.int64]:
    """Return the counts of all row groups of a file, or of none."""
    paths = [leaf.path for leaf in footers.schemas[footers.file_schema[file]]]
    none = np.zeros((0, 2), np.int64)
    if column not in paths:
        return none
    counts = footers.list_counts(file, paths.index(column))
    return counts if len(counts) == footers.file_num_row_groups[file] else none
