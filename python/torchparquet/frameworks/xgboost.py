"""XGBoost: batches for matrices of quantiles, and for data that does not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xgboost import DataIter

from torchparquet import ParquetDataset
from torchparquet.frameworks.trees import Passes, array_of


class ParquetDataIter(DataIter):
    """Gives XGBoost the batches of a data set, in as many passes as it makes.

    `QuantileDMatrix(ParquetDataIter(...))` keeps quantiles of the features in memory.
    `ExtMemQuantileDMatrix(ParquetDataIter(..., cache_prefix="cache"))` keeps them in files that
    begin with `cache_prefix`. NaN is a missing value. Every pass reads the same epoch.
    """

    def __init__(
        self,
        dataset: ParquetDataset,
        data: str,
        label: str | None = None,
        *,
        feature_types: Sequence[str] | None = None,
        cache_prefix: str | None = None,
        **info: str,
    ) -> None:
        """Prepare to read; reads nothing.

        Args:
            dataset: What to read; of several ranks each reads its share.
            data: The name of the features in a batch, `[B, F]`. Their columns name the features.
            label: The name of the label in a batch, `[B]`.
            feature_types: XGBoost's types of the F features, such as "c" for categories.
            cache_prefix: The begin of the paths of files for external memory; None for none.
            **info: Names in a batch of what else `xgboost.DMatrix` takes by row, such as
                `weight="w"`, `base_margin="margin"` or `qid="query"`.

        Raises:
            TypeError: `dataset` is not a `ParquetDataset`.
            ValueError: Passes over the data set would differ, or have a row twice.
        """
        super().__init__(cache_prefix=cache_prefix)
        self._passes = Passes(dataset, "ParquetDataIter")
        self._data, self._feature_types = data, feature_types
        self._info = info if label is None else {"label": label, **info}
        sources = [field.sources for field in dataset.fields if field.name == data]
        self._feature_names = list(sources[0]) if sources else None

    def reset(self) -> None:
        """Begin a pass."""
        self._passes.end()

    def next(self, input_data: Callable[..., None]) -> bool:
        """Hand over the next batch; False after the last one."""
        batch = self._passes.read()
        if batch is None:
            return False
        features = array_of(batch, self._data, 2)
        names = self._feature_names
        input_data(
            data=features,
            feature_names=names if names and len(names) == features.shape[1] else None,
            feature_types=self._feature_types,
            **{name: array_of(batch, of, 1) for name, of in self._info.items()},
        )
        return True
