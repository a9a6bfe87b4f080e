#!/usr/bin/env python3
"""Unpacks wheels of pyarrow into a folder, for a wheel of torchparquet with a bridge to each.

    fetch_pyarrows.py [--platform PLATFORM] FOLDER [VERSION ...]

CMake's TORCHPARQUET_PYARROWS takes the folder. Without versions, those in pyarrow_releases.txt. A
version that is unpacked already is not fetched again. The platform is that of a wheel's tag, such
as manylinux_2_28_aarch64; without it, the wheels are for this machine.
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

RELEASES = Path(__file__).with_name("pyarrow_releases.txt").read_text().split()


def fetch(version: str, folder: Path, platform: str | None = None) -> None:
    """Unpack that version, so that its package `pyarrow` is in FOLDER/VERSION."""
    unpacked = folder / version
    if unpacked.is_dir():
        return
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
    pip += ["--platform", platform] if platform else []
    with tempfile.TemporaryDirectory() as wheels:
        subprocess.run([*pip, "-d", wheels, f"pyarrow=={version}"], check=True)
        (wheel,) = Path(wheels).iterdir()
        part = folder / f".{version}"
        zipfile.ZipFile(wheel).extractall(part)
        part.rename(unpacked)


def main() -> None:
    """Fetch the versions that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--platform")
    parser.add_argument("folder", type=Path)
    parser.add_argument("versions", nargs="*", default=RELEASES)
    arguments = parser.parse_args()
    for version in arguments.versions:
        fetch(version, arguments.folder.resolve(), arguments.platform)


if __name__ == "__main__":
    main()
