"""Plain HTTP origins with ranges, and one with TLS by a certificate authority of the tests' own."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fixtures.tree import child_environment
from tests.servers.processes import accepts, free_ports, server
from tests.servers.stores import FolderStore, Store, StoreMissingError

# Clients take their certificate authorities from the file that one of these names.
AUTHORITY_VARIABLES = ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE")


@contextmanager
def _origin(name: str, folder: Path, certificate: Path | None) -> Iterator[Store]:
    if importlib.util.find_spec("aiohttp") is None:
        raise StoreMissingError("aiohttp is not installed")
    (port,) = free_ports(1)
    served = folder / "served"
    served.mkdir()
    command = [sys.executable, "-m", "tests.servers.faulty_origin", str(served), str(port)]
    command += [str(certificate)] if certificate else []
    url = f"https://localhost:{port}" if certificate else f"http://127.0.0.1:{port}"
    environment = child_environment()
    with server(command, lambda: accepts(port), folder / "log", environment):
        yield FolderStore(name, url, {}, served)


@contextmanager
def http_origin(folder: Path) -> Iterator[Store]:
    """Run an origin in a process of its own."""
    with _origin("http", folder, None) as store:
        yield store


@functools.cache
def _certificate() -> Path:
    """Return a certificate for localhost, whose authority this process and its children trust.

    Until the process ends: several origins may run at once, and clients know one authority.
    """
    for module in ("aiohttp", "trustme"):
        if importlib.util.find_spec(module) is None:
            raise StoreMissingError(f"{module} is not installed")
    import aiohttp.connector
    import trustme

    folder = Path(tempfile.mkdtemp(prefix="authority-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    authority = trustme.CA()
    trusted, certificate = folder / "authority.pem", folder / "certificate.pem"
    authority.cert_pem.write_to_path(trusted)
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(certificate)
    # It was made when the module was imported, from the authorities of then.
    aiohttp.connector._SSL_CONTEXT_VERIFIED.load_verify_locations(trusted)
    os.environ.update(dict.fromkeys(AUTHORITY_VARIABLES, str(trusted)))
    return certificate


@contextmanager
def https_origin(folder: Path) -> Iterator[Store]:
    """Run an origin with TLS, by a certificate that this process and its children trust."""
    with _origin("https", folder, _certificate()) as store:
        yield store
