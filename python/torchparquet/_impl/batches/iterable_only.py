"""Data sets that are iterated, and say so to those that ask for an item."""

from __future__ import annotations

from typing import NoReturn, TypeVar

from torch.utils.data import IterableDataset

from torchparquet._impl.ranks.loader_options import LoaderChecked

_Item = TypeVar("_Item", covariant=True)


class IterableOnly(LoaderChecked, IterableDataset[_Item]):
    """A data set whose items have no numbers."""

    # For messages: what it is, and what it delivers.
    _noun, _item = "ParquetDataset", "batch"

    def __getitem__(self, index: object) -> NoReturn:
        """Refuse, as `dataset[0]`, `Subset` and the parts of `random_split` ask for it."""
        raise TypeError(
            f"a {self._noun} is read by iteration, and has no items by number, so "
            "torch.utils.data.Subset and random_split do not work either: split= of "
            'ParquetDataset reads one part of a split, such as split=("train", {"train": 0.9, '
            '"val": 0.1}), its rows= reads rows by number, and next(iter(dataset)) looks at the '
            f"first {self._item}. Got a request for item {index!r}"
        )
