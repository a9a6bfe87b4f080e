"""A store: lists, reads and writes its files, by fsspec, and tells when one has changed."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from torchparquet._impl.files.remote.credentials import Credentials, Given, ProcessLock
from torchparquet._impl.files.remote.failures import DoubtfulError, plain_errors
from torchparquet._impl.files.remote.filesystems import (
    CLIENT_OPTIONS,
    fsspec_for,
    is_arrow,
    make_filesystem,
    protocols,
    renewed,
    unwrapped,
)
from torchparquet._impl.files.remote.range_checks import comparing_client
from torchparquet._impl.files.remote.storage import NO_STORAGE, StorageArguments
from torchparquet._impl.files.remote.urls import (
    HTTP,
    WITH_BUCKETS,
    family,
    is_remote_url,
    secrets_of,
    split_scheme,
    without_credentials,
)

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined, unused-ignore]

Result = TypeVar("Result")

# The first may be what another process was given, and have ended too.
_MOST_RENEWALS = 2
_OPENED_BLOCK_BYTES = 1 << 20
# By kind, the fields of fsspec's info that tell it. Kinds that follow the content come first.
_FIELDS = (
    ("blob", ("blob_id", "xet_hash")),
    ("generation", ("generation",)),
    ("etag", ("ETag", "etag", "e_tag")),
    ("md5", ("md5Hash", "content_md5", "Content-MD5")),
    ("modified", ("Last-Modified", "LastModified", "last_modified", "mtime", "modified")),
    ("created", ("created",)),
)
_ETAG, _MODIFIED = "etag ", "modified "


class Entry(NamedTuple):
    """A file or directory, in a store or on disk."""

    name: str
    num_bytes: int  # below 0 if there is no size
    stamp: str  # what changes whenever the content does, such as "etag 0x8D"; "" if unknown
    is_directory: bool = False


class Store:
    """The store that paths are of. Threads may share it; a fork or a copy reaches it anew."""

    def __init__(
        self, url: str, credentials: Credentials | None = None, filesystem: Any = None
    ) -> None:
        """Remember how to reach the store: by options, or by a file system that is given."""
        self._url, self._given = url, filesystem
        self.credentials = credentials or Credentials({})
        self.scheme = split_scheme(url)[0] if filesystem is None else protocols(filesystem)[0]
        self._lock, self._pid = ProcessLock(), os.getpid()
        self._reached: tuple[Any, Given] | None = None
        # Of the options before too, which an error may still name.
        self.secrets = secrets_of(getattr(filesystem, "storage_options", None))

    @property
    def filesystem(self) -> Any:
        """This process's file system of fsspec."""
        return self.reached()[0]

    def reached(self) -> tuple[Any, Given]:
        """Return this process's file system of fsspec, and the options that it has.

        Raises:
            OSError: The options have ended, and there are no others.
        """
        given = self.credentials.current()
        with self._lock:
            reached = self._reached
            is_own = self._pid == os.getpid()
            if reached is None or not is_own or reached[1].given_at != given.given_at:
                reached = self._reached = self._reach(given, is_own=is_own), given
                self._pid = os.getpid()
            return reached

    def _reach(self, given: Given, *, is_own: bool) -> Any:
        if self._given is None:
            options = {n: v for n, v in given.options.items() if n not in CLIENT_OPTIONS}
            last = self.secrets if self._reached is None else secrets_of(self._reached[1].options)
            self.secrets = (*secrets_of(options), *last)
            return make_filesystem(self._url, options, shared=not self.credentials.can_renew)
        if not is_own:
            self._given = renewed(self._given)
        if not is_arrow(self._given):
            return self._given
        from torchparquet._impl.files.remote.arrow_files import ArrowFiles

        return ArrowFiles(self._given)

    @cached_property
    def _host(self) -> str:
        """The host of URLs; "" if the library's names of files have it."""
        if self._given is not None or self.scheme in HTTP:
            return ""
        _, rest = split_scheme(without_credentials(self._url))
        host = rest.partition("/")[0]
        name = str(self.filesystem._strip_protocol(self._url)).lstrip("/")
        return "" if name.partition("/")[0] == host or "@" in host else host

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

    def _act(self, action: str, name: str, act: Callable[[Any], Result]) -> Result:
        """Return what the file system does, with other options if these are refused.

        Errors are told in plain words.
        """
        for left in range(_MOST_RENEWALS if self.credentials.can_renew else 0, -1, -1):
            filesystem, given = self.reached()
            try:
                with plain_errors(action, self.shown(name), self.secrets, self.credentials.remedy):
                    return act(filesystem)
            except (DoubtfulError, PermissionError):
                if not left:
                    raise
                self.credentials.refuse(given)
        raise AssertionError  # the last pass has returned or raised

    def look_up(self, name: str, *, afresh: bool = False) -> Entry | None:
        """Return a file or directory; None if there is neither."""

        def look(filesystem: Any) -> Any:
            # The Hub's library would list the whole directory again.
            options = {"refresh": True} if afresh and self.scheme == "hf" else {}
            if afresh and not options:
                filesystem.invalidate_cache()
            return filesystem.info(name, **options)

        try:
            info = self._act("look up", name, look)
        except FileNotFoundError:
            return None
        if self.scheme in HTTP and str(info.get("mimetype")) == "text/html":
            raise no_listing(f"{self.shown(name)!r} is a page")
        return _entry(info)

    def files_below(self, name: str, prefix: str = "") -> list[Entry]:
        """Return all files below a directory; none if it does not exist."""
        limits = {"prefix": prefix} if prefix and family(self.scheme) in WITH_BUCKETS else {}

        def find(filesystem: Any) -> Any:
            filesystem.invalidate_cache()
            return filesystem.find(name, detail=True, **limits)

        try:
            found = self._act("list", name, find)
        except FileNotFoundError:
            return []
        entries = [_entry(info) for info in found.values()]
        return [entry for entry in entries if not entry.is_directory and entry.name != name]

    def read(self, name: str, offset: int, num_bytes: int) -> bytes:
        """Return a range of a file."""

        def read(filesystem: Any) -> bytes:
            client = comparing_client(filesystem, name)
            content = filesystem.cat_file(name, start=offset, end=offset + num_bytes)
            if comparing_client(filesystem, name) is not client:
                raise OSError("the library connected anew, so that the range was not checked")
            if len(content) != num_bytes:
                came = f"{num_bytes} bytes at {offset} were asked for, {len(content)} came"
                raise OSError(came)
            return bytes(content)

        return self._act("read", name, read)

    def open(self, name: str, num_bytes: int) -> Any:
        """Return a file of so many bytes to read in any order, as pyarrow takes it."""
        return io.BufferedReader(
            RangeFile(num_bytes, partial(self.read, name)), _OPENED_BLOCK_BYTES
        )

    def write(self, name: str, content: bytes) -> None:
        """Write a whole file, which replaces one of that name."""
        self._act("write", name, lambda filesystem: filesystem.pipe_file(name, content))

    def upload(self, name: str, path: str) -> None:
        """Write a local file as a file of the store."""
        self._act("write", name, lambda filesystem: filesystem.put_file(path, name))

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave out what belongs to this process."""
        return Store, (self._url, self.credentials, self._given)

    def __repr__(self) -> str:
        """Return nothing of the options."""
        return f"<Store of {without_credentials(self._url)!r}>"


def store_of(texts: Sequence[str], arguments: StorageArguments) -> Store | None:
    """Return the store of paths; None for local ones."""
    filesystem = unwrapped(arguments.filesystem)
    if filesystem is not None:
        schemes = protocols(filesystem)
        if "file" in schemes or "local" in schemes:
            return None
        for text in texts:
            scheme, _ = split_scheme(text)
            if scheme and scheme not in schemes:
                raise ValueError(
                    f"a path must be of the filesystem ({', '.join(schemes)}); got "
                    f"{without_credentials(text)!r}"
                )
        return Store(texts[0], filesystem=filesystem)
    remote = [is_remote_url(text) for text in texts]
    if not any(remote):
        if arguments.named:
            raise ValueError(
                "storage_options must be given for URLs of stores alone; got the local path "
                f"{texts[0]!r}"
            )
        return None
    _check_one_store(texts)
    return Store(texts[0], arguments.credentials)


def store_beside(url: str, arguments: StorageArguments, paths: Sequence[str]) -> Store:
    """Return the store of a URL that is not one of the paths."""
    scheme, _ = split_scheme(url)
    filesystem = unwrapped(arguments.filesystem)
    if filesystem is not None:
        holds = scheme in protocols(filesystem)
    else:
        holds = any(family(split_scheme(path)[0]) == family(scheme) for path in paths)
    made = store_of([url], arguments if holds else NO_STORAGE)
    if made is None:
        raise ValueError(f"a URL must be of a store; got {without_credentials(url)!r}")
    return made


def _check_one_store(texts: Sequence[str]) -> None:
    """Raise if paths are of several stores, or need different connections."""
    classes: dict[str, Any] = {"": None}
    first = None
    for text in texts:
        scheme, _ = split_scheme(text)
        if scheme not in classes:
            try:
                kind = fsspec_for(scheme).get_filesystem_class(scheme.rpartition("::")[2])
            except ValueError:
                raise ValueError(
                    f"paths must be local, or URLs that fsspec knows; got scheme {scheme!r}: "
                    f"{without_credentials(text)!r}"
                ) from None
            classes[scheme] = kind
        made = classes[scheme]
        store = family(scheme), None if made is None else made._get_kwargs_from_urls(text)
        first = first or store
        if store != first:
            raise ValueError(
                "paths must all be local, or all of one store (mix reads several data sets): "
                f"{without_credentials(texts[0])!r}, {without_credentials(text)!r}"
            )


def no_listing(what: str) -> ValueError:
    """Return the error of a path of HTTP that is not a file's."""
    return ValueError(
        "an http(s):// path must be of a Parquet file (directories and patterns cannot be listed, "
        f"give the files themselves): {what}"
    )


