"""The command line `torchparquet`.

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

_PACKAGES = ("click", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    try:
        for package in _PACKAGES:
            import_module(package)
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        print(
            "torchparquet: error: the command line needs packages that are not installed: "
            f'pip install "torchparquet[cli]" (no {error.name})',
            file=sys.stderr,
        )
        return 1
    from torchparquet.cli.application import run

    return run(arguments)
