"""Reads through a proxy that speaks TLS: its certificates are those of stores."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.fixtures.tree import child_environment
from tests.remote.reading import whole
from tests.servers.fixtures import OpenStore
from tests.servers.processes import accepts, free_ports, server
from torchparquet._impl.native import has_http

FILE = "train/part-0.parquet"


@pytest.mark.skipif(not has_http(), reason="fsspec's HTTP asks no proxy unless it is told to")
def test_proxies_are_trusted_as_stores_are(
    open_store: OpenStore, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = open_store("https").upload(data, "proxied")
    # The store's own, which the proxy shows too.
    certificate = Path(os.environ["SSL_CERT_FILE"]).with_name("certificate.pem")
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "tests.servers.tls_proxy", str(port), str(certificate)]
    log = tmp_path / "log"
    with server(command, lambda: accepts(port), log, child_environment()):
        monkeypatch.setenv("https_proxy", f"https://localhost:{port}")
        monkeypatch.setenv("no_proxy", "")
        found = whole([f"{url}/{FILE}"])
        assert "CONNECT localhost:" in log.read_text()
    assert found == whole(data / FILE)
