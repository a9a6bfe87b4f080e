"""Rows that a table has deleted and its files still hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from torchparquet.errors import CorruptFileError

if TYPE_CHECKING:
    from torchparquet._impl.files.manifest import Manifest


class Deletions:
    """The rows that are left of files, by global row number."""

    def __init__(self, left: Mapping[int, NDArray[np.bool_]], manifest: Manifest) -> None:
        """Check the masks."""
        first_rows = np.cumsum(manifest.file_num_rows) - manifest.file_num_rows
        found = []
        for file, mask in left.items():
            num_rows = int(manifest.file_num_rows[file])
            if len(mask) != num_rows:
                raise CorruptFileError(
                    f"the deletions are of {len(mask)} rows, the file has {num_rows}: "
                    f"{manifest.files[file]!r}"
                )
            found.append(np.flatnonzero(~mask) + first_rows[file])
        self.numbers = np.sort(np.concatenate([np.zeros(0, np.int64), *found]))

    def mask(self, begin: int, num_rows: int) -> NDArray[np.bool_]:
        """Return which of the rows from global number `begin` on are left."""
        first, end = np.searchsorted(self.numbers, [begin, begin + num_rows])
        mask = np.ones(num_rows, bool)
        mask[self.numbers[first:end] - begin] = False
        return mask
