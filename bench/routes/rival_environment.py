"""The interpreter that has the rivals, and what it has of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from report.verdicts import Setting

_BENCH = Path(__file__).resolve().parents[1]
_VERSIONS = """
import json, sys
from importlib import metadata
found = {}
for package in sys.argv[1:]:
    try:
        found[package] = metadata.version(package)
    except metadata.PackageNotFoundError:
        found[package] = None
print(json.dumps(found))
"""


def rivals_python(setting: Setting) -> str:
    """Returns the interpreter that was named, or else this one, which has some of them."""
    return setting.rivals_python or sys.executable


def jollyjack_pass(python: str, *arguments: object) -> list[str]:
    """Returns the command of JollyJack's side, run by ``python``."""
    return _module("routes.jollyjack_pass", python, arguments)


def rival_pass(python: str, *arguments: object) -> list[str]:
    """Returns the command of a rival's side, run by ``python``."""
    return _module("routes.rival_pass", python, arguments)


def _module(name: str, python: str, arguments: Sequence[object]) -> list[str]:
    return ["env", f"PYTHONPATH={_BENCH}", python, "-m", name, *map(str, arguments)]


def rival_versions(setting: Setting, packages: Sequence[str]) -> dict[str, str | None]:
    """Returns the versions of ``packages`` there; None for what is not installed."""
    command = [rivals_python(setting), "-c", _VERSIONS, *packages]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, str | None] = json.loads(done.stdout)
    return found
