"""Refuses rooms of many files, and includes of cpp/ that go up, round or past the bridge."""

import re
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

CPP = Path("cpp")
MOST_UNITS = 12
# Alone knows Arrow. It is compiled for each release of pyarrow, so no other room includes it.
KNOWS_ARROW = "bridge/arrow"
KNOWS_PYTHON = "bindings"


def rooms_of_cpp() -> list[str]:
    """Return the folders of cpp/ from the lowest to the highest."""
    text = (CPP / "CMakeLists.txt").read_text()
    listed = re.search(r"set\(TORCHPARQUET_ROOMS\s([^)]*)\)", text)
    assert listed is not None  # noqa: S101
    rooms = listed[1].split()
    return [*rooms[:2], KNOWS_ARROW, *rooms[2:], KNOWS_PYTHON]


def includes(path: Path) -> list[str]:
    """Return what a file includes."""
    pattern = r'^\s*#\s*include\s*[<"]([^">]+)[">]'
    return re.findall(pattern, path.read_text(), re.MULTILINE)


def faults_of_sizes() -> list[str]:
    """Return the folders that hold too many units: modules, or headers with their sources."""
    units: dict[Path, set[str]] = {}
    for root in (Path("python"), Path("bench"), CPP):
        for path in root.rglob("*"):
            is_source = path.suffix in {".py", ".h", ".cc"} and path.name != "__init__.py"
            if is_source and "tests" not in path.parts:
                units.setdefault(path.parent, set()).add(path.stem)
    return [
        f"a room holds at most {MOST_UNITS} files: {folder} has {len(names)}"
        for folder, names in sorted(units.items())
        if len(names) > MOST_UNITS
    ]


def faults_of_cpp() -> list[str]:
    """Return the includes that no room may have."""
    rooms, faults = rooms_of_cpp(), []
    files = {str(path.relative_to(CPP)): path for path in sorted(CPP.rglob("*.[hc]*"))}
    files = {name: path for name, path in files.items() if "tests" not in path.parts}
    files = {name: path for name, path in files.items() if path.suffix in {".h", ".cc"}}
    known = {path.name for path in files.values()}
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        room = str(Path(name).parent)
        for header in includes(path):
            is_arrow = header.startswith(("arrow/", "parquet/"))
            is_python = header.startswith(("pybind11/", "Python.h"))
            if header in files:
                above = str(Path(header).parent)
                if rooms.index(above) > rooms.index(room) or header.endswith(".cc"):
                    faults.append(f"{name} includes {header}, which stands above it")
                if room == KNOWS_ARROW and above not in (KNOWS_ARROW, "bridge"):
                    faults.append(f"{name} includes {header}, and may include the bridge alone")
                unit, other = (Path(of).with_suffix("").as_posix() for of in (name, header))
                graph.setdefault(unit, set()).update({other} - {unit})
            elif (is_arrow and room != KNOWS_ARROW) or (is_python and room != KNOWS_PYTHON):
                faults.append(f"{name} includes {header}, which its room must not know")
            elif not is_arrow and Path(header).name in known:
                faults.append(f"{name} includes {header} by another path than that from cpp/")
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        faults.append(f"includes go round: {error.args[1]}")
    return faults


faults = faults_of_sizes() + faults_of_cpp()
if faults:
    sys.exit("\n".join(faults))
