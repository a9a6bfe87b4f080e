"""Credentials are in no message, repr, state, manifest or cache."""

from __future__ import annotations

import json
import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

from tests.files.remote.conftest import Bucket
from tests.servers.faulty_origin import FaultyOrigin
from torchparquet import ParquetDataset
from torchparquet._impl.files.remote.urls import without_credentials

SECRET = "s3cr3t-of-the-test"


def everything_of(dataset: ParquetDataset) -> str:
    manifest = dataset.manifest
    texts = [repr(dataset), repr(manifest), json.dumps(dataset.state_dict())]
    return "\n".join([*texts, *manifest.files, manifest.root])


def test_presigned_urls(tree: Path, origin: FaultyOrigin, tmp_path: Path) -> None:
    for number in (0, 1):
        path = tree / "day=0" / f"part-{number}.parquet"
        origin.put(path.name, path.read_bytes())
    urls = [f"{origin.url}/part-{n}.parquet?X-Signature={SECRET}&n={n}" for n in (0, 1)]
    cache = tmp_path / "cache"
    for _ in range(2):
        dataset = ParquetDataset(urls, batch_size=10, manifest_cache=cache)
        assert sum(len(batch["id"]) for batch in dataset) == 200
        assert dataset.manifest.files[1] == f"{origin.url}/part-1.parquet"
        assert SECRET not in everything_of(dataset)
        assert SECRET.encode() not in cache.read_bytes()
        again = pickle.loads(pickle.dumps(dataset))
        assert sum(len(batch["id"]) for batch in again) == 200
    reads = [request.target for request in origin.requests if request.header("Range")]
    assert reads
    assert all(SECRET in path for path in reads)
    origin.delete("part-1.parquet")
    with pytest.raises(FileNotFoundError) as caught:
        ParquetDataset(urls, batch_size=10)
    assert f"{origin.url}/part-1.parquet" in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_urls_that_differ_in_their_query_alone(tree: Path, origin: FaultyOrigin) -> None:
    content = (tree / "day=0" / "part-0.parquet").read_bytes()
    origin.put("get", content)
    urls = [f"{origin.url}/get?id={n}" for n in (1, 2)]
    dataset = ParquetDataset(urls, batch_size=10)
    assert dataset.manifest.files == (f"{origin.url}/get", f"{origin.url}/get#2")
    assert sum(len(batch["id"]) for batch in dataset) == 200
    with pytest.raises(ValueError, match="named only once"):
        ParquetDataset([urls[0], urls[0]], batch_size=10)


def test_user_of_a_url(tree: Path, origin: FaultyOrigin) -> None:
    path = tree / "day=0" / "part-0.parquet"
    origin.put(path.name, path.read_bytes())
    origin.wanted = {"Authorization": "Basic bWU6czNjcjN0LW9mLXRoZS10ZXN0"}
    url = f"{origin.url}/{path.name}"
    dataset = ParquetDataset(url.replace("//", f"//me:{SECRET}@"), batch_size=10)
    assert dataset.manifest.files == (url,)
    assert sum(len(batch["id"]) for batch in dataset) == 100
    assert SECRET not in everything_of(dataset)
    origin.delete(path.name)
    with pytest.raises(FileNotFoundError, match="part-0") as caught:
        ParquetDataset(url.replace("//", f"//me:{SECRET}@"), batch_size=10)
    assert SECRET not in str(caught.value)


def test_storage_options(bucket: Bucket) -> None:
    more: list[dict[str, Any]] = [
        {"endpoint_url": f"http://me:{SECRET}@127.0.0.1:1"},
        {"nosuch": SECRET},
        {"client_kwargs": {"nosuch": SECRET}},
        {},
    ]
    for options in more:
        given = bucket.options | options
        with pytest.raises((OSError, ValueError)) as caught:
            ParquetDataset(f"{bucket.url}/none", batch_size=10, storage_options=given)
        text = "".join(traceback.format_exception(caught.value))
        assert f"{bucket.url}/none" in text
        assert SECRET not in text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/a?b.parquet", "s3://bucket/a?b.parquet"),
        ("https://me:pw@host:1/a/b?token=x#y", "https://host:1/a/b"),
        ("https://host?token=x", "https://host"),
        ("abfs://container@account.dfs.core.windows.net/a", None),
        ("sftp://me:pw@host/a@b", "sftp://host/a@b"),
        ("hf://datasets/me/data@main/a", None),
        ("/a@b?c", None),
    ],
)
def test_urls_without_credentials(url: str, shown: str | None) -> None:
    assert without_credentials(url) == (shown or url)
