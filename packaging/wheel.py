"""Builds a wheel for older systems, and runs the quick start on it where no compiler is.

    python packaging/wheel.py           # into dist/

The wheel has a bridge to each release of pyarrow in .ci/pyarrow_releases.txt. auditwheel checks
which systems have all that its extensions need.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "wheel"
TAG = "manylinux_2_28_x86_64"
# Of pyarrow, which is installed beside.
NOT_INCLUDED = ("libarrow.so.*", "libparquet.so.*")


def run(*command: str | Path, **environment: str) -> None:
    """Run a command in the root, and raise CalledProcessError if it fails."""
    subprocess.run([*map(str, command)], check=True, cwd=ROOT, env=os.environ | environment)


def build() -> Path:
    """Return a wheel that has no tag of a system yet."""
    pyarrows = WORK / "pyarrows"
    run(sys.executable, ".ci/fetch_pyarrows.py", pyarrows)
    toolchain: list[str | Path] = [sys.executable, ROOT / "packaging/older_linux/toolchain.py"]
    toolchain.append(WORK / "toolchain")
    compiler = subprocess.run(toolchain, check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        run(
            *(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, "."),
            *("-C", f"build-dir={WORK / 'build'}"),
            *("-C", f"cmake.define.TORCHPARQUET_PYARROWS={pyarrows}"),
            CXX=compiler,
        )
        (wheel,) = Path(folder).glob("*.whl")
        return wheel.rename(WORK / wheel.name)


def tagged(wheel: Path) -> Path:
    """Return the wheel with the tag of older systems, in dist/; raise if it does not fit them."""
    excluded = [f"--exclude={name}" for name in NOT_INCLUDED]
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        repair = (sys.executable, "-m", "auditwheel", "repair", "--plat", TAG)
        run(*repair, *excluded, "-w", folder, wheel)
        (repaired,) = Path(folder).glob("*.whl")
        (ROOT / "dist").mkdir(exist_ok=True)
        return repaired.rename(ROOT / "dist" / repaired.name)


def check_content(wheel: Path) -> None:
    """Raise if a bridge is missing or a library is included."""
    releases = (ROOT / ".ci/pyarrow_releases.txt").read_text().split()
    numbers = [version.split(".") for version in releases]
    bridges = {f"torchparquet/_arrow_{major}{minor:0>2}.so" for major, minor, _ in numbers}
    names = set(zipfile.ZipFile(wheel).namelist())
    libraries = {name for name in names if ".so" in name}
    own = {name for name in libraries if re.match(r"torchparquet/_core\..*\.so$", name)}
    if libraries != bridges | own or len(own) != 1:
        raise RuntimeError(f"{wheel.name} has {sorted(libraries)}, wanted _core and {bridges}")


def quick_start() -> str:
    """Return the program that the page of the quick start makes."""
    page = (ROOT / "docs/start/quickstart.md").read_text()
    return "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL))


def try_out(wheel: Path) -> None:
    """Install the wheel in a new environment, and run the quick start without a compiler."""
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        environment = Path(folder) / "environment"
        venv.create(environment, with_pip=True)
        python = environment / "bin/python"
        only = {"PATH": str(environment / "bin")}
        constraints = ROOT / "constraints.txt"
        run(python, "-m", "pip", "install", "-q", "-c", constraints, wheel, **only)
        run(python, "-m", "pip", "check", **only)
        program = Path(folder) / "quick_start.py"
        program.write_text(quick_start())
        subprocess.run([python, program], check=True, cwd=folder, env=only)


def main() -> None:
    """Build the wheel, check it, and say how large it is."""
    WORK.mkdir(parents=True, exist_ok=True)
    wheel = tagged(build())
    check_content(wheel)
    try_out(wheel)
    print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
