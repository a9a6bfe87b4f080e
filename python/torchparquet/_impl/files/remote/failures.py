"""Failures of stores: which of them pass, other tries, and errors in plain words."""

from __future__ import annotations

import errno
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from torchparquet._impl.files.remote.urls import redacted
from torchparquet.errors import one_line, printable

# They are of a file system's code, not of a store.
ERRORS_OF_CODE = (
    *(AssertionError, AttributeError, ImportError, LookupError),
    *(NotImplementedError, TypeError, ValueError),
)
# HTTP statuses of requests that are wrong in themselves, and of a store that has too much to do.
_LASTING, _BUSY = (405, 412, 416), (429, 503)
# The first wait before another try is up to this long. It doubles up to the second.
_FIRST_WAIT_SECONDS, _MAX_WAIT_SECONDS = 0.1, 20.0

Result = TypeVar("Result")


class ChangedError(OSError):
    """A file is not the one that was listed."""

    def __init__(self, shown: str) -> None:
        """Name the file, as messages show it."""
        super().__init__(
            "make the data set anew to read the file as it is, because it has changed since it "
            f"was listed: {shown!r}"
        )


class LastingError(OSError):
    """A failure that another try would meet too."""


class DoubtfulError(OSError):
    """The store does not say what is wrong: S3 looks nothing up by credentials that have ended."""


class BusyError(OSError):
    """The store asks to come back later."""

    wait_seconds = 0.0


@dataclass(frozen=True)
class Patience:
    """How often and how long to try; `max_busy_tries` while a store only asks to come back."""

    max_tries: int = 10
    max_seconds: float = 180.0
    max_busy_tries: int | None = None

    @classmethod
    def of(cls, client: Mapping[str, Any]) -> Patience:
        """Return that of the native client, by its arguments."""
        return cls(**{n: client[n] for n in ("max_tries", "max_seconds") if n in client})


def patiently(
    act: Callable[[], Result], patience: Patience, wait: Callable[[float], object]
) -> Result:
    """Act again and again, as long as the failure may pass and `wait` returns False."""
    num_tries, num_refused, end = 0, 0, math.inf
    while True:
        num_tries += 1
        try:
            return act()
        except (ChangedError, FileNotFoundError, LastingError):
            raise
        except OSError as error:
            now = time.monotonic()
            end = min(end, now + patience.max_seconds)  # from the first failure on
            # The library may have new credentials by now.
            num_refused += isinstance(error, PermissionError)
            most, asked = patience.max_tries, 0.0
            if isinstance(error, BusyError):
                most, asked = patience.max_busy_tries or most, error.wait_seconds
            if num_tries >= most or num_refused > 1:
                raise
            span = min(_MAX_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2 ** min(num_tries - 1, 30))
            seconds = asked + random.uniform(0.0, span)  # noqa: S311
            if now + seconds > end or wait(seconds):
                raise


@contextmanager
def plain_errors(
    action: str, path: str, secrets: Sequence[str], remedy: str = ""
) -> Iterator[None]:
    """Turn the errors of any library into ones that name the path and no credential.

    `remedy` ends the message of a refusal.
    """
    try:
        yield
    except ChangedError:
        raise
    except Exception as error:
        raw = one_line(error)
        # A traceback would show the message of the cause.
        is_plain = redacted(raw, secrets) == raw and error.__cause__ is error.__context__ is None
        made = _plain_error(error, action, path, secrets, remedy)
        raise made from (error if is_plain else None)


def _plain_error(
    error: Exception, action: str, path: str, secrets: Sequence[str], remedy: str
) -> OSError:
    cause = error.__cause__
    status, text = _status_of(error) or _status_of(cause), one_line(error)
    # fsspec reports any refusal of an HTTP server as a missing file.
    is_of_http = type(cause).__module__.startswith("aiohttp")
    if isinstance(error, FileNotFoundError):
        if not is_of_http or status in (404, 410):
            return FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        text = type(cause).__name__
    if status is not None:
        # The text of aiohttp has the status and the URL too.
        words = getattr(cause if is_of_http else error, "message", text)
        text = f"HTTP {status} ({printable(str(words))})"
    text = redacted(text, secrets)
    if isinstance(error, PermissionError) or status in (401, 403):
        return PermissionError(
            f"the store refuses access: {text}, cannot {action} {path!r}{remedy}"
        )
    is_of_ours = isinstance(error, LastingError) or isinstance(cause, LastingError)
    lasts = is_of_ours or isinstance(error, ERRORS_OF_CODE) or status in _LASTING
    passing = BusyError if status in _BUSY else DoubtfulError if status == 400 else OSError
    kind = LastingError if lasts else passing
    made = kind(f"cannot {action} {path!r}: {text}")
    if isinstance(made, BusyError):
        headers = [getattr(one, "headers", None) for one in (error, cause)]
        made.wait_seconds = max(map(_retry_after_seconds, headers))
    return made


def _status_of(error: BaseException | None) -> int | None:
    """Return the HTTP status in an error of aiohttp, botocore, azure, gcsfs, httpx or requests."""
    response = getattr(error, "response", None)
    told: Iterable[Any]
    if isinstance(response, dict):
        told = [response.get("ResponseMetadata", {}).get("HTTPStatusCode")]
    else:
        names = ("status", "status_code", "code")
        told = (getattr(one, name, None) for one in (error, response) for name in names)
    return next((status for status in told if isinstance(status, int)), None)


def _retry_after_seconds(headers: Any) -> float:
    """Return how long an answer asks to wait, by a number or a date; 0 if it does not."""
    text = str((headers or {}).get("Retry-After", ""))
    if text.isdecimal():
        return float(text[:9])
    try:
        when = parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, when - time.time())
