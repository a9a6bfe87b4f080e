"""Builds the source distribution and a wheel from nothing but it, and checks their versions.

    python packaging/sdist.py           # into dist/

The version comes from git's tags. It must be the same in the source distribution, in the wheel and
in the import; an archive of a tagged commit has the tag's; files without a history have one too.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

from bridged_wheel import ROOT, pip, run
from build.util import project_wheel_metadata

WANTED = ("CMakeLists.txt", "LICENSE", "PKG-INFO", "README.md", "cmake", "cpp", "python")
UNWANTED = (".ci", ".github", "build", "dist", "noxfile.py", "packaging")
TAG = "9.8.7"


def output_of(*command: str | Path, folder: Path = ROOT) -> str:
    """Return what a command in a folder prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return done.stdout.strip()


def check(what: str, version: str, wanted: str) -> None:
    """Raise if a version is not the one that is wanted."""
    if version != wanted:
        raise RuntimeError(f"{what} has version {version}, wanted {wanted}")
    print(f"{what}: {version}", flush=True)


def source_distribution(folder: Path) -> Path:
    """Return the source distribution in dist/, after it is unpacked in `folder`."""
    run(sys.executable, "-m", "build", "--sdist", "--outdir", folder, ROOT)
    (made,) = folder.glob("*.tar.gz")
    with tarfile.open(made) as archive:
        archive.extractall(folder, filter="data")
    (ROOT / "dist").mkdir(exist_ok=True)
    return made.rename(ROOT / "dist" / made.name)


def check_content(unpacked: Path) -> None:
    """Raise if something is missing in the source distribution, or too much in it."""
    names = {path.name for path in unpacked.iterdir()}
    if not names.issuperset(WANTED) or not names.isdisjoint(UNWANTED):
        raise RuntimeError(f"the source distribution has {sorted(names)}")


def imported_version(wheel: Path, folder: Path) -> str:
    """Return the version that an import tells where only the wheel is installed."""
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel)
    run(python, "-m", "pip", "check")
    program = "import torchparquet; print(torchparquet.__version__)"
    return output_of(python, "-c", program, folder=folder)


def check_archives(folder: Path) -> None:
    """Check the versions of a tagged commit's archive, and of files without a history."""
    clone = folder / "clone"
    output_of("git", "clone", "-q", "--depth", "1", f"file://{ROOT}", clone)
    output_of("git", "tag", f"v{TAG}", folder=clone)
    output_of(
        "git",
        "archive",
        "--prefix",
        "archive/",
        "-o",
        folder / "archive.tar",
        f"v{TAG}",
        folder=clone,
    )
    with tarfile.open(folder / "archive.tar") as archive:
        archive.extractall(folder, filter="data")
    check("the archive of a tag", project_wheel_metadata(folder / "archive")["Version"], TAG)
    (folder / "archive" / ".git_archival.txt").unlink()
    bare = project_wheel_metadata(folder / "archive")["Version"]
    check("files without a history", bare, "0.0")


def main() -> None:
    """Build and check; say how large the source distribution is."""
    wanted = output_of(sys.executable, "-m", "setuptools_scm")
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as name:
        folder = Path(name)
        check_archives(folder)
        made = source_distribution(folder)
        unpacked = folder / made.name.removesuffix(".tar.gz")
        check("the source distribution", unpacked.name.removeprefix("torchparquet-"), wanted)
        check_content(unpacked)
        pip("wheel", "-q", "--no-deps", "-w", folder, unpacked)
        (wheel,) = folder.glob("*.whl")
        check("its wheel", wheel.name.split("-")[1], wanted)
        check("the import", imported_version(wheel, folder / "environment"), wanted)
    print(f"{made.relative_to(ROOT)}: {made.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
