"""Builds a wheel for older systems, and tries it where no compiler is: the quick start, and HTTP.

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
# The packages that tests of reading by HTTP and HTTPS take, beside the wheel.
TEST_TOOLS = ("pytest", "pytest-timeout", "hypothesis", "trustme")


def made_for(processor: str, tag: str, compiler: Path, work: Path, curl: Path) -> Path:
    """Return a wheel that has no tag of a system yet."""
    options = [
        *("-C", "cmake.define.TORCHPARQUET_STATIC_CURL=ON"),
        *("-C", f"cmake.define.CURL_ROOT={curl}"),
        *("-C", f"cmake.define.OPENSSL_ROOT_DIR={curl}"),
    ]
    if processor == platform.machine():
        return bridged_wheel.build(work, *options, platform=tag, CXX=str(compiler))
    here = platform.machine()
    return bridged_wheel.build(
        work,
        *options,
        *("-C", "cmake.define.CMAKE_SYSTEM_NAME=Linux"),
        *("-C", f"cmake.define.CMAKE_SYSTEM_PROCESSOR={processor}"),
        *("-C", "cmake.define.PYBIND11_USE_CROSSCOMPILING=ON"),
        *("-C", f"cmake.define.CMAKE_STRIP={shutil.which(f'{processor}-linux-gnu-strip')}"),
        platform=tag,
        CXX=str(compiler),
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
    bridges = {f"torchparquet/_impl/_arrow_{major}{minor:0>2}.so" for major, minor, _ in numbers}
    names = set(zipfile.ZipFile(wheel).namelist())
    libraries = {name for name in names if ".so" in name}
    own = {
        name
        for name in libraries
        if re.match(rf"torchparquet/_impl/_core\..*-{processor}-linux-gnu\.so$", name)
    }
    if libraries != bridges | own or len(own) != 1:
        raise RuntimeError(f"{wheel.name} has {sorted(libraries)}, wanted _core and {bridges}")


def try_out(wheel: Path, work: Path) -> None:
    """Install the wheel in a new environment; run the quick start there, and read by HTTP."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        environment = Path(folder) / "environment"
        venv.create(environment, with_pip=True)
        python = environment / "bin/python"
        only = {"PATH": str(environment / "bin")}
        constraints = ROOT / "constraints.txt"
        install = (python, "-m", "pip", "install", "-q", "-c", constraints)
        run(*install, wheel, **only)
        run(python, "-m", "pip", "check", **only)
        has_http = "from torchparquet._impl import native; assert native.has_http()"
        subprocess.run([python, "-c", has_http], check=True, env=only)
        subprocess.run([python, ROOT / "packaging/quick_start.py"], check=True, env=only)
        run(*install, f"{wheel}[http]", *TEST_TOOLS, **only)
        only |= {"TORCHPARQUET_SERVERS": "require"}
        tests = [
            ROOT / "tests/remote" / name for name in ("test_same_batches.py", "test_proxies.py")
        ]
        pytest = (python, "-m", "pytest", "-q", "-k", "http or proxies")
        subprocess.run([*pytest, *tests], cwd=ROOT, check=True, env=only)


def check_symbols(wheel: Path, work: Path) -> None:
    """Raise unless libcurl is in _core, and neither needed nor seen from outside."""
    with tempfile.TemporaryDirectory(dir=work) as folder, zipfile.ZipFile(wheel) as content:
        (name,) = (name for name in content.namelist() if re.search(r"/_core\..*\.so$", name))
        library = content.extract(name, folder)
        dynamic = subprocess.run(
            ["readelf", "-W", "-d", "--dyn-syms", library],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
        seen = re.findall(r"\b(?:GLOBAL|WEAK) +DEFAULT +\d+ (\S+)", dynamic)
        foreign = [name for name in needed if re.match("lib(curl|ssl|crypto)", name)]
        foreign += [name for name in seen if name != "PyInit__core"]
        # One of its messages, which no linker can leave out.
        if foreign or b"A libcurl function was given" not in Path(library).read_bytes():
            raise RuntimeError(f"{wheel.name}: libcurl is not a part of _core alone: {foreign[:9]}")
        print(f"_core needs {' '.join(needed)}")


def archives_of_curl(processor: str, compiler: Path, archives: Path | None) -> Path:
    """Return the prefix of libcurl as an archive, for older systems."""
    environment = {"CC": "cc", "AR": "ar", "RANLIB": "ranlib"}
    made = subprocess.run(
        [
            *(sys.executable, ROOT / "packaging/static_curl.py", ROOT / "build/curl"),
            *("--processor", processor),
            *(("--archives", archives) if archives else ()),
        ],
        env=os.environ
        | {name: str(compiler.with_name(tool)) for name, tool in environment.items()},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return Path(made.stdout.strip())


def last_commit() -> str:
    """Return the time of the last commit, in seconds; of files without a history, 1980's."""
    log = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return log.stdout.strip() or "315532800"


def make(processor: str, archives: Path | None, *, anew: bool) -> Path:
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
    compiler = Path(made.stdout.strip())
    curl = archives_of_curl(processor, compiler, archives)
    wheel = tagged(made_for(processor, tag, compiler, work, curl), tag, work)
    check_content(wheel, processor)
    check_symbols(wheel, work)
    with zipfile.ZipFile(wheel) as content:
        names = [Path(name).name for name in content.namelist()]
    for license_of in (curl / "licenses").iterdir():
        if license_of.name not in names:
            raise RuntimeError(f"{wheel.name} lacks {license_of.name}")
    return wheel


def main() -> None:
    """Build the wheel, check it, and say how large it is."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--processor", choices=["x86_64", "aarch64"], default=platform.machine())
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--archives", type=Path, help="holds the sources of libcurl and OpenSSL")
    arguments = parser.parse_args()
    # The files in a wheel bear this time, so that one commit makes one wheel.
    os.environ.setdefault("SOURCE_DATE_EPOCH", last_commit())
    wheel = make(arguments.processor, arguments.archives, anew=arguments.twice)
    if arguments.twice:
        first = wheel.read_bytes()
        if make(arguments.processor, arguments.archives, anew=True).read_bytes() != first:
            raise RuntimeError(f"{wheel.name} has other bytes when it is built again")
        print("built twice: the same bytes")
    if arguments.processor == platform.machine():
        try_out(wheel, ROOT / "build" / "wheel")
    print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
