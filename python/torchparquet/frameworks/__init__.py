"""Helpers for training frameworks; each module imports its own framework."""

from __future__ import annotations

from torch.utils.data import DataLoader

from torchparquet import MixedDataset, ParquetDataset

# Data sets that deal rows to ranks, count epochs and have states.
Source = ParquetDataset | MixedDataset


def source_of(loader: object) -> Source | None:
    """Return the data set that a loader reads, or that it is; None for any other loader."""
    found: object = loader.dataset if isinstance(loader, DataLoader) else loader
    return found if isinstance(found, Source) else None
