#!/usr/bin/env python3
"""Reads with one wheel next to each release of pyarrow that it has a bridge to.

    matrix.py [VERSION | oldest | newest ...]

A version may be short, as in 25. Without versions, next to all of them. Builds the wheel with the
tools of the environment that it runs in. Each release gets an environment of its own, with that
pyarrow and the wheel. All else, such as torch and pytest, comes from the environment that this runs
in, and then from one folder for libraries that only import order is tested with.
"""

import os
import sys
import sysconfig
import venv
from pathlib import Path

from bridged_wheel import ROOT, build, pip, run
from fetch_pyarrows import RELEASES

WORK = ROOT / "build" / "matrix"
LIBRARIES = ["datasets", "ray"]
TESTS = ["files", "columns", "reading", "formats", "batches", "rows", "test_import.py"]


def extra_libraries() -> Path:
    """Return the folder of libraries that this environment may lack."""
    folder = WORK / "libraries"
    if not folder.is_dir():
        part = WORK / ".libraries"
        pip("install", "-q", "-c", ROOT / "constraints.txt", "--target", part, *LIBRARIES)
        part.rename(folder)
    return folder


def environment(version: str, wheel: Path) -> Path:
    """Return the Python of a new environment with that pyarrow and the wheel."""
    folder = WORK / version
    venv.create(folder, clear=True, symlinks=True)
    python = folder / "bin" / "python"
    pip("--python", python, "install", "-q", "--no-deps", f"pyarrow=={version}", wheel)
    (site,) = folder.glob("lib/python*/site-packages")
    others = [sysconfig.get_path("purelib"), str(extra_libraries())]
    (site / "others.pth").write_text("\n".join(others) + "\n")
    return python


def main() -> None:
    """Test what the command line names."""
    names = {"oldest": RELEASES[0], "newest": RELEASES[-1]}
    names |= {version.split(".")[0]: version for version in RELEASES}
    versions = [names.get(name, name) for name in sys.argv[1:]] or RELEASES
    WORK.mkdir(parents=True, exist_ok=True)
    wheel = build(WORK, "--no-build-isolation")
    for version in versions:
        print(f"\n--- pyarrow {version}", flush=True)
        python = environment(version, wheel)
        found = (
            "import pyarrow, torchparquet._impl.native as n; print(pyarrow.__version__, n.__file__)"
        )
        run(python, "-c", f"{found}; assert pyarrow.__version__ == {version!r}")
        tests = [ROOT / "tests" / name for name in TESTS]
        run(python, "-m", "pytest", "-q", "-n", str(os.cpu_count()), *tests)


if __name__ == "__main__":
    main()
