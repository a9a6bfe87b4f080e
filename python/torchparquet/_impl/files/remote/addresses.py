"""Addresses of files for the native HTTP client: a URL and headers that hold for a while."""

from __future__ import annotations

import base64
import importlib
import math
import os
import ssl
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit, urlunsplit

from torchparquet._impl.files.remote.credentials import Given, renewal_time
from torchparquet._impl.files.remote.failures import ChangedError
from torchparquet._impl.files.remote.filesystems import is_arrow, unwrapped
from torchparquet._impl.files.remote.store import Store, http_date
from torchparquet._impl.files.remote.urls import family

_SIGNED_SECONDS = 3600
# Of a URL by another host that does not tell when it expires.
_UNKNOWN_SECONDS = 600
# Systems keep the authorities that they trust here: Debian, Red Hat, SUSE, Alpine and macOS.
_USUAL_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_AZURE_SCOPE = "https://storage.azure.com/.default"
_AZURE_VERSION = "2023-11-03"


class Address(NamedTuple):
    """The address at which a file can be read for a while."""

    url: str
    headers: Mapping[str, str] = {}
    expires_at: float = math.inf  # seconds since 1970
    ca_file: str = ""  # certificates to trust; "" for those that libcurl has a path to
    given: Given = Given({})  # the options that it was made by

    @property
    def renew_at(self) -> float:
        """When to have another one: before it or the options end."""
        ends = renewal_time(self.expires_at)
        return ends if self.given.renew_at is None else min(ends, self.given.renew_at)


# From a file's name and stamp; None where the store's files have no address.
AddressMaker = Callable[[str, str], Address | None]


def address_maker(store: Store) -> AddressMaker | None:
    """Return what makes addresses of a store's files; None if the store has none.

    Its calls may ask the store, so they raise what the store's library raises.
    """
    makers = {"s3": _s3, "gs": _gcs, "az": _azure, "http": _http, "hf": _hf}
    maker = makers.get(family(store.scheme))
    if maker is None or is_arrow(unwrapped(store.filesystem)):
        return None

    def make(name: str, stamp: str) -> Address | None:
        filesystem, given = store.reached()
        address = maker(filesystem, name, stamp)
        if address is None:
            return None
        address = address._replace(given=given)
        if address.ca_file:
            return address
        ca_file = _named_certificates("SSL_CERT_FILE", "CURL_CA_BUNDLE")  # of Python, of curl
        return address._replace(ca_file=ca_file or _machine_certificates())

    return make


def _s3(filesystem: Any, name: str, stamp: str) -> Address | None:
    """Return a presigned URL, or a plain one if access is anonymous."""
    client, config = filesystem.client_kwargs, filesystem.config_kwargs
    verify = client.get("verify")
    if filesystem.s3_additional_kwargs or not (verify is None or isinstance(verify, str)):
        return None
    if not set(config) <= {"s3", "signature_version", "region_name", "retries"}:
        return None  # proxies, certificates
    signed = str(filesystem.sign(name, expiration=_SIGNED_SECONDS, **filesystem.req_kw))
    ca_file = verify or _named_certificates("AWS_CA_BUNDLE")
    if filesystem.anon:
        return Address(signed, ca_file=ca_file)
    expires_at = time.time() + _SIGNED_SECONDS
    # Those of a role or of a machine end, and all that they have signed with them.
    signer = getattr(filesystem._s3, "_request_signer", None)
    until = getattr(getattr(signer, "_credentials", None), "_expiry_time", None)
    if isinstance(until, datetime):
        expires_at = min(expires_at, until.timestamp())
    return Address(signed, {}, expires_at, ca_file)


def _gcs(filesystem: Any, name: str, stamp: str) -> Address | None:
    """Return the URL of the media with a token; it is refused if the generation changes."""
    if getattr(filesystem, "_use_mtls_endpoint", False):
        return None
    url = filesystem.url(name)
    kind, _, generation = stamp.partition(" ")
    if kind == "generation" and "generation=" not in url:
        url += f"&ifGenerationMatch={quote(generation)}"
    if filesystem.requester_pays:
        payer = filesystem.requester_pays
        url += f"&userProject={quote(payer if isinstance(payer, str) else filesystem.project)}"
    headers: dict[str, str] = {}
    filesystem.credentials.apply(headers)
    until = getattr(filesystem.credentials.credentials, "expiry", None)
    expires_at = time.time() + _SIGNED_SECONDS if headers else math.inf
    if isinstance(until, datetime):
        expires_at = until.replace(tzinfo=UTC).timestamp()
    return Address(url, headers, expires_at)


