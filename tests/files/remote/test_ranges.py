"""Each library's answers are compared with the ranges that they were asked for."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import fsspec
import pytest

from tests.servers.faults import Fault, Kind
from tests.servers.faulty_origin import FaultyOrigin
from torchparquet._impl.files.remote.failures import Patience, patiently
from torchparquet._impl.files.remote.store import Store

CONTENT = bytes(range(256)) * 8
Monkey = pytest.MonkeyPatch


def of_http(origin: FaultyOrigin, monkeypatch: Monkey) -> tuple[Store, str]:
    made = fsspec.filesystem("http", skip_instance_cache=True)
    return Store("", None, made), origin.url_of("a")


def of_s3(origin: FaultyOrigin, monkeypatch: Monkey) -> tuple[Store, str]:
    s3fs = pytest.importorskip("s3fs")
    made = s3fs.S3FileSystem(
        anon=True, endpoint_url=origin.url, cache_regions=False, skip_instance_cache=True
    )
    return Store("", None, made), "bucket/a"


def of_s3_by_region(origin: FaultyOrigin, monkeypatch: Monkey) -> tuple[Store, str]:
    access, name = of_s3(origin, monkeypatch)
    access.filesystem.cache_regions = True
    return access, name


def of_gcs(origin: FaultyOrigin, monkeypatch: Monkey) -> tuple[Store, str]:
    gcsfs = pytest.importorskip("gcsfs.core")  # that of the package asks for more by gRPC
    made = gcsfs.GCSFileSystem(token="anon", endpoint_url=origin.url, skip_instance_cache=True)
    return Store("", None, made), "bucket/a"


def of_azure(origin: FaultyOrigin, monkeypatch: Monkey) -> tuple[Store, str]:
    adlfs = pytest.importorskip("adlfs")
    text = f"AccountName=account;AccountKey=a2V5;BlobEndpoint={origin.url}/account"
    made = adlfs.AzureBlobFileSystem(connection_string=text, skip_instance_cache=True)
    return Store("", None, made), "bucket/a"


def of_hub(origin: FaultyOrigin, monkeypatch: Monkey) -> tuple[Store, str]:
    hub = pytest.importorskip("huggingface_hub")
    made = hub.HfFileSystem(endpoint=origin.url, token=False, skip_instance_cache=True)
    name = "datasets/me/data/a"
    resolved = SimpleNamespace(unresolve=lambda: name)
    info = {"name": name, "size": len(CONTENT), "type": "file"}
    monkeypatch.setattr(made, "resolve_path", lambda *_, **__: resolved)
    monkeypatch.setattr(made, "info", lambda *_, **__: info)
    monkeypatch.setattr(made, "url", lambda *_, **__: origin.url_of("a"))
    return Store("", None, made), name


def of_http_in_another(origin: FaultyOrigin, monkeypatch: Monkey) -> tuple[Store, str]:
    inner, _ = of_http(origin, monkeypatch)
    made = fsspec.filesystem("dir", path=origin.url, fs=inner.filesystem, skip_instance_cache=True)
    return Store("", None, made), "a"


LIBRARIES: dict[str, Callable[[FaultyOrigin, Monkey], tuple[Store, str]]] = {
    "http": of_http,
    "http in another": of_http_in_another,
    "s3": of_s3,
    "s3 by region": of_s3_by_region,
    "gcs": of_gcs,
    "azure": of_azure,
    "hub": of_hub,
}
KEYS = ("a", "bucket/a", "account/bucket/a", "download/storage/v1/b/bucket/o/a")
GCS_ENTRY = {"bucket": "bucket", "name": "a", "size": str(len(CONTENT))}


@pytest.fixture
def origin() -> Iterator[FaultyOrigin]:
    with FaultyOrigin() as made:
        for key in KEYS:
            made.put(key, CONTENT)
        made.put("storage/v1/b/bucket/o/a", json.dumps(GCS_ENTRY).encode())
        yield made


@pytest.fixture(params=LIBRARIES)
def store(
    request: pytest.FixtureRequest, origin: FaultyOrigin, monkeypatch: Monkey
) -> tuple[Store, str]:
    return LIBRARIES[request.param](origin, monkeypatch)


@pytest.mark.parametrize("kind", ["wrong range", "wrong header", "no header", "whole"])
def test_another_range_is_an_error(
    origin: FaultyOrigin, store: tuple[Store, str], kind: Kind
) -> None:
    access, name = store
    access.read(name, 0, 4)
    origin.script.add("GET *", [Fault(kind, at=8)])
    with pytest.raises(OSError, match=r"cannot read '.*a': "):
        access.read(name, 100, 50)
    assert access.read(name, 100, 50) == CONTENT[100:150]


@pytest.fixture
def plain_store(store: tuple[Store, str]) -> tuple[Store, str]:
    """One whose library takes answers without a range."""
    if store[0].scheme == "abfs":
        pytest.skip("Azure's library wants a Content-Range in each answer")
    return store


def test_all_of_an_object_is_right_where_all_was_asked_for(
    origin: FaultyOrigin, plain_store: tuple[Store, str]
) -> None:
    access, name = plain_store
    origin.script.add("GET *", [Fault("whole")])
    assert access.read(name, 0, len(CONTENT)) == CONTENT


def test_a_store_without_ranges_is_asked_once(
    origin: FaultyOrigin, plain_store: tuple[Store, str]
) -> None:
    """It would answer another request in the same way."""
    access, name = plain_store
    access.read(name, 0, 4)
    origin.script.add("GET *", [Fault("whole")], forever=True)

    def wait(seconds: float) -> bool:
        pytest.fail("it is asked again")

    with pytest.raises(OSError, match=r"cannot read '.*a': the store ignores ranges .* copy the f"):
        patiently(lambda: access.read(name, 100, 50), Patience(), wait)


def test_the_text_of_an_error_in_place_of_an_object_is_asked_for_again(
    origin: FaultyOrigin, store: tuple[Store, str]
) -> None:
    access, name = store
    access.read(name, 0, 4)
    origin.script.add("GET *", [Fault("error body")])
    read = patiently(lambda: access.read(name, 100, 50), Patience(), lambda _: False)
    assert read == CONTENT[100:150]


class Unknown(fsspec.AbstractFileSystem):
    """A file system of a library whose parts have other names than those that are known."""

    cachable = False

    def cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        return CONTENT[start:end]


@pytest.mark.parametrize("library", ["s3fs.core", "gcsfs.core", "adlfs.spec", "huggingface_hub.x"])
def test_a_version_with_other_parts_is_read_with_a_warning(
    library: str, monkeypatch: Monkey
) -> None:
    if library.startswith("huggingface_hub"):
        monkeypatch.setitem(sys.modules, "huggingface_hub.utils", ModuleType("utils"))
    made = type("Unknown", (Unknown,), {"__module__": library})()
    access = Store("", None, made)
    with pytest.warns(UserWarning, match=r"not compared with the ranges .*another version"):
        assert access.read("a", 100, 50) == CONTENT[100:150]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert access.read("a", 10, 5) == CONTENT[10:15]


def test_an_open_file_has_no_bytes_of_another_range(
    origin: FaultyOrigin, store: tuple[Store, str]
) -> None:
    access, name = store
    with access.open(name, len(CONTENT)) as file:
        origin.script.add("GET */a", [Fault("wrong range", at=8)])  # no listing under way
        with pytest.raises(OSError, match="cannot read"):
            file.read(100)
        file.seek(-100, 2)
        assert file.read() == CONTENT[-100:]
        file.seek(300)
        assert file.read(20) == CONTENT[300:320]
        assert file.tell() == 320
