"""File systems of fsspec: made of URLs, told apart from pyarrow's, made anew after a fork."""

from __future__ import annotations

import inspect
import pickle
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from torchparquet._impl.checks import close_names
from torchparquet._impl.files.remote.urls import (
    HTTP,
    family,
    redacted,
    secrets_of,
    split_scheme,
    without_credentials,
)
from torchparquet.errors import one_line

# By the family of a scheme: the package that fsspec needs for it.
_PACKAGES = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "az": "adlfs",
    "hf": "huggingface_hub",
    "http": "aiohttp",
}
# Headers of a request that another host may see: they say what is asked, not who asks.
_PUBLIC_HEADERS = ("accept", "accept-encoding", "range", "user-agent")

# How patient the native client is. The first two are names of Polars, which has none for others.
CLIENT_OPTIONS = ("max_retries", "retry_timeout_ms", "max_connections", "hedges")

# By the family: names of the object_store crate, which Polars uses, without the beginning that they
# may have, and those of fsspec. A dotted name is one in a mapping; "" means nothing to set.
_BEGINNINGS = {"s3": "aws_", "gs": "google_", "az": "azure_storage_"}
_NAMES = {
    "s3": {
        "access_key_id": "key",
        "secret_access_key": "secret",
        "session_token": "token",
        **dict.fromkeys(("region", "default_region"), "client_kwargs.region_name"),
        **dict.fromkeys(("endpoint", "endpoint_url"), "endpoint_url"),
        "skip_signature": "anon",
        "request_payer": "requester_pays",
        "allow_http": "",
    },
    "gs": {
        **dict.fromkeys(("service_account", "service_account_path"), "token"),
        **dict.fromkeys(("application_credentials", "bearer_token"), "token"),
    },
    "az": {
        **{name: name for name in ("account_name", "account_key", "sas_token", "client_id")},
        **{name: name for name in ("client_secret", "tenant_id", "connection_string")},
        **dict.fromkeys(("access_key", "master_key"), "account_key"),
        "sas_key": "sas_token",
        "bearer_token": "credential",
    },
}
_FLAGS = ("anon", "requester_pays")
# Options of HTTP that are strings, and no headers.
_OF_HTTP = ("cookies", "encoding")


def fsspec_for(scheme: str) -> Any:
    """Return the module fsspec, with what it needs for a scheme."""
    families = map(family, scheme.split("::"))
    packages = ["fsspec", *(_PACKAGES[part] for part in families if part in _PACKAGES)]
    for package in packages:
        try:
            import_module(package)
        except ImportError as error:
            raise ImportError(
                f"{scheme}:// paths need the package {package} "
                f"(pip install {' '.join(packages)}): {error}"
            ) from error
    return import_module("fsspec")


def make_filesystem(url: str, options: Mapping[str, Any], *, shared: bool = True) -> Any:
    """Return a file system of fsspec for a URL; others with the same options share it."""
    scheme, _ = split_scheme(url)
    fsspec = fsspec_for(scheme)
    classes = fsspec.get_filesystem_class(scheme.rpartition("::")[2]).__mro__
    known = {name for cls in classes for name in inspect.signature(cls.__init__).parameters}
    for name in options.keys() - known:
        close = close_names(name, CLIENT_OPTIONS, 0.8)
        if close:
            raise ValueError(
                f"storage_options has no such name; did you mean {close[0]!r}: {name!r}"
            )
    try:
        given = fsspec_options(scheme, options)
        if scheme in HTTP:  # whose guards differ, so that none would be found again
            given, shared = _with_guarded_redirects(given), False
        if not shared:
            given |= {"skip_instance_cache": True}
        made, _ = fsspec.core.url_to_fs(url, **given)
        made.invalidate_cache()
    except ImportError as error:
        raise ImportError(f"{scheme}:// paths need another package: {one_line(error)}") from error
    except Exception as error:
        text = redacted(one_line(error), secrets_of(options))
        raise ValueError(
            f"cannot open the file system of {without_credentials(url)!r} (storage_options go to "
            f"fsspec's class for {scheme}://): {text}"
        ) from None
    return made


