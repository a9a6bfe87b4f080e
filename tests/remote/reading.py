"""Reading in few words: digests of batches, and data sets in a store that fails as it is told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.shape_files import digest_of_batch
from tests.servers.faulty_origin import FaultyOrigin
from torchparquet import ParquetDataset

KEY, SECRET = "the-key-of-the-tests", "the-secret-of-the-tests"
open_dataset = partial(
    ParquetDataset, batch_size=64, rank=0, world_size=1, num_threads=2, nulls="mask"
)


def digests(batches: Iterable[dict[str, Any]]) -> list[str]:
    """Return a digest of each batch: names, types, shapes and bytes of all columns."""
    return [digest_of_batch(batch) for batch in batches]


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


def asked(origin: FaultyOrigin) -> tuple[int, int]:
    """Return the bytes and the number of ranges that were asked for."""
    headers = [r.header("Range") for r in list(origin.requests) if r.method == "GET"]
    ranges = [tuple(map(int, one.removeprefix("bytes=").split("-"))) for one in headers if one]
    return sum(end - begin + 1 for begin, end in ranges), len(ranges)


def by_s3(origin: FaultyOrigin, folder: Path) -> FaultyStore:
    """Put a folder into a bucket that the origin has."""
    pytest.importorskip("s3fs")
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
