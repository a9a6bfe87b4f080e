"""The store that paths are of, and how each process reaches it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from torchparquet._impl.checks import checked_int
from torchparquet._impl.files.remote.file_access import FileAccess
from torchparquet._impl.files.remote.filesystems import (
    fsspec_for,
    is_arrow,
    is_fsspec,
    make_filesystem,
    protocols,
    renewed,
    unwrapped,
)
from torchparquet._impl.files.remote.storage_options import split_options
from torchparquet._impl.files.remote.urls import (
    HTTP,
    checked_path,
    is_remote_url,
    secrets_of,
    split_scheme,
    without_credentials,
)

_FAMILIES = {"s3a": "s3", "gcs": "gs", "abfs": "az", "abfss": "az", "adl": "az", "https": "http"}

Result = TypeVar("Result")

_DEFAULT_CACHE = 64 << 30
# Bytes. A block has 8 MiB at most, and a few should fit.
_MIN_CACHE = 16 << 20


@dataclass(frozen=True)
class BlockCache:
    """A folder that keeps blocks of files of stores."""

    folder: str | None = None
    limit: int = _DEFAULT_CACHE


NO_CACHE = BlockCache()


def block_cache(cache_dir: object, cache_limit: object) -> BlockCache:
    """Return the cache that the arguments describe."""
    if cache_dir is None:
        if cache_limit is not None:
            raise ValueError(f"cache_limit needs a cache_dir; got cache_limit={cache_limit!r}")
        return NO_CACHE
    folder = checked_path(cache_dir, "cache_dir")
    if cache_limit is None:
        limit = _DEFAULT_CACHE
    else:
        limit = checked_int("cache_limit", cache_limit, _MIN_CACHE, 1 << 62)
    return BlockCache(str(Path(folder).absolute()), limit)


@dataclass(frozen=True, repr=False)
class StorageArguments:
    """The arguments `storage_options`, `filesystem`, `cache_dir` and `cache_limit`.

    Attributes:
        filesystem: A file system of fsspec or `pyarrow.fs` that the paths are of.
        share: Called with a text and a function. Returns the function's result, or that of
            another process which was asked with the same text. None to share nothing.
    """

    options: Mapping[str, Any] | None = None
    filesystem: Any = None
    cache: BlockCache = NO_CACHE
    share: Callable[[str, Callable[[], bytes]], bytes] | None = None

    def __post_init__(self) -> None:
        """Check both."""
        of_store, _ = split_options(self.options)
        if self.filesystem is None:
            return
        if of_store:
            raise ValueError(
                "storage_options must not be given with filesystem, which has its own options"
            )
        if not is_arrow(self.filesystem) and not is_fsspec(self.filesystem):
            raise TypeError(
                "filesystem must be a file system of fsspec or of pyarrow.fs; got "
                f"{type(self.filesystem).__name__}"
            )

    @property
    def of_store(self) -> dict[str, Any]:
        """The options of the store's file system."""
        return split_options(self.options)[0]

    @property
    def of_client(self) -> dict[str, Any]:
        """The arguments of the native client, which say how patient it is."""
        return split_options(self.options)[1]

    def once(
        self,
        what: Sequence[Any],
        work: Callable[[], Result],
        encode: Callable[[Result], bytes],
        decode: Callable[[bytes], Result | None],
        *,
        is_secret: bool = False,
    ) -> Result:
        """Return what all ranks need and one of them finds for all, unless it is a secret.

        Args:
            what: JSON values that differ for other results.
        """
        if self.share is None or is_secret:
            return work()
        found = decode(self.share(json.dumps(what), lambda: encode(work())))
        if found is None:
            raise RuntimeError("the ranks run different versions of torchparquet")
        return found

    def __repr__(self) -> str:
        """Return nothing of their content."""
        return "StorageArguments(...)"


NO_STORAGE = StorageArguments()


