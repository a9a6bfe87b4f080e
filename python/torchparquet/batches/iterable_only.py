"""Data sets that are iterated, and say so to those that ask for an item."""

from __future__ import annotations

from typing import NoReturn, TypeVar

from torch.utils.data import IterableDataset

from torchparquet.ranks.loader_options import LoaderChecked

_Item = TypeVar("_Item", covariant=True)


class IterableOnly(LoaderChecked, IterableDataset[_Item]):
    """A data set whose items have no numbers."""

    def __getitem__(self, index: object) -> NoReturn:
        """Refuse, as `dataset[0]`, `Subset` and the parts of `random_split` ask for it.

        Raises:
            TypeError: Always; it names what to use instead.
        """
        raise TypeError(
            "a ParquetDataset is read by iteration, and has no items by number, so "
            "torch.utils.data.Subset and random_split do not work either: split= reads one part "
            'of a split, such as split=("train", {"train": 0.9, "val": 0.1}), rows= reads rows by '
            "number, and next(iter(dataset)) looks at the first batch. Got a request for item "
            f"{index!r}"
        )
