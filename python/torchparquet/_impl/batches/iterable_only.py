"""Data sets that are iterated, and say so to those that ask for an item."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NoReturn, SupportsIndex, TypeVar

from torch.utils.data import IterableDataset

from torchparquet._impl.ranks.loader_options import LoaderChecked
from torchparquet.errors import unpickled

_Item = TypeVar("_Item", covariant=True)


class IterableOnly(LoaderChecked, IterableDataset[_Item]):
    """A data set whose items have no numbers."""

    # For messages: what it is, and what it delivers.
    _noun, _item = "ParquetDataset", "batch"

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Callable[..., Any], Any, Any]:
        """Return what makes a copy: the version first, for it is read before all else."""
        return unpickled, (type(self), version("torchparquet")), self.__getstate__()

    def __getitem__(self, index: object) -> NoReturn:
        """Refuse, as `dataset[0]`, `Subset` and the parts of `random_split` ask for it."""
        raise TypeError(
            f"a {self._noun} is read by iteration, and has no items by number, so "
            "torch.utils.data.Subset and random_split do not work either: split= of "
            'ParquetDataset reads one part of a split, such as split=("train", {"train": 0.9, '
            '"val": 0.1}), its rows= reads rows by number, and next(iter(dataset)) looks at the '
            f"first {self._item}. Got a request for item {index!r}"
        )
