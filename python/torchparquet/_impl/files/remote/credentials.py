"""Storage options: fixed, or given by a function, which is asked again before they end.

The processes of a node that hold copies of one `Credentials` share what the function gives, in a
file in memory that only their user can read. A process that needs others looks there first.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import uuid
import weakref
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

from torchparquet._impl.checks import shown
from torchparquet._impl.files.remote.failures import ERRORS_OF_CODE, LastingError
from torchparquet._impl.files.remote.node_files import forget, shared_file
from torchparquet.errors import one_line

# Returns options, and when they end in seconds since 1970; None if they do not or it is unknown.
# The providers of Polars are such functions.
OptionsFunction: TypeAlias = "Callable[[], tuple[Mapping[str, Any], float | None]]"
# From what is done, the most parts that it has, a function of a part and of how many there are,
# and perhaps which parts this rank has begun with, to all parts. Processes with the same text do
# each part once.
Share: TypeAlias = "Callable[..., list[bytes]]"

# A request's credentials must hold until the store has looked at it.
_SPARE_SECONDS = 60.0
_LEAST_SECONDS = 1.0
# A time in milliseconds is above this one, and no time in seconds.
_MOST_SECONDS = 1e11
_MAY_END = re.compile(r"token|sas_|headers")
_WAY_OUT = "give storage_options= a function that returns (options, expiry)"


def renewal_time(expires_at: float) -> float:
    """Return when to replace what ends: a minute before, or after half of a shorter life."""
    now = time.time()
    left = expires_at - now
    return now + max(_LEAST_SECONDS, left - _SPARE_SECONDS, left / 2)


class Given(NamedTuple):
    """Storage options that hold for a while."""

    options: Mapping[str, Any]
    expires_at: float | None = None  # seconds since 1970
    renew_at: float | None = None
    # The time, which tells them from those that were given before; 0 for fixed ones.
    given_at: float = 0.0

    def is_due(self) -> bool:
        """Return whether others are to be had."""
        return self.renew_at is not None and time.time() >= self.renew_at


class ProcessLock:
    """A lock that a forked child has free, and a copy too."""

    def __init__(self) -> None:
        """Make it free."""
        self._made = os.getpid(), Lock()

    def __enter__(self) -> None:
        """Wait for it."""
        if self._made[0] != os.getpid():
            self.__init__()  # type: ignore[misc]
        self._made[1].acquire()

    def __exit__(self, *_: object) -> None:
        """Free it."""
        self._made[1].release()

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a free lock."""
        return ProcessLock, ()


