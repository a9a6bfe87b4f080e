"""The stores' fixtures, for the tests of the servers themselves."""

from __future__ import annotations

from tests.servers.fixtures import open_store, origin, store

__all__ = ["open_store", "origin", "store"]
