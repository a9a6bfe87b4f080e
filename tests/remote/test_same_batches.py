"""Whatever store the files are in, batches are those of the same files on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.remote.reading import digests, open_dataset, whole
from tests.servers.fixtures import STORES, OpenStore
from torchparquet import Column

# With each of them the suite would take too long.
pytestmark = pytest.mark.mostly_long(every=2)

WAYS: dict[str, dict[str, Any]] = {
    "file order": {},
    "windows": {"shuffle": True, "seed": 3, "shuffle_window": 3},
    "row groups": {"shuffle": True, "seed": 4, "shuffle_window": 0, "batch_size": None},
    "some columns": {"columns": {"a": "int16", "word": "word", "both": ["id", "int64"]}},
    "filtered": {"filters": [("id", ">=", 20_000)]},
}
FLAT = {
    "directory": "train",
    "glob": "train/part-[1-3].parquet",
    "stars": "**/part-*.parquet",
    "file": "train/part-2.parquet",
}


@pytest.fixture(scope="module")
def upload(open_store: OpenStore, data: Path) -> Callable[[str], tuple[str, dict[str, Any]]]:
    """Return a function that puts the data into a store, once, and tells where they are."""
    urls: dict[str, str] = {}

    def uploaded(name: str) -> tuple[str, dict[str, Any]]:
        store = open_store(name)
        if name not in urls:
            urls[name] = store.upload(data, "same")
        return urls[name], {"storage_options": store.storage_options}

    return uploaded


Upload = Callable[[str], tuple[str, dict[str, Any]]]


def in_store(url: str, data: Path, folder: str) -> Any:
    """Return the address of a folder, or those of its files in the web, which has no folders."""
    if not url.startswith("http"):
        return f"{url}/{folder}"
    return [
        f"{url}/{path.relative_to(data)}" for path in sorted((data / folder).rglob("*.parquet"))
    ]


@pytest.mark.mostly_long(every=4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", STORES)
def test_the_same_epochs(upload: Upload, data: Path, name: str, way: str) -> None:
    url, store = upload(name)
    local, remote = (
        open_dataset(path, **WAYS[way], **options)
        for path, options in ((data / "train", {}), (in_store(url, data, "train"), store))
    )
    assert len(remote) == len(local)
    for _ in range(2):
        expected = digests(local)
        assert len(expected) > 3
        assert digests(remote) == expected


@pytest.mark.parametrize("kind", FLAT)
@pytest.mark.parametrize("name", STORES)
def test_directories_and_globs(upload: Upload, data: Path, name: str, kind: str) -> None:
    url, store = upload(name)
    if url.startswith("http") and kind != "file":
        with pytest.raises(ValueError, match="give the files themselves"):
            open_dataset(f"{url}/{FLAT[kind]}", **store)
        return
    if kind == "stars":
        url, here = f"{url}/train", data / "train"
    else:
        here = data
    assert whole(f"{url}/{FLAT[kind]}", **store) == whole(str(here / FLAT[kind]))


@pytest.mark.parametrize("name", STORES)
def test_keys_of_directories(upload: Upload, data: Path, name: str) -> None:
    url, store = upload(name)
    country = Column("country", vocab=["de", "fr"])
    options: dict[str, Any] = {"columns": {"id": "id", "country": country}}
    assert whole(in_store(url, data, "keyed"), **options, **store) == whole(
        data / "keyed", **options
    )
    options["filters"] = [("country", "=", "de")]
    assert whole(in_store(url, data, "keyed"), **options, **store) == whole(
        data / "keyed", **options
    )


@pytest.mark.parametrize("name", STORES)
def test_nothing_there_is_said_at_once(upload: Upload, name: str) -> None:
    url, store = upload(name)
    with pytest.raises(FileNotFoundError, match="nothing-there"):
        open_dataset(f"{url}/nothing-there.parquet", **store)


@pytest.mark.parametrize("name", ["moto", "seaweedfs", "azurite", "gcs"])
def test_a_filesystem_in_place_of_options(upload: Upload, data: Path, name: str) -> None:
    fsspec = pytest.importorskip("fsspec")
    url, store = upload(name)
    filesystem = fsspec.filesystem(url.partition("://")[0], **store["storage_options"])
    assert whole(f"{url}/train", filesystem=filesystem) == whole(data / "train")
    without_scheme = url.partition("://")[2]
    assert whole(f"{without_scheme}/train", filesystem=filesystem) == whole(data / "train")
