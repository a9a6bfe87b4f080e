"""Files of a store, as fsspec lists, reads and writes them, and what it says of each."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from torchparquet._impl.files.remote.failures import plain_errors, short_answer
from torchparquet._impl.files.remote.range_checks import comparing_client
from torchparquet._impl.files.remote.urls import HTTP, without_credentials

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined, unused-ignore]

# Their `find` takes a prefix.
_WITH_PREFIX = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl")
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
    """A file or directory, in a store or on disk.

    Attributes:
        num_bytes: Below 0 if there is no size.
        stamp: What changes whenever the content does, such as "etag 0x8D"; "" if nothing is known.
    """

    name: str
    num_bytes: int
    stamp: str
    is_directory: bool = False


class FileAccess:
    """Lists, reads and writes files of one store. Threads may share it; forks must not.

    Methods raise FileNotFoundError, PermissionError or OSError with the file's path, and
    without credentials.
    """

    def __init__(
        self, filesystem: Any, scheme: str, host: str = "", secrets: tuple[str, ...] = ()
    ) -> None:
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
            client = comparing_client(self.filesystem, name)
            content = self.filesystem.cat_file(name, start=offset, end=offset + num_bytes)
            if comparing_client(self.filesystem, name) is not client:
                raise OSError("the library connected anew, so that the range was not checked")
            return bytes(content)

    def open(self, name: str) -> Any:
        """Return a file to read in any order, as pyarrow takes it."""
        entry = self.look_up(name)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", self.shown(name))

        def read(offset: int, num_bytes: int) -> bytes:
            content = self.read(name, offset, num_bytes)
            if len(content) != num_bytes:
                raise short_answer(self.shown(name), offset, num_bytes, len(content))
            return content

        return io.BufferedReader(RangeFile(entry.num_bytes, read), _OPENED_BLOCK_BYTES)

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


class RangeFile(io.RawIOBase):
    """A file to read in any order, by a function of offset and length that returns all of it."""

    def __init__(
        self,
        num_bytes: int,
        read: Callable[[int, int], bytes],
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


def stamp_of(info: Mapping[str, Any]) -> str:
    """Return a file's stamp, such as "etag 0x8D"; "" if the store tells nothing."""
    lfs = info.get("lfs")
    if lfs and lfs.get("sha256"):
        return f"sha256 {lfs['sha256']}"
    for kind, names in _FIELDS:
        for name in names:
            text = _text(info.get(name))
            if text:
                return f"{kind} {text}"
    return ""


def may_be_same(stamp: str, other: str) -> bool:
    """True unless both tell the same kind of thing, and tell it differently."""
    same_kind = stamp.partition(" ")[0] == other.partition(" ")[0]
    return stamp == other or not same_kind


def entity_tag(stamp: str) -> str:
    """Return the ETag that every answer of HTTP must have, with its quotes; "" if there is none.

    A request can ask for one without `W/` alone.
    """
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