class Credentials:
    """The storage options of now. Threads may share it; copies on one node ask for each other."""

    def __init__(self, options: Mapping[str, Any] | OptionsFunction, share: Share | None = None):
        """Hold fixed options, or ask a function for the first; ranks share a name for its file."""
        self._lock, self._refused_at, self._failure = ProcessLock(), -1.0, (0.0, "")
        self._function = None if isinstance(options, Mapping) else options
        if isinstance(options, Mapping):
            self._given = Given(dict(options))
            return

        def invent() -> bytes:
            return uuid.uuid4().hex.encode()

        self._given = Given({}, renew_at=0.0)
        what = ["credentials", getattr(options, "__qualname__", type(options).__qualname__)]
        name = invent() if share is None else share(json.dumps(what), 1, lambda *_: invent())[0]
        self._name = name.decode()
        self.current()
        weakref.finalize(self, forget, self._name, os.getpid())

    @property
    def can_renew(self) -> bool:
        """True if a function gives the options."""
        return self._function is not None

    def current(self) -> Given:
        """Return the options of now.

        Raises:
            OSError: The function fails, and the last options have ended or were refused.
            LastingError: The function is wrong, or what it returns.
        """
        begun = time.monotonic()
        given = self._given
        if not self._is_over(given):
            return given
        with self._lock:
            given = self._given
            if self._is_over(given):
                failed_at, failure = self._failure
                if failed_at >= begun:  # of another thread, while this one waited
                    raise OSError(failure)
                self._given = self._next(given)
            return self._given

    def refuse(self, given: Given) -> None:
        """Have others asked for, because the store refuses these."""
        if given.given_at == self._given.given_at:
            self._refused_at = given.given_at

    @property
    def remedy(self) -> str:
        """The way out of a refusal; begins with a semicolon, "" if there is nothing to say."""
        given = self._given
        if self.can_renew:
            end = ""
            if given.expires_at is not None:
                tense = "ended" if time.time() >= given.expires_at else "were to end"
                end = f" and {tense} at {_moment(given.expires_at)}"
            return (
                "; these credentials came from the function given as storage_options= at "
                f"{_moment(given.given_at)}{end}: it must return new ones, with their expiry"
            )
        ending = sorted(name for name in given.options if _MAY_END.search(name.lower()))
        names = ", ".join(ending)
        return f"; if {names} of storage_options has ended, {_WAY_OUT}" if ending else ""

    def __getstate__(self) -> dict[str, Any]:
        """Leave out a failure, which has its time by a clock of this machine."""
        return self.__dict__ | {"_failure": (0.0, "")}

    def _is_over(self, given: Given) -> bool:
        return self.can_renew and (given.is_due() or given.given_at == self._refused_at)

    def _next(self, old: Given) -> Given:
        with shared_file(self._name) as file:
            found = None if file is None else _read(file)
            if found is not None and found.given_at != old.given_at and not found.is_due():
                return found
            try:
                made = self._ask()
            except Exception as error:
                is_refused = old.given_at == self._refused_at
                if old.expires_at is not None and time.time() < old.expires_at and not is_refused:
                    return old._replace(renew_at=renewal_time(old.expires_at))
                message = (
                    "storage_options= must return (options, expiry), but the function failed "
                    f"({type(error).__name__}: {one_line(error)})"
                )
                self._failure = time.monotonic(), message
                kind = LastingError if isinstance(error, ERRORS_OF_CODE) else OSError
                raise kind(message) from error
            if file is not None:
                _write(file, made)
            return made

    def _ask(self) -> Given:
        assert self._function is not None  # noqa: S101
        returned: object = self._function()
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise TypeError(
                "it must return two values, a dict and when its credentials end, in seconds since "
                f"1970 or None; it returned {type(returned).__name__}"
            )
        options, expiry = returned
        if not isinstance(options, Mapping) or not all(isinstance(n, str) for n in options):
            raise TypeError(
                f"its options must be a dict from names to values; got {type(options).__name__}"
            )
        now = time.time()
        if expiry is None:
            return Given(dict(options), given_at=now)
        if isinstance(expiry, bool) or not isinstance(expiry, int | float):
            raise TypeError(
                "its expiry must be a number of seconds since 1970, or None (a datetime has "
                f"timestamp()); got {shown(expiry)}"
            )
        if not 0 <= expiry < _MOST_SECONDS:
            raise ValueError(f"its expiry must be in seconds since 1970; got {expiry}")
        if expiry <= now:
            raise OSError(f"its credentials have ended already, at {_moment(expiry)}")
        return Given(dict(options), float(expiry), renewal_time(expiry), now)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _read(file: int) -> Given | None:
    """Return what a shared file holds; None if it is new, or was not written to its end."""
    content = os.pread(file, os.fstat(file).st_size, 0)
    try:
        return Given(*json.loads(content))
    except (TypeError, ValueError):
        return None


def _write(file: int, given: Given) -> None:
    """Write options into a shared file, if they are of values that JSON has."""
    try:
        content = json.dumps(given)
        same = Given(*json.loads(content)) == given
    except (TypeError, ValueError):
        return
    with contextlib.suppress(OSError):  # memory is full: others ask for themselves
        os.ftruncate(file, 0)
        if same:
            os.pwrite(file, content.encode(), 0)