def fsspec_options(scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by the names of fsspec, pandas or Polars as the file system takes them."""
    kind = family(scheme)
    names, beginning = _NAMES.get(kind, {}), _BEGINNINGS.get(kind, "")
    made: dict[str, Any] = {}
    for name, value in options.items():
        target = names.get(name.lower().removeprefix(beginning), name)
        if target != name and target in _FLAGS and isinstance(value, str):
            value = value.lower() in ("true", "1", "yes", "requester")
        if name == "bearer_token" and isinstance(value, str):
            value = _BEARER_TOKENS.get(kind, str)(value)
        outer, _, inner = target.partition(".") if target != name else (name, "", "")
        # pandas takes the headers of HTTP, which are strings, as options.
        if scheme in HTTP and isinstance(value, str) and name.lower() not in _OF_HTTP:
            outer, inner = "headers", name
        part = {inner: value} if inner else value
        if isinstance(part, Mapping) and isinstance(made.get(outer), dict):
            part = {**made[outer], **part}
        if target:
            made[outer] = part
    return made


class _BearerToken:
    """A token of Azure as adlfs takes it. Whoever gave it knows its end."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def get_token(self, *_: str, **__: Any) -> Any:
        """Return it, as good for the next hour."""
        end = int(time.time()) + 3600
        return import_module("azure.core.credentials").AccessToken(self._token, end)

    async def close(self) -> None:
        """Do nothing: it has no connection."""


def _bearer_token_of_google(token: str) -> Any:
    """Return a token as gcsfs takes it; as a text it would ask Google whose it is."""
    return import_module("google.oauth2.credentials").Credentials(token)


_BEARER_TOKENS: dict[str, Callable[[str], Any]] = {
    "az": _BearerToken,
    "gs": _bearer_token_of_google,
}


def _with_guarded_redirects(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of HTTP by which the user's headers go to the host of the URL alone."""
    trace = import_module("aiohttp").TraceConfig()
    trace.on_request_redirect.append(_guard_redirect)
    client = dict(options.get("client_kwargs") or {})
    client["trace_configs"] = [*client.get("trace_configs", ()), trace]
    return {**options, "client_kwargs": client}


async def _guard_redirect(session: Any, context: Any, redirect: Any) -> None:
    """Take headers from a request that a server sends elsewhere; aiohttp takes some alone."""
    answer = redirect.response.headers
    there = redirect.url.join(type(redirect.url)(answer.get("Location") or answer.get("URI", "")))
    if there.origin() != redirect.url.origin():
        for name in set(redirect.headers):
            if name.lower() not in _PUBLIC_HEADERS:
                redirect.headers.popall(name, None)


def is_arrow(filesystem: object) -> bool:
    """True for a file system of pyarrow."""
    return is_a(filesystem, "pyarrow.", "FileSystem")


def is_a(filesystem: object, package: str, name: str) -> bool:
    """True for an object of a class of a package that perhaps nobody has imported."""
    classes = type(filesystem).__mro__
    return any(cls.__module__.startswith(package) and cls.__name__ == name for cls in classes)


def unwrapped(filesystem: Any) -> Any:
    """Return the file system of fsspec inside one of pyarrow, or the other way round."""
    handler = getattr(filesystem, "handler", None)
    if handler is not None and type(handler).__name__ == "FSSpecHandler":
        return handler.fs
    return filesystem.fs if is_a(filesystem, "fsspec.", "ArrowFSWrapper") else filesystem


def protocols(filesystem: Any) -> tuple[str, ...]:
    """Return the schemes of the file system's URLs, the usual one first."""
    if is_arrow(filesystem):
        kind = str(filesystem.type_name)
        return ("gs", "gcs") if kind == "gcs" else (kind,)
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def renewed(filesystem: Any) -> Any:
    """Return a file system like one that this process has inherited by a fork."""
    if is_arrow(filesystem):
        return pickle.loads(pickle.dumps(filesystem))  # noqa: S301
    return type(filesystem)(
        *filesystem.storage_args, **filesystem.storage_options, skip_instance_cache=True
    )
