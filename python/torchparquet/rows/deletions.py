"""Rows that a table has deleted and its files still hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from torchparquet.errors import CorruptFileError

if TYPE_CHECKING:
    from torchparquet.files.manifest import Manifest


class Deletions:
    """The rows that are left of files, by global row number."""

    def __init__(self, left: Mapping[str, NDArray[np.bool_]], manifest: Manifest) -> None:
        """Check the masks.

        Args:
            left: By path, a mask of the rows that are left.
            manifest: The files.

        Raises:
            CorruptFileError: A mask has another number of rows than its file.
            ValueError: There is a mask of a file that the data set does not have.
        """
        first_rows = np.cumsum(manifest.file_num_rows) - manifest.file_num_rows
        files = {path: file for file, path in enumerate(manifest.files)}
        found = []
        for path, mask in left.items():
            if path not in files:
                raise ValueError(
                    f"rows of a file are deleted that the table does not have: {path!r}"
                )
            num_rows = int(manifest.file_num_rows[files[path]])
            if len(mask) != num_rows:
                raise CorruptFileError(
                    f"the deletions are of {len(mask)} rows, the file has {num_rows}: {path!r}"
                )
            found.append(np.flatnonzero(~mask) + first_rows[files[path]])
        self.numbers = np.sort(np.concatenate([np.zeros(0, np.int64), *found]))

    def mask(self, begin: int, num_rows: int) -> NDArray[np.bool_]:
        """Return which of the rows from global number `begin` on are left."""
        first, end = np.searchsorted(self.numbers, [begin, begin + num_rows])
        mask = np.ones(num_rows, bool)
        mask[self.numbers[first:end] - begin] = False
        return mask
