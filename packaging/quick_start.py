"""Runs the program on the page of the quick start, with the package that is installed.

    python packaging/quick_start.py

If Python runs without the GIL, it must still do so afterwards: an import may bring it back.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs/start/quickstart.md"


def has_gil() -> bool:
    """Return whether Python runs with the GIL now."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


def main() -> None:
    """Run the page's blocks as one program, in a folder that is gone afterwards."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    had_gil = has_gil()
    start = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        exec(compile("\n".join(blocks), str(PAGE), "exec"), {"__name__": "__main__"})
        os.chdir(start)
    if has_gil() != had_gil:
        sys.exit("an import has brought the GIL back")


if __name__ == "__main__":
    main()
