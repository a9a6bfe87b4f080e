"""Storage options, by the names of fsspec, Polars and pandas, and those of the native client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchparquet._impl.checks import checked_bool, checked_int, close_names
from torchparquet._impl.files.remote.urls import AZURE, HTTP

# How patient the native client is. The first two are names of Polars, which has none for others.
CLIENT_OPTIONS = ("max_retries", "retry_timeout_ms", "max_connections", "hedges")
# Of Polars. Waits between tries are the same for all stores here.
_WAITS = ("retry_init_backoff_ms", "retry_max_backoff_ms", "retry_base_multiplier")

# Names of the object_store crate, which Polars uses, in lower case, by those of fsspec. A dotted
# name is one in a mapping; "" means that there is nothing to set.
_S3 = {
    "key": "aws_access_key_id access_key_id",
    "secret": "aws_secret_access_key secret_access_key",
    "token": "aws_session_token session_token",
    "client_kwargs.region_name": "aws_region region aws_default_region",
    "endpoint_url": "aws_endpoint_url aws_endpoint endpoint",
    "anon": "aws_skip_signature skip_signature",
    "requester_pays": "aws_request_payer request_payer",
    "": "aws_allow_http allow_http",
}
_GCS = {
    "token": "google_service_account google_service_account_path service_account "
    "service_account_path google_application_credentials",
}
_AZURE = {
    "account_name": "azure_storage_account_name",
    "account_key": "azure_storage_account_key azure_storage_access_key azure_storage_master_key",
    "sas_token": "azure_storage_sas_token azure_storage_sas_key sas_key",
    "client_id": "azure_storage_client_id",
    "client_secret": "azure_storage_client_secret",
    "tenant_id": "azure_storage_tenant_id",
    "connection_string": "azure_storage_connection_string",
}
_NAMES = {
    scheme: {other: name for name, others in names.items() for other in others.split()}
    for schemes, names in ((("s3", "s3a"), _S3), (("gs", "gcs"), _GCS), (AZURE, _AZURE))
    for scheme in schemes
}
_FLAGS = ("anon", "requester_pays")


def split_options(options: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of the store's file system, and the arguments of the native client."""
    if options is None:
        return {}, {}
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        # The value may be a secret.
        raise TypeError(
            f"storage_options must be a dict from names to values; got {type(options).__name__}"
        )
    of_store: dict[str, Any] = {}
    of_client: dict[str, Any] = {}
    for name, value in options.items():
        if name in _WAITS:
            raise ValueError(
                "storage_options must not set how long to wait between tries (0.1 s at first, "
                f"twice as long each time, 20 s at most; leave it out): {name!r}"
            )
        if name in CLIENT_OPTIONS:
            of_client |= _client_option(name, value)
        else:
            of_store[name] = value
    return of_store, of_client


def _client_option(name: str, value: object) -> dict[str, Any]:
    """Return an argument of the native client; Polars and the command line give texts too."""
    shown = f"storage_options[{name!r}]"
    if name == "hedges":
        value = {"true": True, "false": False}.get(str(value).lower(), value)
        checked_bool(shown, value)
        return {name: value}
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if name == "max_retries":
        return {"max_tries": checked_int(shown, value, 0, 1 << 30) + 1}
    number = checked_int(shown, value, 1, 1 << 40 if name == "retry_timeout_ms" else 1 << 31)
    return {"max_seconds": number / 1000} if name == "retry_timeout_ms" else {name: number}


def check_names(options: Mapping[str, Any], known: set[str]) -> None:
    """Raise for an option that no library knows and that is spelled like one of ours."""
    for name in options.keys() - known:
        close = close_names(name, CLIENT_OPTIONS, 0.8)
        if close:
            raise ValueError(
                f"storage_options has no such name; did you mean {close[0]!r}: {name!r}"
            )


def fsspec_options(scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by the names of fsspec, pandas or Polars as the file system takes them."""
    if scheme in HTTP:
        return _http_options(options)
    names = _NAMES.get(scheme, {})
    made: dict[str, Any] = {}
    for name, value in options.items():
        target = names.get(name.lower(), name)
        if not target:
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
    # pandas takes the headers of HTTP, which are strings, as options.
    own = ("cookies", "encoding")
    headers = {n: v for n, v in options.items() if isinstance(v, str) and n.lower() not in own}
    made = {name: value for name, value in options.items() if name not in headers}
    if headers:
        made["headers"] = {**made.get("headers", {}), **headers}
    return made
