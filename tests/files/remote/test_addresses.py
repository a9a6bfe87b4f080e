"""Addresses for the native client: URLs, headers and when they end."""

from __future__ import annotations

import math
import ssl
import sys
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest

from tests.files.remote.conftest import Bucket
from tests.servers.faulty_origin import FaultyOrigin
from torchparquet._impl.files.remote import addresses
from torchparquet._impl.files.remote.addresses import address_maker
from torchparquet._impl.files.remote.credentials import Credentials
from torchparquet._impl.files.remote.store import Store

machine_certificates = addresses._machine_certificates


@pytest.fixture(autouse=True)
def no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("AWS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(addresses, "_machine_certificates", lambda: "")


def maker_of(filesystem: Any) -> Any:
    return address_maker(Store("", None, filesystem))


def test_certificates_are_those_of_the_environment(
    s3_url: str, origin: FaultyOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = maker_of(fsspec.filesystem("http", skip_instance_cache=True))
    made = {"anon": True, "endpoint_url": s3_url, "skip_instance_cache": True}
    s3 = maker_of(fsspec.filesystem("s3", **made))
    named = maker_of(fsspec.filesystem("s3", client_kwargs={"verify": "/mine"}, **made))
    monkeypatch.setattr(addresses, "_machine_certificates", lambda: "/machine")
    assert (http(origin.url, "").ca_file, s3("b/a", "").ca_file) == ("/machine", "/machine")
    monkeypatch.setenv("CURL_CA_BUNDLE", "/curl")
    assert (http(origin.url, "").ca_file, s3("b/a", "").ca_file) == ("/curl", "/curl")
    monkeypatch.setenv("SSL_CERT_FILE", "/ssl")
    monkeypatch.setenv("AWS_CA_BUNDLE", "/aws")
    assert (http(origin.url, "").ca_file, s3("b/a", "").ca_file) == ("/ssl", "/aws")
    assert named("b/a", "").ca_file == "/mine"


def test_certificates_of_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_python, of_system, of_certifi = (tmp_path / name for name in ("python", "system", "certifi"))
    paths = SimpleNamespace(openssl_cafile=str(of_python))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
    monkeypatch.setattr(addresses, "_USUAL_CERTIFICATES", (str(of_system),))
    monkeypatch.setitem(sys.modules, "certifi", None)
    assert machine_certificates() == ""
    certifi = SimpleNamespace(where=lambda: str(of_certifi))
    monkeypatch.setitem(sys.modules, "certifi", certifi)
    for better in (of_certifi, of_system, of_python):
        better.touch()
        assert machine_certificates() == str(better)


def test_s3_signs_no_longer_than_its_credentials(bucket: Bucket) -> None:
    bucket.filesystem.pipe_file(f"{bucket.name}/a", b"0")
    end = datetime.now(UTC) + timedelta(minutes=9)
    credentials = bucket.filesystem._s3._request_signer._credentials
    credentials._expiry_time = end
    address = maker_of(bucket.filesystem)(f"{bucket.name}/a", "")
    assert address.expires_at == pytest.approx(end.timestamp())


def test_gcs_has_a_token_and_a_generation(monkeypatch: Any) -> None:
    gcsfs = pytest.importorskip("gcsfs")
    filesystem = gcsfs.GCSFileSystem(
        token="anon", endpoint_url="http://host:1", project="p", skip_instance_cache=True
    )
    make = maker_of(filesystem)
    address = make("bucket/a b/c", "generation 12")
    assert address.url == (
        "http://host:1/download/storage/v1/b/bucket/o/a%20b%2Fc?alt=media&ifGenerationMatch=12"
    )
    assert (address.headers, address.expires_at) == ({}, math.inf)
    end = datetime(2030, 1, 1)

    def apply(headers: dict[str, str]) -> None:
        headers["Authorization"] = "Bearer t"

    token = SimpleNamespace(credentials=SimpleNamespace(expiry=end), apply=apply)
    monkeypatch.setattr(filesystem, "credentials", token)
    address = make("bucket/a", "")
    assert address.headers == {"Authorization": "Bearer t"}
    assert address.expires_at == end.replace(tzinfo=UTC).timestamp()


def test_azure_has_a_signature() -> None:
    adlfs = pytest.importorskip("adlfs")
    made = {"account_name": "account", "skip_instance_cache": True}
    by_key = adlfs.AzureBlobFileSystem(account_key="a2V5", **made)
    address = maker_of(by_key)("container/a b", "etag 0x8")
    assert address.url.startswith("https://account.blob.core.windows.net/container/a%20b?")
    assert "sig=" in address.url
    assert 3500 < address.expires_at - time.time() <= 3600
    by_token = adlfs.AzureBlobFileSystem(sas_token="?se=2030-01-01T00:00:00Z&sig=x", **made)
    address = maker_of(by_token)("container/a b", "")
    assert address.url == (
        "https://account.blob.core.windows.net/container/a%20b?se=2030-01-01T00:00:00Z&sig=x"
    )
    assert address.expires_at == datetime(2030, 1, 1, tzinfo=UTC).timestamp()
    anonymous = adlfs.AzureBlobFileSystem(anon=True, **made)
    address = maker_of(anonymous)("container/a", "")
    assert address[:4] == ("https://account.blob.core.windows.net/container/a", {}, math.inf, "")


def test_azure_by_a_connection_string() -> None:
    adlfs = pytest.importorskip("adlfs")
    blobs = "BlobEndpoint=http://127.0.0.1:1/account"
    with_key = f"AccountName=account;AccountKey=a2V5;{blobs}"
    filesystem = adlfs.AzureBlobFileSystem(connection_string=with_key, skip_instance_cache=True)
    address = maker_of(filesystem)("container/a b", "etag 0x8")
    assert address.url.startswith("http://127.0.0.1:1/account/container/a%20b?")
    assert "sig=" in address.url
    # Its signature is for adlfs alone.
    with_token = f"{blobs};SharedAccessSignature=se=2030-01-01T00:00:00Z&sig=x"
    filesystem = adlfs.AzureBlobFileSystem(connection_string=with_token, skip_instance_cache=True)
    assert maker_of(filesystem)("container/a b", "etag 0x8") is None


def test_hf_is_where_the_hub_redirects_to(monkeypatch: Any) -> None:
    hub = pytest.importorskip("huggingface_hub")
    filesystem = SimpleNamespace(
        protocol="hf",
        token="hf_token",
        endpoint="https://huggingface.co",
        url=lambda name: "https://huggingface.co/datasets/me/data/resolve/main/a.parquet",
        resolve_path=lambda name: SimpleNamespace(revision="main"),
    )
    location = "https://cdn.example/x?Expires=2000000000&Signature=s"
    found = SimpleNamespace(etag="abc", location=location, commit_hash="c0ffee")

    def metadata(url: str, **options: Any) -> Any:
        assert options["token"] == "hf_token"
        return found

    monkeypatch.setattr(hub, "get_hf_file_metadata", metadata)
    make = maker_of(filesystem)
    name = "datasets/me/data/a.parquet"
    assert make(name, "sha256 abc")[:4] == (location, {}, 2e9, "")
    with pytest.raises(OSError, match="has changed since it was listed: 'hf://datasets/me/data/a"):
        make(name, "sha256 other")
    found.location = filesystem.url(name)
    assert make(name, "blob abc")[:4] == (
        "https://huggingface.co/datasets/me/data/resolve/c0ffee/a.parquet",
        {"Authorization": "Bearer hf_token"},
        math.inf,
        "",
    )


def lasting_until(end: float, options: dict[str, str]) -> tuple[dict[str, str], float]:
    return options, end


def test_tokens_by_the_name_that_providers_of_polars_have() -> None:
    pytest.importorskip("adlfs")
    pytest.importorskip("gcsfs")
    end = time.time() + 1800
    accounts: dict[str, dict[str, str]] = {
        "gs://bucket/a": {"project": "p"},
        "az://container/a": {"account_name": "account"},
    }
    for url, account in accounts.items():
        given = account | {"bearer_token": "t0ken"}
        store = Store(url, Credentials(partial(lasting_until, end, given)))
        make = address_maker(store)
        assert make is not None
        address = make(store.name_of(url), "")
        assert address is not None
        sent = {name.lower(): value for name, value in address.headers.items()}
        assert sent["authorization"] == "Bearer t0ken"
        assert address.renew_at == pytest.approx(end - 60)


def test_others_have_none(memory: Any) -> None:
    assert maker_of(memory) is None
