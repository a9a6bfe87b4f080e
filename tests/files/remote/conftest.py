"""Fixtures of tests of remote files: trees in stores, and servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.servers.fixtures import origin
from torchparquet._impl import native

__all__ = ["origin"]


class RecordingStore(native.RemoteStore):
    """The native store, which tells tests how it was used."""

    made: ClassVar[list[RecordingStore]] = []

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.with_addresses = arguments["with_addresses"]
        self.etags = arguments["etags"]
        self.options = arguments["options"]
        self.max_connections = self.options.max_connections
        self.closed = False
        self.made.append(self)

    def close(self) -> None:
        self.closed = True
        super().close()


@pytest.fixture
def native_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[RecordingStore]]:
    """All native stores that are made in a test."""
    monkeypatch.setattr(native, "RemoteStore", RecordingStore)
    RecordingStore.made.clear()
    yield RecordingStore
    RecordingStore.made.clear()


@pytest.fixture
def memory() -> Iterator[Any]:
    """fsspec's file system in memory, empty."""
    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]
    yield filesystem
    filesystem.store.clear()


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    """The URL of a server of S3."""
    from moto.server import ThreadedMotoServer

    made = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    made.start()
    host, port = made.get_host_and_port()
    yield f"http://{host}:{port}"
    made.stop()


class Bucket:
    """An empty bucket of that server, and the ways to it."""

    def __init__(self, name: str, endpoint: str) -> None:
        self.name, self.url = name, f"s3://{name}"
        self.options = {"key": "AKIA", "secret": "s3cr3t-of-the-test", "endpoint_url": endpoint}
        self.filesystem = fsspec.filesystem("s3", skip_instance_cache=True, **self.options)
        self.filesystem.mkdir(name)

    def of_arrow(self) -> Any:
        """Return a file system of pyarrow."""
        import pyarrow.fs as pafs

        return pafs.S3FileSystem(
            access_key=self.options["key"],
            secret_key=self.options["secret"],
            endpoint_override=self.options["endpoint_url"],
            region="us-east-1",
        )

    def upload(self, tree: Path) -> str:
        """Put a tree below `root`, and return its URL."""
        upload(tree, self.filesystem, f"{self.name}/root")
        return f"{self.url}/root"


@pytest.fixture
def bucket(s3_url: str, request: pytest.FixtureRequest) -> Bucket:
    """An empty bucket."""
    return Bucket(f"bucket-{abs(hash(request.node.nodeid))}", s3_url)


def upload(tree: Path, filesystem: Any, root: str) -> None:
    for path in sorted(tree.rglob("*")):
        if path.is_file():
            filesystem.pipe_file(f"{root}/{path.relative_to(tree)}", path.read_bytes())


def table_of(number: int, rows: int = 100) -> pa.Table:
    ids = np.arange(rows * number, rows * (number + 1))
    return pa.table({"id": ids, "x": ids / 7, "text": [f"row {i}" for i in ids]})


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Parquet files in two directories of a key, with a few files that are not to be read."""
    root = tmp_path / "tree"
    for number in range(4):
        directory = root / f"day={number // 2}"
        directory.mkdir(parents=True, exist_ok=True)
        pq.write_table(table_of(number), directory / f"part-{number}.parquet", row_group_size=30)
    (root / "_SUCCESS").write_bytes(b"")
    (root / "day=0" / ".part-0.parquet.crc").write_bytes(b"crc")
    (root / "_temporary").mkdir()
    (root / "_temporary" / "part-9.parquet").write_bytes(b"PAR1")
    return root
