"""Which data set of this package a framework's loader reads."""

from __future__ import annotations

from torch.utils.data import DataLoader

from torchparquet import MixedDataset, ParquetDataset

# Data sets that know their ranks, their epochs and their states.
Source = ParquetDataset | MixedDataset


def source_of(loader: object) -> Source | None:
    """Return the data set that a loader reads, or that it is; None where it is none of ours."""
    found: object = loader.dataset if isinstance(loader, DataLoader) else loader
    return found if isinstance(found, Source) else None
