"""Fixtures of the stores, for the conftest of whoever needs them.

Each server is started by the first test that asks for it. A test is skipped if its server is not
installed, and fails instead if the environment variable TORCHPARQUET_SERVERS is `require`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.servers import emulators, http_stores
from tests.servers.faulty_origin import FaultyOrigin
from tests.servers.stores import Start, Store, StoreMissingError

STORES: dict[str, Start] = {
    "moto": emulators.moto,
    "seaweedfs": emulators.seaweedfs,
    "azurite": emulators.azurite,
    "gcs": emulators.gcs_emulator,
    "http": http_stores.http_origin,
    "https": http_stores.https_origin,
}
# Stores that start at once and need few packages. `nox -s servers` reads from the others too.
USUAL = ("moto", "http", "https")
OpenStore = Callable[[str], Store]


def servers_are_required() -> bool:
    """True if a server that is not installed is a failure."""
    return os.environ.get("TORCHPARQUET_SERVERS") == "require"


@pytest.fixture(scope="session")
def open_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenStore]:
    """Return a running store by its name; starts it at the first call."""
    # gcsfs would ask Google for the kind of each bucket, by another protocol.
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    running: dict[str, Store | StoreMissingError] = {}
    with ExitStack() as stack:

        def opened(name: str) -> Store:
            if name not in USUAL and not servers_are_required():
                pytest.skip(f"TORCHPARQUET_SERVERS=require starts {name}, as `nox -s servers` does")
            if name not in running:
                folder = tmp_path_factory.mktemp(f"store-{name}")
                try:
                    running[name] = stack.enter_context(STORES[name](folder))
                except StoreMissingError as error:
                    running[name] = error
            found = running[name]
            if isinstance(found, StoreMissingError):
                if servers_are_required():
                    pytest.fail(f"TORCHPARQUET_SERVERS=require, but {found}")
                pytest.skip(str(found))
            return found

        yield opened


@pytest.fixture
def origin() -> Iterator[FaultyOrigin]:
    """An empty origin in which nothing goes wrong yet."""
    with FaultyOrigin() as running:
        yield running
