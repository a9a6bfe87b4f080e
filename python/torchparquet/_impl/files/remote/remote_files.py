"""The files of a data set that lie in a store: their listing, and the way to their bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

import numpy as np

from torchparquet._impl.files.remote.addresses import address_maker
from torchparquet._impl.files.remote.broker import Broker
from torchparquet._impl.files.remote.failures import plain_errors
from torchparquet._impl.files.remote.file_access import Entry, entity_tag
from torchparquet._impl.files.remote.storage import NO_CACHE, BlockCache, Storage
from torchparquet._impl.processors import num_ranks_here

# Of all processes of a machine that read, and the least of each.
_CONNECTIONS = 64
_LEAST_CONNECTIONS = 8


@dataclass(frozen=True, eq=False)
class RemoteFiles:
    """Files of a store, as they were listed. Pickles without threads and connections.

    Attributes:
        names: As the store's library calls them; these may hold credentials.
        fetch: Arguments of the native client.
    """

    storage: Storage
    paths: tuple[str, ...]
    names: tuple[str, ...]
    num_bytes: tuple[int, ...]
    stamps: tuple[str, ...]
    cache: BlockCache = NO_CACHE
    fetch: Mapping[str, Any] = field(default_factory=dict)
    footers: list[Any] = field(default_factory=list)

    def connect(self, *, just_listed: bool = False, num_workers: int = 1) -> RemoteReading:
        """Open what the native reader reads the files through."""
        return RemoteReading(self, just_listed, num_workers)

    @classmethod
    def of(cls, entries: Sequence[Entry], storage: Storage, **options: Any) -> RemoteFiles:
        """Return the files of a listing."""
        access = storage.access()
        paths: dict[str, None] = {}
        for entry in entries:
            path = shown = access.shown(entry.name)
            number = 1
            while path in paths:  # URLs that differ in their queries, which are not shown
                number += 1
                path = f"{shown}#{number}"
            paths[path] = None
        names, num_bytes, stamps, _ = zip(*entries, strict=True)
        return cls(storage, tuple(paths), names, num_bytes, stamps, **options)

    def only(self, file: int) -> RemoteFiles:
        """Return one of the files by itself."""
        lists = ("paths", "names", "num_bytes", "stamps")
        one: dict[str, Any] = {name: (getattr(self, name)[file],) for name in lists}
        return replace(self, footers=[], **one)

    def open(self, path: str) -> Any:
        """Return a file to read in any order, as pyarrow takes it."""
        return self.storage.access().open(self.names[self.paths.index(path)])

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the footers."""
        return self.__dict__ | {"footers": []}

    def __repr__(self) -> str:
        """Return nothing of the names."""
        return f"<RemoteFiles: {len(self.paths)} files, {self.storage!r}>"


def _connections(num_workers: int) -> int:
    """Return the share that a process has of this machine's connections."""
    return max(_LEAST_CONNECTIONS, _CONNECTIONS // (num_workers * num_ranks_here()))


class RemoteReading:
    """A native store of some files, and the broker that answers its requests.

    A context manager. Belongs to one process; a forked child must make its own.
    """

    def __init__(self, files: RemoteFiles, just_listed: bool, num_workers: int) -> None:
        """Start the broker."""
        # Imported here, so that unpickling does not load the native module.
        from torchparquet._impl import native

        access = files.storage.access()
        maker = address_maker(access)
        if maker is not None:
            with plain_errors("make an address of", files.paths[0], access.secrets):
                if not native.has_http() or maker(files.names[0], files.stamps[0]) is None:
                    maker = None
        self._files = files
        self.native = native.RemoteStore(
            paths=list(files.paths),
            num_bytes=np.array(files.num_bytes, np.int64),
            etags=[entity_tag(stamp) for stamp in files.stamps],
            identities=list(files.stamps),
            with_addresses=maker is not None,
            cache_folder=files.cache.folder,
            cache_limit=files.cache.limit,
            **({"max_connections": _connections(num_workers)} | dict(files.fetch)),
        )
        if files.footers:
            self.native.footers = files.footers[0]
        self._broker = Broker(self.native, files, maker, just_listed=just_listed)

    def close(self) -> None:
        """End the broker's threads. Later readings use the footers that this one has read."""
        self._files.footers[:] = [self.native.footers]
        self._broker.close()

    def __enter__(self) -> RemoteReading:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()
