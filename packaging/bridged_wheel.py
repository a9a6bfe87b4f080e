"""Builds a wheel with a bridge to each release of pyarrow in pyarrow_releases.txt."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fetch_pyarrows import RELEASES, fetch

ROOT = Path(__file__).resolve().parents[1]


def run(*command: str | Path, **environment: str) -> None:
    """Run a command in the root, and raise CalledProcessError if it fails."""
    subprocess.run([*map(str, command)], check=True, cwd=ROOT, env=os.environ | environment)


def pip(*arguments: str | Path, **environment: str) -> None:
    """Run the pip of this environment."""
    run(sys.executable, "-m", "pip", *arguments, **environment)


def build(
    work: Path, *options: str | Path, platform: str | None = None, **environment: str
) -> Path:
    """Return a wheel in `work` that has no tag of older systems yet.

    Args:
        work: For the wheel and what is kept for the next one.
        options: Of `pip wheel`.
        platform: The tag of the system that the wheel is for; None: this one.
        environment: Of the compiler, say.
    """
    pyarrows = work / "pyarrows"
    for version in RELEASES:
        fetch(version, pyarrows, platform)
    with tempfile.TemporaryDirectory(dir=work) as folder:
        pip(
            *("wheel", "-q", "--no-deps", "-w", folder, ROOT),
            *("-C", f"build-dir={work / 'build'}"),
            *("-C", f"cmake.define.TORCHPARQUET_PYARROWS={pyarrows}"),
            *options,
            **environment,
        )
        (wheel,) = Path(folder).glob("*.whl")
        return wheel.rename(work / wheel.name)
