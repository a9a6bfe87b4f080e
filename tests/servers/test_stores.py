"""Each store keeps what is put into it, and gives it to a client that has its options alone."""

from __future__ import annotations

import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.tree import child_environment
from tests.servers.fixtures import OpenStore
from tests.servers.processes import ServerError, accepts, free_ports, server
from tests.servers.stores import FolderStore, Store

ODD_NAME = "a b+c=d/ä.bin"


def client(store: Store) -> Any:
    fsspec = pytest.importorskip("fsspec")
    return fsspec.filesystem(
        store.prefix.partition("://")[0],
        **store.storage_options | {"skip_instance_cache": True, "use_listings_cache": False},
    )


@pytest.mark.mostly_long(every=3)
def test_a_folder_comes_back_as_it_was(store: Store, tmp_path: Path) -> None:
    contents = {"0.bin": b"", "1.bin": bytes(range(256)) * 4000, "key=1/2.bin": b"two"}
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    url = store.upload(tmp_path, "folder")
    filesystem = client(store)
    assert url.startswith(store.prefix)
    for name, content in contents.items():
        assert filesystem.cat_file(f"{url}/{name}") == content
    assert filesystem.cat_file(f"{url}/1.bin", start=1000, end=1010) == contents["1.bin"][1000:1010]
    ends = [path.rpartition("folder/")[2] for path in filesystem.find(url + "/")]
    assert sorted(ends) == sorted(contents)


@pytest.mark.long
def test_objects_are_replaced_and_deleted(store: Store) -> None:
    url = store.put("one", b"first")
    before = client(store).info(url)
    assert store.put("one", b"second, and longer") == url
    after = client(store).info(url)
    assert client(store).cat_file(url) == b"second, and longer"
    assert (before["size"], after["size"]) == (5, 18)
    named = {name.lower() for name in before} & {"etag", "generation"}
    assert all(before[name] != after[name] for name in before if name.lower() in named)
    assert named
    store.delete("one")
    assert not client(store).exists(url)


@pytest.mark.parametrize("name", ["moto", "seaweedfs", "azurite", "gcs"])
def test_keys_may_have_odd_characters(open_store: OpenStore, name: str) -> None:
    store = open_store(name)
    url = store.put(ODD_NAME, b"odd")
    assert client(store).cat_file(url) == b"odd"


def test_seaweedfs_refuses_other_keys(open_store: OpenStore) -> None:
    store = open_store("seaweedfs")
    url = store.put("refused", b"secret")
    s3fs = pytest.importorskip("s3fs")
    other = store.storage_options | {"secret": "another"}
    with pytest.raises(PermissionError):
        s3fs.S3FileSystem(**other, skip_instance_cache=True).cat_file(url)


def test_tls_is_trusted_by_its_authority_alone(open_store: OpenStore) -> None:
    store = open_store("https")
    url = store.put("encrypted", b"yes")
    with urllib.request.urlopen(url, timeout=30) as response:
        assert response.read() == b"yes"
    other = pytest.importorskip("trustme").CA().cert_pem.bytes().decode()
    context = ssl.create_default_context(cadata=other)
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(url, timeout=30, context=context)


def test_a_folder_store_serves_what_was_put_last(open_store: OpenStore) -> None:
    store = open_store("http")
    assert isinstance(store, FolderStore)
    url = store.put("a/b", b"1")
    store.put("a/b", b"2")
    with urllib.request.urlopen(url, timeout=30) as response:
        assert response.read() == b"2"


def test_a_server_that_ends_is_shown_with_its_log(tmp_path: Path) -> None:
    program = "print('what went wrong'); raise SystemExit(3)"
    with (
        pytest.raises(ServerError, match="what went wrong"),
        server([sys.executable, "-c", program], lambda: False, tmp_path / "log"),
    ):
        pass


KILLED = """
import sys
from pathlib import Path
from tests.servers.http_stores import http_origin
with http_origin(Path(sys.argv[1])) as store:
    print(store.prefix, flush=True)
    sys.stdin.read()
"""


def test_a_server_ends_with_whoever_started_it(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    program = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        env=child_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    port = int(program.stdout.readline().strip().rpartition(":")[2])
    assert accepts(port)
    program.kill()
    program.communicate()
    while accepts(port):  # until the kernel has ended it
        pass


def test_free_ports_are_different() -> None:
    assert len(set(free_ports(50))) == 50
