"""`python -m bench`: see suite.py."""

from __future__ import annotations

import sys
from pathlib import Path


def _run() -> int:
    # The programs of this directory also run by their paths, so they import each other by name.
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from suite import main

    return main()


if __name__ == "__main__":
    sys.exit(_run())
