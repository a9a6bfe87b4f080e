"""A store in a process of its own, which holds the files of a folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fixtures.tree import ROOT
from tests.servers.processes import accepts, free_ports, server


@contextmanager
def origin_of(folder: Path) -> Iterator[list[str]]:
    """Serve `folder/data` over HTTP, and yield the addresses of its files in order."""
    (port,) = free_ports(1)
    environment = {name: text for name, text in os.environ.items() if name != "LD_PRELOAD"}
    environment["PYTHONPATH"] = str(ROOT)
    module = "tests.servers.faulty_origin"
    program = [sys.executable, "-m", module, str(folder / "data"), str(port)]
    with server(program, lambda: accepts(port), folder / "server.log", environment):
        names = sorted(path.name for path in (folder / "data").iterdir())
        yield [f"http://127.0.0.1:{port}/{name}" for name in names]