def _azure(filesystem: Any, name: str, stamp: str) -> Address | None:
    """Return a URL with a shared access signature, or with a token."""
    connection = filesystem.connection_string or ""
    has_key = "accountkey=" in connection.lower() if connection else filesystem.account_key
    if has_key and not filesystem.sas_token:
        signed = filesystem.sign(name, expiration=_SIGNED_SECONDS)
        return Address(signed, {}, time.time() + _SIGNED_SECONDS)
    container, blob, version = filesystem.split_path(name)
    # With a connection string, the file system does not know the account's address.
    if connection or version:
        return None
    plain = f"{filesystem.account_url.rstrip('/')}/{quote(container)}/{quote(blob)}"
    if filesystem.sas_token:
        token = filesystem.sas_token.lstrip("?")
        end = parse_qs(token).get("se", [""])[0]
        return Address(f"{plain}?{token}", {}, _moment(end) if end else math.inf)
    credential = filesystem.credential
    if credential is None:
        return Address(plain)
    if not hasattr(credential, "get_token"):
        return None
    from fsspec.asyn import sync

    token = sync(filesystem.loop, credential.get_token, _AZURE_SCOPE)
    headers = {"Authorization": f"Bearer {token.token}", "x-ms-version": _AZURE_VERSION}
    return Address(plain, headers, float(token.expires_on))


def _http(filesystem: Any, name: str, stamp: str) -> Address | None:
    """Return the URL itself with the user's headers, unless there are other options."""
    client, request = filesystem.client_kwargs, filesystem.kwargs
    if set(client) - {"headers", "timeout", "trace_configs"} or set(request) - {"headers"}:
        return None
    headers = {**client.get("headers", {}), **request.get("headers", {})}
    if modified := http_date(stamp):  # In place of an ETag, which native reads send along.
        headers["If-Unmodified-Since"] = modified
    parts = urlsplit(name)
    user, has_user, host = parts.netloc.rpartition("@")
    if has_user:
        pair = base64.b64encode(unquote(user).encode()).decode()
        headers["Authorization"] = f"Basic {pair}"
    path = quote(parts.path, safe="/%:@!$&'()*+,;=~-._")
    return Address(urlunsplit((parts.scheme, host, path, parts.query, "")), headers)


def _hf(filesystem: Any, name: str, stamp: str) -> Address | None:
    """Return the address that the Hub redirects to, which saves a redirect for each range."""
    from huggingface_hub import get_hf_file_metadata, get_token

    token = filesystem.token
    url = filesystem.url(name)
    found = get_hf_file_metadata(url, token=token, endpoint=filesystem.endpoint)
    kind, _, digest = stamp.partition(" ")
    if kind in ("sha256", "blob") and found.etag and found.etag != digest:
        raise ChangedError(f"hf://{name}")
    if urlsplit(found.location).netloc != urlsplit(url).netloc:
        return Address(found.location, {}, _signed_until(found.location))
    if found.commit_hash and found.commit_hash not in url:
        resolved = filesystem.resolve_path(name)
        revision = quote(resolved.revision, safe="")
        url = url.replace(f"/resolve/{revision}/", f"/resolve/{found.commit_hash}/", 1)
    sent = get_token() if token in (None, True) else token
    return Address(url, {"Authorization": f"Bearer {sent}"} if sent else {})


def _signed_until(url: str) -> float:
    """Return when a signed URL is refused, by what its query says."""
    query = {key.lower(): values[0] for key, values in parse_qs(urlsplit(url).query).items()}
    if query.get("expires", "").isdecimal():
        return float(query["expires"])
    if "x-amz-date" in query and query.get("x-amz-expires", "").isdecimal():
        return _moment(query["x-amz-date"]) + int(query["x-amz-expires"])
    return time.time() + _UNKNOWN_SECONDS


def _named_certificates(*variables: str) -> str:
    """Return the first path that one of these environment variables gives, or ""."""
    return next(filter(None, map(os.environ.get, variables)), "")


def _machine_certificates() -> str:
    """Return a file of certificates, or ""; the libcurl of a wheel knows none."""
    of_python = ssl.get_default_verify_paths().openssl_cafile
    for path in (of_python, *_USUAL_CERTIFICATES):
        if os.access(path, os.R_OK):
            return path
    try:
        return str(importlib.import_module("certifi").where())
    except ImportError:
        return ""


def _moment(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
