#!/usr/bin/env python3
"""Reads with one wheel next to each release of pyarrow that it has a bridge to.

    matrix.py [VERSION | oldest | newest ...]

Without versions, next to all of them. Builds the wheel with the tools of the environment that it
runs in. Each release gets an environment of its own, with that pyarrow and the wheel. All else,
such as torch and pytest, comes from the environment that this runs in, and then from one folder
for libraries that only import order is tested with.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from fetch_pyarrows import RELEASES, fetch

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "matrix"
LIBRARIES = ["datasets", "ray"]
TESTS = ["files", "columns", "reading", "formats", "batches", "test_import.py"]
TESTS += ["test_import_order.py"]


def run(*command: str | Path) -> None:
    """Run a command of this repository in its root."""
    subprocess.run([*map(str, command)], check=True, cwd=ROOT)  # noqa: S603


def pip(*arguments: str | Path) -> None:
    """Run the pip of this environment."""
    run(sys.executable, "-m", "pip", *arguments)


def build_wheel() -> Path:
    """Return a wheel with all bridges."""
    pyarrows = WORK / "pyarrows"
    for version in RELEASES:
        fetch(version, pyarrows)
    wheels = WORK / "wheels"
    for old in wheels.glob("*.whl"):
        old.unlink()
    bridges = f"cmake.define.TORCHPARQUET_PYARROWS={pyarrows}"
    options = ["-q", "--no-build-isolation", "--no-deps", "-C", f"build-dir={WORK / 'wheel'}"]
    pip("wheel", *options, "-C", bridges, "-w", wheels, ROOT)
    (wheel,) = wheels.glob("*.whl")
    return wheel


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
    versions = [names.get(name, name) for name in sys.argv[1:]] or RELEASES
    wheel = build_wheel()
    for version in versions:
        print(f"\n--- pyarrow {version}", flush=True)
        python = environment(version, wheel)
        found = "import pyarrow, torchparquet.native as n; print(pyarrow.__version__, n.__file__)"
        run(python, "-c", f"{found}; assert pyarrow.__version__ == {version!r}")
        tests = [ROOT / "tests" / name for name in TESTS]
        run(python, "-m", "pytest", "-q", "-n", str(os.cpu_count()), *tests)


if __name__ == "__main__":
    main()
