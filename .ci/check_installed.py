"""Tells whether pip installed the package, the extension, its stub and bridges, and no more."""

import re
import sys
from importlib.metadata import distribution
from pathlib import Path

EXTENSIONS = {"_core"}


def main() -> None:
    """Exit with a message unless the installed wheel held what it should."""
    recorded = distribution("torchparquet").files or []
    packaged = {
        file.as_posix()
        for file in recorded
        if not file.parts[0].endswith(".dist-info") and "__pycache__" not in file.parts
    }
    source = Path("python")
    expected = {file.relative_to(source).as_posix() for file in source.rglob("*.py")}
    expected |= {"torchparquet/py.typed", "../../../bin/torchparquet"}
    expected |= {f"torchparquet/_impl/{extension}.pyi" for extension in EXTENSIONS}
    extensions = {name for name in packaged if name.endswith(".so")}
    compiled = {Path(name).name.split(".")[0] for name in extensions}
    bridges = {name for name in compiled if re.fullmatch(r"_arrow_\d{4}", name)}
    if not bridges or compiled - bridges != EXTENSIONS or packaged - extensions != expected:
        sys.exit(f"unexpected in the installed package: {sorted(packaged ^ expected)}")
    print(f"installed: {len(packaged)} files, extensions {sorted(extensions)}")


main()
