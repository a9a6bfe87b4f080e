"""Builds a wheel for older systems, and runs the quick start on it where no compiler is.

    python packaging/wheel.py                         # into dist/
    python packaging/wheel.py --processor aarch64     # on x86-64, too
    python packaging/wheel.py --twice                 # and once more, for the same bytes

The wheel has a bridge to each release of pyarrow in pyarrow_releases.txt. auditwheel checks which
systems have all that its extensions need. A wheel for another processor is not run.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path

import bridged_wheel
from bridged_wheel import ROOT, run
from fetch_pyarrows import RELEASES

GLIBC_MINOR = 28
# Of pyarrow, which is installed beside.
NOT_INCLUDED = ("libarrow.so.*", "libparquet.so.*")


def made_for(processor: str, tag: str, compiler: str, work: Path) -> Path:
    """Return a wheel that has no tag of a system yet."""
    if processor == platform.machine():
        return bridged_wheel.build(work, platform=tag, CXX=compiler)
    here = platform.machine()
    return bridged_wheel.build(
        work,
        *("-C", "cmake.define.CMAKE_SYSTEM_NAME=Linux"),
        *("-C", f"cmake.define.CMAKE_SYSTEM_PROCESSOR={processor}"),
        *("-C", "cmake.define.PYBIND11_USE_CROSSCOMPILING=ON"),
        *("-C", f"cmake.define.CMAKE_STRIP={shutil.which(f'{processor}-linux-gnu-strip')}"),
        platform=tag,
        CXX=compiler,
        # Python's own ways to say that it builds for another machine.
        _PYTHON_HOST_PLATFORM=f"linux-{processor}",
        SETUPTOOLS_EXT_SUFFIX=sysconfig.get_config_var("EXT_SUFFIX").replace(here, processor),
    )


def tagged(wheel: Path, tag: str, work: Path) -> Path:
    """Return the wheel with the tag of older systems, in dist/; raise if it does not fit them."""
    excluded = [f"--exclude={name}" for name in NOT_INCLUDED]
    with tempfile.TemporaryDirectory(dir=work) as folder:
        # auditwheel takes the tag of this processor alone, and finds out that of another.
        is_here = tag.endswith(f"_{platform.machine()}")
        repair = (
            sys.executable,
            "-m",
            "auditwheel",
            "repair",
            "--plat",
            tag if is_here else "auto",
        )
        run(*repair, *excluded, "-w", folder, wheel)
        (repaired,) = Path(folder).glob("*.whl")
        found = re.findall(r"manylinux_2_(\d+)_", repaired.name)
        if not found or min(map(int, found)) > GLIBC_MINOR:
            raise RuntimeError(f"{repaired.name} does not run on all systems of {tag}")
        (ROOT / "dist").mkdir(exist_ok=True)
        return repaired.rename(ROOT / "dist" / repaired.name)


def check_content(wheel: Path, processor: str) -> None:
    """Raise if a bridge is missing, a library is included, or Python would not find _core."""
    numbers = [version.split(".") for version in RELEASES]
    bridges = {f"torchparquet/_arrow_{major}{minor:0>2}.so" for major, minor, _ in numbers}
    names = set(zipfile.ZipFile(wheel).namelist())
    libraries = {name for name in names if ".so" in name}
    own = {
        name
        for name in libraries
        if re.match(rf"torchparquet/_core\..*-{processor}-linux-gnu\.so$", name)
    }
    if libraries != bridges | own or len(own) != 1:
        raise RuntimeError(f"{wheel.name} has {sorted(libraries)}, wanted _core and {bridges}")


def try_out(wheel: Path, work: Path) -> None:
    """Install the wheel in a new environment, and run the quick start without a compiler."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        environment = Path(folder) / "environment"
        venv.create(environment, with_pip=True)
        python = environment / "bin/python"
        only = {"PATH": str(environment / "bin")}
        constraints = ROOT / "constraints.txt"
        run(python, "-m", "pip", "install", "-q", "-c", constraints, wheel, **only)
        run(python, "-m", "pip", "check", **only)
        subprocess.run([python, ROOT / "packaging/quick_start.py"], check=True, env=only)


def last_commit() -> str:
    """Return the time of the last commit, in seconds; of files without a history, 1980's."""
    log = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return log.stdout.strip() or "315532800"


def make(processor: str, *, anew: bool) -> Path:
    """Return a wheel in dist/ that is built, from nothing if `anew`, and checked."""
    work = ROOT / "build" / "wheel" / processor
    if anew:
        shutil.rmtree(work / "build", ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    tag = f"manylinux_2_{GLIBC_MINOR}_{processor}"
    toolchain = (sys.executable, ROOT / "packaging/older_linux/toolchain.py")
    made = subprocess.run(
        [*toolchain, work / "toolchain", processor], check=True, capture_output=True, text=True
    )
    wheel = tagged(made_for(processor, tag, made.stdout.strip(), work), tag, work)
    check_content(wheel, processor)
    return wheel


def main() -> None:
    """Build the wheel, check it, and say how large it is."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--processor", choices=["x86_64", "aarch64"], default=platform.machine())
    parser.add_argument("--twice", action="store_true")
    arguments = parser.parse_args()
    # The files in a wheel bear this time, so that one commit makes one wheel.
    os.environ.setdefault("SOURCE_DATE_EPOCH", last_commit())
    wheel = make(arguments.processor, anew=arguments.twice)
    if arguments.twice:
        first = wheel.read_bytes()
        if make(arguments.processor, anew=True).read_bytes() != first:
            raise RuntimeError(f"{wheel.name} has other bytes when it is built again")
        print("built twice: the same bytes")
    if arguments.processor == platform.machine():
        try_out(wheel, ROOT / "build" / "wheel")
    print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
