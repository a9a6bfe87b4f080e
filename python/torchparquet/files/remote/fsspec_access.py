"""Files of a store by fsspec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from torchparquet.errors import one_line
from torchparquet.files.remote.file_access import Entry, plain_errors
from torchparquet.files.remote.option_names import fsspec_options
from torchparquet.files.remote.stamps import stamp_of
from torchparquet.files.remote.urls import (
    HTTP,
    redacted,
    secrets_of,
    split_scheme,
    without_credentials,
)

# By scheme: the package that fsspec needs for it.
_PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss", "adl"), "adlfs"),
    "hf": "huggingface_hub",
    **dict.fromkeys(("http", "https"), "aiohttp"),
}
# Their `find` takes a prefix.
_WITH_PREFIX = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl")
_OPENED_BLOCK_BYTES = 1 << 20
# Headers of a request that another host may see: they say what is asked, not who asks.
_PUBLIC_HEADERS = ("accept", "accept-encoding", "range", "user-agent")


def fsspec_for(scheme: str) -> Any:
    """Return the module fsspec, with what it needs for a scheme.

    Args:
        scheme: Of a URL; several joined by ``::`` in a chain.

    Raises:
        ImportError: A package is missing; the message says how to install it.
    """
    parts = scheme.split("::")
    packages = ["fsspec", *(_PACKAGES[part] for part in parts if part in _PACKAGES)]
    for package in packages:
        try:
            import_module(package)
        except ImportError as error:
            raise ImportError(
                f"{scheme}:// paths need the package {package} "
                f"(pip install {' '.join(packages)}): {error}"
            ) from error
    return import_module("fsspec")


def make_filesystem(url: str, options: Mapping[str, Any]) -> Any:
    """Return a file system of fsspec for a URL, which others with the same options share.

    S3's needs 0.1 s to begin. Listings that it keeps are forgotten.

    Args:
        url: Any URL of the store.
        options: Storage options, as the user gave them.

    Raises:
        ImportError: A package is missing.
        ValueError: The scheme is unknown, or the options do not fit it.
    """
    scheme, _ = split_scheme(url)
    fsspec = fsspec_for(scheme)
    try:
        given = fsspec_options(scheme, options)
        if scheme in HTTP:  # whose guards differ, so that none would be found again
            given = _with_guarded_redirects(given) | {"skip_instance_cache": True}
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


class FsspecAccess:
    """Files of a store by fsspec; see `FileAccess`."""

    def __init__(self, filesystem: Any, scheme: str, host: str, secrets: tuple[str, ...]) -> None:
        """Use a file system of fsspec.

        Args:
            filesystem: The file system.
            scheme: Of the store's URLs.
            host: The part of URLs before a file's name, without credentials.
            secrets: Texts that no message may show.
        """
        self.filesystem = filesystem
        self.scheme = scheme
        self.secrets = secrets
        self._host = host

    def name_of(self, text: str) -> str:
        """Return fsspec's name of a path or URL."""
        if self.scheme in HTTP:
            return text
        name = str(self.filesystem._strip_protocol(text))
        return name.rstrip("/") or name

    def shown(self, name: str) -> str:
        """Return the URL of a name, without credentials."""
        if self.scheme in HTTP:
            return without_credentials(name)
        slash = "/" if self._host and not name.startswith("/") else ""
        return f"{self.scheme}://{self._host}{slash}{name if self._host else name.lstrip('/')}"

    def look_up(self, name: str, *, afresh: bool = False) -> Entry | None:
        """Return a file or directory; None if there is neither."""
        try:
            with plain_errors("look up", self.shown(name), self.secrets):
                # The Hub's library would list the whole directory again.
                options = {"refresh": True} if afresh and self.scheme == "hf" else {}
                if afresh and not options:
                    self.filesystem.invalidate_cache()
                info = self.filesystem.info(name, **options)
        except FileNotFoundError:
            return None
        if self.scheme in HTTP and str(info.get("mimetype")) == "text/html":
            raise ValueError(
                "an http(s):// path must be of a Parquet file (directories and patterns cannot "
                f"be listed, give the files themselves): {self.shown(name)!r} is a page"
            )
        return self._entry(info)

    def files_below(self, name: str, prefix: str = "") -> list[Entry]:
        """Return all files below a directory; none if it does not exist."""
        limits = {"prefix": prefix} if prefix and self.scheme in _WITH_PREFIX else {}
        try:
            with plain_errors("list", self.shown(name), self.secrets):
                self.filesystem.invalidate_cache()
                found = self.filesystem.find(name, detail=True, **limits)
        except FileNotFoundError:
            return []
        entries = [self._entry(info) for info in found.values()]
        return [entry for entry in entries if not entry.is_directory and entry.name != name]

    def read(self, name: str, offset: int, num_bytes: int) -> bytes:
        """Return a range of a file; less at its end."""
        with plain_errors("read", self.shown(name), self.secrets):
            return bytes(self.filesystem.cat_file(name, start=offset, end=offset + num_bytes))

    def heads(self, names: Sequence[str], num_bytes: int) -> list[bytes]:
        """Return the first bytes of files; b"" for one that cannot be read."""
        ends = [num_bytes] * len(names)
        found = self.filesystem.cat_ranges(list(names), [0] * len(names), ends, on_error="return")
        return [b"" if isinstance(head, Exception) else bytes(head) for head in found]

    def open(self, name: str) -> Any:
        """Return a file to read in any order, as pyarrow takes it."""
        with plain_errors("open", self.shown(name), self.secrets):
            return self.filesystem.open(name, "rb", block_size=_OPENED_BLOCK_BYTES)

    def write(self, name: str, content: bytes) -> None:
        """Write a whole file, which replaces one of that name."""
        with plain_errors("write", self.shown(name), self.secrets):
            self.filesystem.pipe_file(name, content)

    def upload(self, name: str, path: str) -> None:
        """Write a local file as a file of the store."""
        with plain_errors("write", self.shown(name), self.secrets):
            self.filesystem.put_file(path, name)

    def _entry(self, info: Mapping[str, Any]) -> Entry:
        size = info.get("size")
        num_bytes = -1 if size is None else int(size)
        is_directory = info.get("type") == "directory"
        return Entry(str(info["name"]), num_bytes, stamp_of(info), is_directory)
