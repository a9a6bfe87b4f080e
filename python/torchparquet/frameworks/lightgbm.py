"""LightGBM: rows by their numbers, read batch after batch."""

from __future__ import annotations

from collections.abc import Sequence as Rows
from typing import Any, SupportsIndex

import numpy as np
from lightgbm import Sequence
from numpy.typing import NDArray

from torchparquet import ParquetDataset
from torchparquet._impl.checks import checked_row
from torchparquet.frameworks.trees import Passes, array_of


class ParquetSequence(Sequence):
    """The features of a data set, as `lightgbm.Dataset` samples and reads them.

    Rows in ascending order, as LightGBM asks for them, take one pass over the data. Batches without
    a row that is asked for are not read. Labels come from a data set of their column.
    """

    def __init__(self, dataset: ParquetDataset, data: str) -> None:
        """Prepare to read; reads nothing.

        Args:
            dataset: What to read; of several ranks each reads its share.
            data: The name of the features in a batch, float32 or float64 `[B, F]`.

        Raises:
            TypeError: `dataset` is not a `ParquetDataset`.
            ValueError: Passes over the data set would differ, or have a row twice; its batches do
                not have one number of rows; or it shuffles, so that labels would not fit.
        """
        self._passes = Passes(dataset, "ParquetSequence")
        if self._passes.batch_size is None:
            raise ValueError(
                "ParquetSequence finds rows by their batch: give the data set batch_size=N rows, "
                "got None"
            )
        if dataset.plan().options.shuffle:
            raise ValueError(
                "ParquetSequence reads rows in the order of the files, as labels have it: give the "
                "data set shuffle=False. LightGBM draws rows by its own seeds"
            )
        self._data = data
        self.batch_size: int = self._passes.batch_size
        rows = dataset.get_shard_distribution_info()["rows"]
        self._num_rows = min(rows, len(dataset) * self.batch_size)
        self._step = -1
        self._batch: NDArray[Any] = np.empty((0, 0))

    def __len__(self) -> int:
        """Return the number of rows of this rank."""
        return self._num_rows

    def __getitem__(self, rows: SupportsIndex | slice | Rows[int]) -> NDArray[Any]:
        """Return one row, float64 `[F]`, or several, `[n, F]`, of the dtype of the features.

        Raises:
            IndexError: There is no such row.
            ValueError: A batch has other rows than were planned, or features that are no floats.
        """
        if isinstance(rows, slice):
            begin, end, step = rows.indices(len(self))
            if step == 1:
                return self._range(begin, max(begin, end))
            rows = range(begin, end, step)
        if not isinstance(rows, SupportsIndex):
            found = [self[row] for row in rows]
            return np.stack(found) if found else self._range(0, 0)
        step, place = divmod(checked_row(rows, len(self)), self.batch_size)
        # Of any other dtype LightGBM takes no sample.
        features: NDArray[Any] = self._read(step)[place].astype(np.float64)
        return features

    def _range(self, begin: int, end: int) -> NDArray[Any]:
        size = self.batch_size
        parts = [
            self._read(step)[max(begin - step * size, 0) : end - step * size]
            for step in range(begin // size, max(-(-end // size), begin // size + 1))
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _read(self, step: int) -> NDArray[Any]:
        """Return the features of a batch."""
        if step == self._step:
            return self._batch
        batch = self._passes.read(step)
        assert batch is not None  # noqa: S101
        features = array_of(batch, self._data, 2)
        planned = min(self.batch_size, len(self) - step * self.batch_size)
        if len(features) != planned:
            raise ValueError(
                f"batch {step} must have the {planned} rows that are planned, got {len(features)}: "
                "its transform must keep every row, and its batch_size be a number of rows"
            )
        if features.dtype not in (np.float32, np.float64):
            raise ValueError(
                f"batch[{self._data!r}] must be float32 or float64, to which LightGBM would round "
                f'other numbers in silence; got {features.dtype}: use Column(..., dtype="float64")'
            )
        self._step, self._batch = step, features
        if step == len(self._passes.dataset) - 1:
            self._passes.end()
        return features
