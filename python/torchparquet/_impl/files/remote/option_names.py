"""Storage options as fsspec takes them, from the names that Polars and pandas use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchparquet._impl.files.remote.urls import AZURE, HTTP

# Names of the object_store crate, which Polars uses, in lower case. A dotted name is one in
# a mapping; None: there is nothing to set.
_S3_NAMES: dict[str, str | None] = {
    "aws_access_key_id": "key",
    "access_key_id": "key",
    "aws_secret_access_key": "secret",
    "secret_access_key": "secret",
    "aws_session_token": "token",
    "session_token": "token",
    "aws_region": "client_kwargs.region_name",
    "region": "client_kwargs.region_name",
    "aws_default_region": "client_kwargs.region_name",
    "aws_endpoint_url": "endpoint_url",
    "aws_endpoint": "endpoint_url",
    "endpoint": "endpoint_url",
    "aws_skip_signature": "anon",
    "skip_signature": "anon",
    "aws_request_payer": "requester_pays",
    "request_payer": "requester_pays",
    "aws_allow_http": None,
    "allow_http": None,
}
_GCS_NAMES: dict[str, str | None] = {
    "google_service_account": "token",
    "google_service_account_path": "token",
    "service_account": "token",
    "service_account_path": "token",
    "google_application_credentials": "token",
}
_AZURE_NAMES: dict[str, str | None] = {
    "azure_storage_account_name": "account_name",
    "azure_storage_account_key": "account_key",
    "azure_storage_access_key": "account_key",
    "azure_storage_master_key": "account_key",
    "azure_storage_sas_token": "sas_token",
    "azure_storage_sas_key": "sas_token",
    "sas_key": "sas_token",
    "azure_storage_client_id": "client_id",
    "azure_storage_client_secret": "client_secret",
    "azure_storage_tenant_id": "tenant_id",
    "azure_storage_connection_string": "connection_string",
}
_NAMES = {
    **dict.fromkeys(("s3", "s3a"), _S3_NAMES),
    **dict.fromkeys(("gs", "gcs"), _GCS_NAMES),
    **dict.fromkeys(AZURE, _AZURE_NAMES),
}
_FLAGS = ("anon", "requester_pays")


def checked_options(options: object) -> dict[str, Any]:
    """Return storage options as a dict."""
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        # The value may be a secret.
        raise TypeError(
            f"storage_options must be a dict from names to values; got {type(options).__name__}"
        )
    return dict(options)


def fsspec_options(scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as the file system of the scheme takes them.

    Args:
        options: By the names of fsspec, as pandas and datasets take them, or by those of Polars.
            pandas takes the headers of HTTP, which are strings, as options.
    """
    if scheme in HTTP:
        return _http_options(options)
    names = _NAMES.get(scheme, {})
    made: dict[str, Any] = {}
    for name, value in options.items():
        target = names.get(name.lower(), name)
        if target is None:
            continue
        if target != name and target in _FLAGS and isinstance(value, str):
            value = value.lower() in ("true", "1", "yes", "requester")
        outer, _, inner = target.partition(".") if target != name else (name, "", "")
        if inner:
            made[outer] = {**made.get(outer, {}), inner: value}
        elif isinstance(value, Mapping) and isinstance(made.get(outer), dict):
            made[outer] = {**made[outer], **value}
        else:
            made[outer] = value
    return made


def _http_options(options: Mapping[str, Any]) -> dict[str, Any]:
    own = ("cookies", "encoding")
    headers = {n: v for n, v in options.items() if isinstance(v, str) and n.lower() not in own}
    made = {name: value for name, value in options.items() if name not in headers}
    if headers:
        made["headers"] = {**made.get("headers", {}), **headers}
    return made
