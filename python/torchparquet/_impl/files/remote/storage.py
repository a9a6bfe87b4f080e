"""The arguments that say how to reach a store, and how its answers are kept and shared."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from torchparquet._impl.checks import checked_bool, checked_int
from torchparquet._impl.files.remote.credentials import Credentials, OptionsFunction, Share
from torchparquet._impl.files.remote.filesystems import CLIENT_OPTIONS, is_a, is_arrow
from torchparquet._impl.files.remote.urls import checked_path

CacheArgument: TypeAlias = "str | os.PathLike[str] | None"
StorageOptions: TypeAlias = "Mapping[str, Any] | OptionsFunction"

Result = TypeVar("Result")

# Of Polars. Waits between tries are the same for all stores here.
_WAITS = ("retry_init_backoff_ms", "retry_max_backoff_ms", "retry_base_multiplier")
# Bytes. A block has 8 MiB at most, and a few should fit.
_DEFAULT_CACHE, _MIN_CACHE = 64 << 30, 16 << 20


@dataclass(frozen=True)
class StorageArguments:
    """The arguments of a data set that have to do with stores and caches."""

    # A function or a mapping becomes `Credentials`.
    options: StorageOptions | Credentials | None = field(default=None, repr=False)
    filesystem: Any = field(default=None, repr=False)
    cache_dir: CacheArgument = None
    cache_limit: int | None = None
    manifest_cache: CacheArgument = field(default=None, repr=False)
    share: Share | None = None

    def __post_init__(self) -> None:
        """Check all but the path of the cache."""
        options: Any = self.options
        is_mapping = isinstance(options, Mapping) and all(isinstance(n, str) for n in options)
        is_known = options is None or is_mapping or isinstance(options, Credentials)
        if not is_known and not callable(options):
            # The value may be a secret.
            raise TypeError(
                "storage_options must be a dict from names to values, or a function that returns "
                f"such a dict and its expiry; got {type(options).__name__}"
            )
        if callable(options) and self.filesystem is not None:
            raise ValueError(
                "storage_options must not be a function beside filesystem, which renews its own "
                "credentials"
            )
        if options is not None and self.credentials is None:
            object.__setattr__(self, "options", Credentials(options, self.share))
        waits = [name for name in _WAITS if name in self.named]
        if waits:
            raise ValueError(
                "storage_options must not set how long to wait between tries (0.1 s at first, "
                f"twice as long each time, 20 s at most; leave it out): {waits[0]!r}"
            )
        self.of_client  # noqa: B018
        if self.filesystem is None:
            return
        if self.of_store:
            raise ValueError(
                "storage_options must not be given with filesystem, which has its own options"
            )
        is_fsspec = is_a(self.filesystem, "fsspec.", "AbstractFileSystem")
        if not is_fsspec and not is_arrow(self.filesystem):
            raise TypeError(
                "filesystem must be a file system of fsspec or of pyarrow.fs; got "
                f"{type(self.filesystem).__name__}"
            )

    @property
    def credentials(self) -> Credentials | None:
        """The options, which a function may renew."""
        return self.options if isinstance(self.options, Credentials) else None

    @property
    def named(self) -> Mapping[str, Any]:
        """The options of now, by their names."""
        return {} if self.credentials is None else self.credentials.current().options

    @property
    def of_store(self) -> dict[str, Any]:
        """The options of the store's file system."""
        return {name: value for name, value in self.named.items() if name not in CLIENT_OPTIONS}

    @property
    def of_client(self) -> dict[str, Any]:
        """The arguments of the native client: its cache, and how patient it is."""
        given = {n: value for n, value in self.named.items() if n in CLIENT_OPTIONS}
        made = dict(_client_option(name, value) for name, value in given.items())
        if self.cache_dir is not None:
            folder = Path(checked_path(self.cache_dir, "cache_dir")).absolute()
            limit = _DEFAULT_CACHE if self.cache_limit is None else self.cache_limit
            limit = checked_int("cache_limit", limit, _MIN_CACHE, 1 << 62)
            made |= {"cache_folder": str(folder), "cache_limit": limit}
        elif self.cache_limit is not None:
            raise ValueError(f"cache_limit needs a cache_dir; got cache_limit={self.cache_limit!r}")
        return made

    def once(
        self,
        what: Sequence[Any],
        work: Callable[[], Result],
        encode: Callable[[Result], bytes],
        decode: Callable[[bytes], Result | None],
        *,
        by_each: bool = False,
    ) -> Result:
        """Return what one rank finds for all, or, `by_each`, what this one finds itself.

        `what`, as JSON, differs for other results.
        """
        if self.share is None or by_each:
            return work()
        content = self.share(json.dumps(what), 1, lambda *_: encode(work()))[0]
        return decoded(content, decode)


def decoded(content: bytes, decode: Callable[[bytes], Result | None]) -> Result:
    """Return what another rank has left."""
    found = decode(content)
    if found is None:
        raise RuntimeError("the ranks run different versions of torchparquet")
    return found


NO_STORAGE = StorageArguments()


def with_more(options: StorageOptions, more: Mapping[str, Any]) -> StorageOptions:
    """Return options with more of them, which count if a name is in both."""
    return {**options, **more} if isinstance(options, Mapping) else partial(_joined, options, more)


def _joined(
    function: OptionsFunction, more: Mapping[str, Any]
) -> tuple[Mapping[str, Any], float | None]:
    options, expiry = function()
    return {**options, **more}, expiry


def _client_option(name: str, value: object) -> tuple[str, Any]:
    """Return an argument of the native client; Polars and the command line give texts too."""
    shown = f"storage_options[{name!r}]"
    if name == "hedges":
        value = {"true": True, "false": False}.get(str(value).lower(), value)
        checked_bool(shown, value)
        return name, value
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if name == "max_retries":
        return "max_tries", checked_int(shown, value, 0, 1 << 30) + 1
    number = checked_int(shown, value, 1, 1 << 40 if name == "retry_timeout_ms" else 1 << 31)
    return ("max_seconds", number / 1000) if name == "retry_timeout_ms" else (name, number)
