"""Paths and URLs of files: as texts, their schemes, and without credentials."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from torchparquet._impl.checks import shown

# fsspec chains schemes: simplecache::s3://bucket/key.
_URL = re.compile(r"((?:[A-Za-z][A-Za-z0-9+.-]*::)*[A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_LOCAL = ("file", "local")
HTTP = ("http", "https")
# Azure writes the container where others write a user: abfs://container@account/path.
AZURE = ("az", "abfs", "abfss", "adl")
# Families whose names begin with a bucket or container; fsspec lists these by a prefix.
WITH_BUCKETS = ("s3", "gs", "az")
_FAMILIES = {"s3a": "s3", "gcs": "gs", "https": "http", **dict.fromkeys(AZURE, "az")}

_QUERY = re.compile(r"(https?://[^\s'\"<>?#]*)[?#][^\s'\"<>)]*", re.IGNORECASE)
_USER = re.compile(r"(://)[^/\s'\"<>@:]*:[^/\s'\"<>@]*@")
_HTTP_USER = re.compile(r"((?:https?|ftp|sftp|ssh|smb|webdav)://)[^/\s'\"<>@]*@", re.IGNORECASE)
_SECRET_NAME = re.compile(
    r"key|secret|token|passw|sas|credential|connection_string|auth|cookie|signature|headers",
    re.IGNORECASE,
)
_LEAST_SECRET = 4


def checked_path(path: object, argument: str) -> str:
    """Return a path as a text that names something."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str):
        raise TypeError(f"{argument} must be a str or an os.PathLike of str; got {shown(text)}")
    if not text:
        # As a relative path it would mean the current directory.
        raise ValueError(f"{argument} must not be empty; got {text!r}")
    if "\0" in text:
        raise ValueError(f"{argument} must not contain a null character; got {text!r}")
    return text


def split_scheme(text: str) -> tuple[str, str]:
    """Return the scheme of a URL in lower case and the rest; "" and the text for a path."""
    url = _URL.fullmatch(text)
    return (url[1].lower(), url[2]) if url else ("", text)


def family(scheme: str) -> str:
    """Return the scheme that stands for all schemes of one kind of store."""
    return _FAMILIES.get(scheme, scheme)


def is_remote_url(text: str) -> bool:
    """True for a URL other than `file://`."""
    scheme, _ = split_scheme(text)
    return scheme not in ("", *_LOCAL)


def without_credentials(url: str) -> str:
    """Return a URL without user, password and, of HTTP, query."""
    scheme, rest = split_scheme(url)
    if not scheme:
        return url
    host, slash, path = rest.partition("/")
    last = scheme.rpartition("::")[2]
    if last in HTTP:
        host, path = re.split("[?#]", host)[0], re.split("[?#]", path)[0]
    if last not in AZURE:
        host = host.rpartition("@")[2]
    return f"{scheme}://{host}{slash}{path}"


def secrets_of(options: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the values in storage options that nobody else may see, longest first."""
    found: set[str] = set()

    def look(value: Any, is_secret: bool) -> None:
        if isinstance(value, Mapping):
            for name, inner in value.items():
                look(inner, is_secret or bool(_SECRET_NAME.search(str(name))))
        elif isinstance(value, list | tuple):
            for inner in value:
                look(inner, is_secret)
        elif is_secret and isinstance(value, str) and len(value) >= _LEAST_SECRET:
            found.add(value)
            found.update(word for word in value.split() if len(word) >= 2 * _LEAST_SECRET)

    look(options or {}, False)
    return tuple(sorted(found, key=lambda secret: (-len(secret), secret)))


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a text without queries and users of URLs, and without the given secrets."""
    for secret in secrets:
        text = text.replace(secret, "***")
    text = _QUERY.sub(r"\1", text)
    return _HTTP_USER.sub(r"\1", _USER.sub(r"\1", text))
