"""Tells whether a wheel holds the Python package, the extensions and their stubs, and no more."""

import sys
import zipfile
from pathlib import Path, PurePosixPath

EXTENSIONS = {"_core", "_decryption"}


def main(path: str) -> None:
    """Exit with a message unless the wheel at `path` holds what it should."""
    names = zipfile.ZipFile(path).namelist()
    packaged = {name for name in names if ".dist-info/" not in name}
    source = Path("python")
    expected = {file.relative_to(source).as_posix() for file in source.rglob("*.py")}
    expected |= {"torchparquet/py.typed"}
    expected |= {f"torchparquet/{extension}.pyi" for extension in EXTENSIONS}
    extensions = {name for name in packaged if PurePosixPath(name).suffix == ".so"}
    compiled = {PurePosixPath(name).name.split(".")[0] for name in extensions}
    if compiled != EXTENSIONS or packaged - extensions != expected:
        sys.exit(f"unexpected in {path}: {sorted(packaged ^ expected)}")
    print(f"{path}: {len(packaged)} files, extensions {sorted(extensions)}")


main(sys.argv[1])
