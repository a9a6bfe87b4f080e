#!/usr/bin/env python3
"""Unpacks wheels of pyarrow into a folder, for a wheel of torchparquet with a bridge to each.

    fetch_pyarrows.py FOLDER [VERSION ...]

CMake's TORCHPARQUET_PYARROWS takes the folder. Without versions, those in pyarrow_releases.txt.
A version that is unpacked already is not fetched again.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

RELEASES = Path(__file__).with_name("pyarrow_releases.txt").read_text().split()


def fetch(version: str, folder: Path) -> None:
    """Unpack that version, so that its package `pyarrow` is in FOLDER/VERSION."""
    unpacked = folder / version
    if unpacked.is_dir():
        return
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
    with tempfile.TemporaryDirectory() as wheels:
        subprocess.run([*pip, "-d", wheels, f"pyarrow=={version}"], check=True)  # noqa: S603
        (wheel,) = Path(wheels).iterdir()
        part = folder / f".{version}"
        zipfile.ZipFile(wheel).extractall(part)
        part.rename(unpacked)


def main() -> None:
    """Fetch the versions that the command line names."""
    for version in sys.argv[2:] or RELEASES:
        fetch(version, Path(sys.argv[1]).resolve())


if __name__ == "__main__":
    main()
