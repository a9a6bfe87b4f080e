"""Reading in few words: digests of batches, and data sets in a store that fails as it is told."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests.servers.faulty_origin import FaultyOrigin
from torchparquet import ParquetDataset

KEY, SECRET = "the-key-of-the-tests", "the-secret-of-the-tests"
# Messages without the reading of stores, or without a package that it takes.
NOT_YET = ("argument 'storage_options'", "only local paths", "aiohttp", "fsspec", "no libcurl")
open_dataset = partial(
    ParquetDataset, batch_size=64, rank=0, world_size=1, num_threads=2, nulls="mask"
)


def digests(batches: Iterable[dict[str, Any]]) -> list[str]:
    """Return a digest of each batch: names, types, shapes and bytes of all columns."""
    return [digest_of(batch) for batch in batches]


def digest_of(batch: dict[str, Any]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, value in batch.items():
        digest.update(name.encode())
        for tensor in [value] if isinstance(value, torch.Tensor) else value:
            if isinstance(tensor, torch.Tensor):
                digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
                digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
            else:
                digest.update(repr(tensor).encode())
    return digest.hexdigest()


def whole(paths: Any, **options: Any) -> list[str]:
    """Return the digests of one epoch."""
    return digests(open_dataset(paths, **options))


@dataclass
class FaultyStore:
    """A folder in a faulty origin, by a way that URLs lead to it.

    Attributes:
        url: Or URLs.
        options: Those of storage.
    """

    origin: FaultyOrigin
    url: Any
    options: dict[str, Any] = field(default_factory=dict)

    def open(self, client: dict[str, Any] | None = None, **options: Any) -> ParquetDataset:
        """Return a data set of the folder, read with these options of the client."""
        given = {"storage_options": self.options | (client or {}), **options}
        return open_dataset(self.url, **given)


def by_s3(origin: FaultyOrigin, folder: Path) -> FaultyStore:
    """Put a folder into a bucket that the origin has."""
    origin.put_folder(folder, "bucket/train")
    options = {"key": KEY, "secret": SECRET, "endpoint_url": origin.url}
    return FaultyStore(origin, "s3://bucket/train", options)


def by_http(origin: FaultyOrigin, folder: Path) -> FaultyStore:
    """Put a folder under a path of the web."""
    origin.put_folder(folder, "train")
    names = sorted(path.name for path in folder.iterdir())
    return FaultyStore(origin, [f"{origin.url}/train/{name}" for name in names])


def by_s3fs(origin: FaultyOrigin, folder: Path) -> FaultyStore:
    """Put a folder into a bucket, with an option that no URL can carry: s3fs reads the bytes."""
    store = by_s3(origin, folder)
    store.options |= {"client_kwargs": {"verify": False}}
    return store


def by_aiohttp(origin: FaultyOrigin, folder: Path) -> FaultyStore:
    """Put a folder under a path, with an option of aiohttp alone, which then reads the bytes."""
    store = by_http(origin, folder)
    store.options |= {"client_kwargs": {"trust_env": False}}
    return store


def why_no_urls(path: Path) -> str:
    """Return why `ParquetDataset` cannot read a URL; empty if it can."""
    with FaultyOrigin() as origin:
        origin.put("a.parquet", path.read_bytes())
        try:
            dataset = ParquetDataset(
                origin.url_of("a.parquet"), batch_size=10, nulls="mask", storage_options={}
            )
            next(iter(dataset))
        except (TypeError, ValueError, ImportError, NotImplementedError) as error:
            if any(words in str(error) for words in NOT_YET):
                return f"ParquetDataset reads no URLs yet: {error}"
            raise
    return ""
