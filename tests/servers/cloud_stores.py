"""Emulators of Azure's and Google's stores."""

from __future__ import annotations

import importlib.util
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
# The account and key that the emulator has by default; both are public.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
# `nox -s servers` installs the emulator there.
AZURITE_FOLDER = ROOT / "build" / "azurite"


def _azurite() -> str:
    bins = os.pathsep.join([str(AZURITE_FOLDER / "node_modules" / ".bin"), os.environ["PATH"]])
    path = shutil.which("azurite-blob", path=bins)
    if path is None:
        raise StoreMissingError(
            "azurite is not installed: npm install --prefix build/azurite azurite@3.35.0"
        )
    if importlib.util.find_spec("adlfs") is None:
        raise StoreMissingError("adlfs is not installed")
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
    for module in ("gcp_storage_emulator", "gcsfs"):
        if importlib.util.find_spec(module) is None:
            raise StoreMissingError(f"{module.replace('_', '-')} is not installed")
    (port,) = free_ports(1)
    script = str(Path(sysconfig.get_path("scripts"), "gcp-storage-emulator"))
    command = [sys.executable, script, "start", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--in-memory", "--default-bucket", BUCKET]
    options = {"endpoint_url": f"http://127.0.0.1:{port}", "token": "anon"}
    store = FsspecStore("gcs emulator", f"gs://{BUCKET}", options)
    with server(command, lambda: accepts(port) and store.make_bucket(), folder / "log"):
        yield store
