"""Files of a store by fsspec."""

from __future__ import annotations

import errno
import io
import re
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from torchparquet._impl.files.remote.file_access import Entry, LastingError, OpenFile, plain_errors
from torchparquet._impl.files.remote.option_names import fsspec_options
from torchparquet._impl.files.remote.stamps import stamp_of
from torchparquet._impl.files.remote.urls import (
    HTTP,
    redacted,
    secrets_of,
    split_scheme,
    without_credentials,
)
from torchparquet.errors import one_line, users_level

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
# Of answers that are messages, and not objects.
_KINDS_OF_TEXT = ("xml", "html", "json")
# Headers of a request that another host may see: they say what is asked, not who asks.
_PUBLIC_HEADERS = ("accept", "accept-encoding", "range", "user-agent")
# "bytes=0-99", "bytes=100-" and "bytes=-8"; "bytes 0-99/1000" and "bytes 0-99/*".
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)", re.IGNORECASE)


def fsspec_for(scheme: str) -> Any:
    """Return the module fsspec, with what it needs for a scheme."""
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


def _check_range(asked: str, status: int, answer: Mapping[str, str]) -> None:
    """Raise if an answer has other bytes than its request asked for.

    All of an object is right where it is no more than was asked for.
    """
    wanted = _RANGE.fullmatch(asked)
    if wanted is None or status not in (200, 206):
        return
    length = answer.get("Content-Length", "")
    told = answer.get("Content-Range", "")
    if status == 200:
        told = f"bytes 0-{int(length) - 1}/{length}" if length.isdecimal() else ""
    sent = _CONTENT_RANGE.fullmatch(told)
    if sent is None or not _is_asked(wanted, sent, length):
        told = (
            f"Range {asked!r}, HTTP {status}, Content-Range {answer.get('Content-Range', '')!r}, "
            f"Content-Length {length!r}"
        )
        # A store in trouble may send the text of an error as if it were the object.
        is_text = any(kind in answer.get("Content-Type", "") for kind in _KINDS_OF_TEXT)
        if status == 200 and not is_text:
            raise LastingError(
                "the store ignores ranges and sends whole objects: copy the file to a disk, or "
                f"have it served by a server that answers ranges: {told}"
            )
        raise OSError(f"the store sent other bytes than asked for: {told}")


def _is_asked(wanted: re.Match[str], sent: re.Match[str], length: str) -> bool:
    first, last = int(sent[1]), int(sent[2])
    if length.isdecimal() and int(length) != last - first + 1:
        return False
    is_end = sent[3] != "*" and last == int(sent[3]) - 1
    if not wanted[1]:
        return is_end and first == max(0, last + 1 - int(wanted[2]))
    if not wanted[2]:
        return first == int(wanted[1]) and (is_end or sent[3] == "*")
    return first == int(wanted[1]) and (
        last == int(wanted[2]) or (is_end and last < int(wanted[2]))
    )


@cache
def _comparing_trace() -> Any:
    """Return what compares the answers of a session of aiohttp with their requests."""

    async def compare(session: Any, context: Any, ended: Any) -> None:
        # Azure's library asks by a header of its own.
        asked = ended.headers.get("x-ms-range") or ended.headers.get("Range", "")
        try:
            _check_range(asked, ended.response.status, ended.response.headers)
        except OSError:
            ended.response.close()
            raise

    trace = import_module("aiohttp").TraceConfig()
    trace.on_request_end.append(compare)
    trace.freeze()
    return trace


def _traced(session: Any) -> Any:
    if _comparing_trace() not in session.trace_configs:
        session.trace_configs.append(_comparing_trace())
    return session


def _compare_s3(request_dict: Any, response: Any = None, **_: Any) -> None:
    if response is None:
        return
    answer, parsed = response
    try:
        _check_range(request_dict["headers"].get("Range", ""), answer.status_code, answer.headers)
    except OSError:
        parsed["Body"].close()
        raise


def _compare_hub(answer: Any, **_: Any) -> None:
    try:
        _check_range(answer.request.headers.get("Range", ""), answer.status_code, answer.headers)
    except OSError:
        answer.close()
        raise


def _client_of_http(filesystem: Any, name: str) -> Any:
    return _traced(filesystem._session or _run(filesystem, filesystem.set_session))


def _client_of_gcs(filesystem: Any, name: str) -> Any:
    return _traced(filesystem._session or _run(filesystem, filesystem._set_session))


def _client_of_azure(filesystem: Any, name: str) -> Any:
    transport = filesystem.service_client._pipeline._transport
    if transport.session is None:
        _run(filesystem, transport.open)
    return _traced(transport.session)


def _client_of_s3(filesystem: Any, name: str) -> Any:
    client = filesystem._s3 or _run(filesystem, filesystem.set_session)
    if filesystem.cache_regions:
        client = _run(filesystem, filesystem.get_s3, filesystem.split_path(name)[0])
    # The last event that has both the request and its answer.
    client.meta.events.register("needs-retry.s3.GetObject", _compare_s3, "torchparquet")
    return client


def _client_of_hub(filesystem: Any, name: str) -> Any:
    client = import_module("huggingface_hub.utils").get_session()
    # Of httpx, and of requests before version 1.0.
    hooks = client.event_hooks if hasattr(client, "event_hooks") else client.hooks
    if _compare_hub not in hooks["response"]:
        hooks["response"].append(_compare_hub)
    return client


def _run(filesystem: Any, act: Callable[..., Any], *arguments: Any) -> Any:
    return import_module("fsspec.asyn").sync(filesystem.loop, act, *arguments)


# By the module of the file system's class.
_CLIENTS: dict[str, Callable[[Any, str], Any]] = {
    "fsspec.implementations.http": _client_of_http,
    "s3fs": _client_of_s3,
    "gcsfs": _client_of_gcs,
    "adlfs": _client_of_azure,
    "huggingface_hub": _client_of_hub,
}


# File systems whose clients are not known in the version that is installed.
_unknown: set[type] = set()


def _comparing_client(filesystem: Any, name: str) -> Any:
    """Have the client of a file system compare ranges, and return it."""
    while getattr(filesystem, "fs", None) is not None:  # one that wraps another
        filesystem = filesystem.fs
    for cls in type(filesystem).__mro__:
        for module, client_of in _CLIENTS.items():
            if not f"{cls.__module__}.".startswith(f"{module}."):
                continue
            if type(filesystem) in _unknown:
                return None
            try:
                return client_of(filesystem, name)
            except (AttributeError, ImportError, LookupError, TypeError) as error:
                _unknown.add(type(filesystem))
                warnings.warn(
                    "answers of the store are not compared with the ranges that were asked for, "
                    f"because this version of {module} has other parts than those that "
                    f"torchparquet knows ({one_line(error)}); another version may help",
                    stacklevel=users_level(),
                )
                return None
    return None


class FsspecAccess:
    """Files of a store by fsspec; see `FileAccess`."""

    def __init__(self, filesystem: Any, scheme: str, host: str, secrets: tuple[str, ...]) -> None:
        """Use a file system of fsspec."""
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
            client = _comparing_client(self.filesystem, name)
            content = self.filesystem.cat_file(name, start=offset, end=offset + num_bytes)
            if _comparing_client(self.filesystem, name) is not client:
                raise OSError("the library connected anew, so that the range was not checked")
            return bytes(content)

    def open(self, name: str) -> Any:
        """Return a file to read in any order, as pyarrow takes it."""
        entry = self.look_up(name)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", self.shown(name))
        return io.BufferedReader(OpenFile(self, entry), _OPENED_BLOCK_BYTES)

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