class RangeFile(io.RawIOBase):
    """A file to read in any order, by a function of offset and length that returns all of it."""

    def __init__(
        self,
        num_bytes: int,
        read: Callable[[int, int], bytes | memoryview],
        close: Callable[[], object] = lambda: None,
    ) -> None:
        """Begin at the first byte."""
        self._num_bytes, self._read, self._close, self._at = num_bytes, read, close, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a byte, and return its number."""
        begins = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._num_bytes}
        self._at = max(0, begins[whence] + offset)
        return self._at

    def readinto(self, buffer: Buffer) -> int:
        """Read into a buffer, and return how many bytes came: fewer at the end alone."""
        into = memoryview(buffer).cast("B")
        count = max(0, min(len(into), self._num_bytes - self._at))
        if count:
            into[:count] = self._read(self._at, count)
            self._at += count
        return count

    def close(self) -> None:
        """Close what is read."""
        if not self.closed:
            self._close()
        super().close()


def _entry(info: Mapping[str, Any]) -> Entry:
    num_bytes = -1 if info.get("size") is None else int(info["size"])
    sha256 = (info.get("lfs") or {}).get("sha256")
    texts = ((kind, _text(info.get(name))) for kind, names in _FIELDS for name in names)
    stamps = (f"{kind} {text}" for kind, text in texts if text)
    stamp = f"sha256 {sha256}" if sha256 else next(stamps, "")
    is_directory = info.get("type") == "directory"
    return Entry(str(info["name"]), num_bytes, stamp, is_directory)


def may_be_same(stamp: str, other: str) -> bool:
    """True unless both tell the same kind of thing, and tell it differently."""
    same_kind = stamp.partition(" ")[0] == other.partition(" ")[0]
    return stamp == other or not same_kind


def entity_tag(stamp: str) -> str:
    """Return the ETag that every answer of HTTP must have, with its quotes; "" if there is none."""
    if not stamp.startswith(_ETAG):
        return ""
    content = stamp.removeprefix(_ETAG)
    return content if content.startswith("W/") else f'"{content}"'


def http_date(stamp: str) -> str:
    """Return the `Last-Modified` of a stamp; "" if it has none, or is of another store."""
    text = stamp.removeprefix(_MODIFIED)
    return text if text != stamp and text.endswith(" GMT") else ""


def _text(value: object) -> str:
    if isinstance(value, datetime):
        # Listings tell seconds where the look-up of one file tells a moment.
        value = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    # Azure quotes an ETag in some answers and not in others.
    text = "" if value is None else str(value)
    return text if text.startswith("W/") else text.strip('"')
