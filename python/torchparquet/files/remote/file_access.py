"""How files of a store are listed and read, whichever library does it."""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from torchparquet.errors import one_line
from torchparquet.files.remote.urls import redacted

# They are of a file system's code, not of a store.
_ERRORS_OF_CODE = (
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NotImplementedError,
    TypeError,
    ValueError,
)
# HTTP statuses of requests that are wrong in themselves.
_LASTING = (405, 412, 416)
# The first wait before another try is up to this long. It doubles up to the second.
_FIRST_WAIT_SECONDS, _MAX_WAIT_SECONDS = 0.1, 20.0

Result = TypeVar("Result")


class Entry(NamedTuple):
    """A file or directory of a store.

    Attributes:
        name: As the store's library calls it.
        num_bytes: Its size; -1 if the store does not tell.
        stamp: As `stamp_of` returns it.
        is_directory: True for a directory.
    """

    name: str
    num_bytes: int
    stamp: str
    is_directory: bool = False


class ChangedError(OSError):
    """A file is not the one that was listed."""


class LastingError(OSError):
    """A failure that another try would meet too."""


class FileAccess(Protocol):
    """Lists, reads and writes files of one store. Threads may share it; forks must not.

    Methods raise FileNotFoundError, PermissionError or OSError with the file's path, and
    without credentials.

    Attributes:
        filesystem: That of fsspec or pyarrow.
        scheme: Of the store's URLs.
        secrets: Texts that no message may show.
    """

    filesystem: Any
    scheme: str
    secrets: tuple[str, ...]

    def name_of(self, text: str) -> str:
        """Return the library's name of a path or URL."""

    def shown(self, name: str) -> str:
        """Return the URL of a name, without credentials."""

    def look_up(self, name: str, *, afresh: bool = False) -> Entry | None:
        """Return a file or directory; None if there is neither.

        Args:
            name: Of the file or directory.
            afresh: True to ask the store even if the answer is remembered.
        """

    def files_below(self, name: str, prefix: str = "") -> list[Entry]:
        """Return all files below a directory; none if it does not exist.

        Args:
            name: Of the directory.
            prefix: The names below the directory may be limited to those that begin so.
        """

    def read(self, name: str, offset: int, num_bytes: int) -> bytes:
        """Return a range of a file; less at its end."""

    def heads(self, names: Sequence[str], num_bytes: int) -> list[bytes]:
        """Return the first bytes of files; b"" for one that cannot be read."""

    def open(self, name: str) -> Any:
        """Return a file to read in any order, as pyarrow takes it."""

    def write(self, name: str, content: bytes) -> None:
        """Write a whole file, which replaces one of that name."""

    def upload(self, name: str, path: str) -> None:
        """Write a local file as a file of the store."""


@dataclass(frozen=True)
class Patience:
    """With failures that may pass.

    Attributes:
        max_tries: How often a library is asked for the same.
        max_seconds: How long after the first failure it is asked again.
    """

    max_tries: int = 10
    max_seconds: float = 180.0


PATIENT = Patience()


def patiently(
    act: Callable[[], Result], patience: Patience, wait: Callable[[float], bool]
) -> Result:
    """Act again and again, as long as the failure may pass.

    Args:
        act: Raises as the methods of `FileAccess` do.
        patience: Of how many tries.
        wait: Waits so many seconds; true to give up at once.
    """
    num_tries, num_refused, last = 0, 0, 0.0
    while True:
        num_tries += 1
        try:
            return act()
        except (ChangedError, FileNotFoundError, LastingError):
            raise
        except OSError as error:
            now = time.monotonic()
            if num_tries == 1:
                last = now + patience.max_seconds
            # The library may have new credentials by now.
            num_refused += isinstance(error, PermissionError)
            if num_tries >= patience.max_tries or num_refused > 1:
                raise
            span = min(_MAX_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2 ** min(num_tries - 1, 30))
            seconds = random.uniform(0.0, span)  # noqa: S311
            if now + seconds > last or wait(seconds):
                raise


@contextmanager
def plain_errors(action: str, path: str, secrets: Sequence[str]) -> Iterator[None]:
    """Turn the errors of any library into ones that name the path and no credential.

    Args:
        action: As a verb, such as "list".
        path: Of the file, as it is shown.
        secrets: Texts to leave out.

    Raises:
        FileNotFoundError: There is no such file.
        PermissionError: The store refuses the access.
        OSError: Anything else went wrong.
    """
    try:
        yield
    except ChangedError:
        raise
    except Exception as error:
        raw = one_line(error)
        text = redacted(raw, secrets)
        # A traceback would show the message of the cause.
        cause = error if text == raw and error.__cause__ is error.__context__ is None else None
        raise _plain_error(error, action, path, text) from cause


def _plain_error(error: Exception, action: str, path: str, text: str) -> OSError:
    # fsspec reports any refusal of an HTTP server as a missing file.
    cause = error.__cause__
    status = getattr(error, "status", getattr(cause, "status", None))
    if isinstance(error, FileNotFoundError):
        is_of_http = type(cause).__module__.startswith("aiohttp")
        if status in (404, 410) or (status is None and not is_of_http):
            return FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        text = type(cause).__name__ if status is None else f"HTTP status {status}"
    if isinstance(error, PermissionError) or status in (401, 403):
        return PermissionError(f"access was denied, cannot {action} {path!r}: {text}")
    lasts = isinstance(error, _ERRORS_OF_CODE) or status in _LASTING
    return (LastingError if lasts else OSError)(f"cannot {action} {path!r}: {text}")