class Storage:
    """The store that paths are of. A copy in another process reaches it anew."""

    def __init__(self, url: str, options: Mapping[str, Any], filesystem: Any) -> None:
        """Remember how to reach the store."""
        self._url = url
        self._options = dict(options)
        self._filesystem = filesystem
        self._pid = os.getpid()
        self._access: FileAccess | None = None

    def access(self) -> FileAccess:
        """Return this process's access, which a fork must not inherit."""
        if self._access is None or self._pid != os.getpid():
            self._access = self._make()
            self._pid = os.getpid()
        return self._access

    def _make(self) -> FileAccess:
        if self._filesystem is not None:
            filesystem = self._filesystem
            if self._pid != os.getpid():
                self._filesystem = filesystem = renewed(filesystem)
            scheme = protocols(filesystem)[0]
            if is_arrow(filesystem):
                from torchparquet._impl.files.remote.arrow_files import ArrowFiles

                return FileAccess(ArrowFiles(filesystem), scheme)
            secrets = secrets_of(getattr(filesystem, "storage_options", None))
            return FileAccess(filesystem, scheme, "", secrets)
        filesystem = make_filesystem(self._url, self._options)
        scheme, _ = split_scheme(self._url)
        _, rest = split_scheme(without_credentials(self._url))
        host = rest.partition("/")[0]
        name = str(filesystem._strip_protocol(self._url)).lstrip("/")
        is_in_name = scheme in HTTP or name.partition("/")[0] == host or "@" in host
        host = "" if is_in_name else host
        return FileAccess(filesystem, scheme, host, secrets_of(self._options))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to this process."""
        return self.__dict__ | {"_access": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin in this process."""
        self.__dict__.update(state)
        self._pid = os.getpid()

    def __repr__(self) -> str:
        """Return nothing of the options."""
        return f"<Storage of {without_credentials(self._url)!r}>"


def storage_of(texts: Sequence[str], arguments: StorageArguments) -> Storage | None:
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
        return Storage(texts[0], {}, filesystem)
    remote = [is_remote_url(text) for text in texts]
    if not any(remote):
        if arguments.options:
            raise ValueError(
                "storage_options must be given for URLs of stores alone; got the local path "
                f"{texts[0]!r}"
            )
        return None
    _check_one_store(texts)
    return Storage(texts[0], arguments.of_store, None)


def storage_beside(url: str, arguments: StorageArguments, paths: Sequence[str]) -> Storage:
    """Return the store of a URL that is not one of the paths."""
    scheme, _ = split_scheme(url)
    filesystem = unwrapped(arguments.filesystem)
    if filesystem is not None:
        holds = scheme in protocols(filesystem)
    else:
        holds = any(_family(split_scheme(path)[0]) == _family(scheme) for path in paths)
    made = storage_of([url], arguments if holds else NO_STORAGE)
    if made is None:
        raise ValueError(f"a URL must be of a store; got {without_credentials(url)!r}")
    return made


def _family(scheme: str) -> str:
    return _FAMILIES.get(scheme, scheme)


def _check_one_store(texts: Sequence[str]) -> None:
    """Raise if paths are of several stores, or need different connections."""
    first = texts[0]
    classes: dict[str, Any] = {}

    def store_of(text: str) -> tuple[str, Any]:
        scheme, _ = split_scheme(text)
        if scheme not in classes:
            try:
                module = fsspec_for(scheme)
                last = scheme.rpartition("::")[2]
                classes[scheme] = module.get_filesystem_class(last) if scheme else None
            except ValueError:
                raise ValueError(
                    f"paths must be local, or URLs that fsspec knows; got scheme {scheme!r}: "
                    f"{without_credentials(text)!r}"
                ) from None
        made = classes[scheme]
        connection = None if made is None else made._get_kwargs_from_urls(text)
        return _family(scheme), connection

    own = store_of(first)
    for text in texts[1:]:
        if store_of(text) != own:
            raise ValueError(
                "paths must all be local, or all of one store (mix reads several data sets): "
                f"{without_credentials(first)!r}, {without_credentials(text)!r}"
            )
