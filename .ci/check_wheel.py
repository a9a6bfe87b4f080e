"""Tells whether a wheel holds the Python package, one extension and its stub, and no more."""

import sys
import zipfile
from pathlib import Path, PurePosixPath


def main(path: str) -> None:
    """Exit with a message unless the wheel at `path` holds what it should."""
    names = zipfile.ZipFile(path).namelist()
    packaged = {name for name in names if ".dist-info/" not in name}
    source = Path("python")
    expected = {file.relative_to(source).as_posix() for file in source.rglob("*.py")}
    expected |= {"torchparquet/py.typed", "torchparquet/_core.pyi"}
    extensions = {name for name in packaged if PurePosixPath(name).suffix == ".so"}
    if len(extensions) != 1 or packaged - extensions != expected:
        sys.exit(f"unexpected in {path}: {sorted(packaged ^ expected)}")
    print(f"{path}: {len(packaged)} files, extension {extensions.pop()}")


main(sys.argv[1])
