"""C++ files include files of their own room and of rooms below it, and never in a circle."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

CPP = Path(__file__).parents[2] / "cpp"

# Alone knows Arrow. It is compiled for each release of pyarrow, so no other room includes it.
KNOWS_ARROW = "bridge/arrow"
MAX_UNITS = 12


def rooms() -> list[str]:
    """The folders of cpp/ from the lowest to the highest; "." is cpp/ itself."""
    listed = re.search(r"set\(TORCHPARQUET_ROOMS\s([^)]*)\)", (CPP / "CMakeLists.txt").read_text())
    assert listed is not None
    listed_rooms = listed[1].split()
    return [*listed_rooms[:2], KNOWS_ARROW, *listed_rooms[2:], "bindings"]


ROOMS = rooms()
FILES = {
    str(path.relative_to(CPP)): path
    for path in sorted(CPP.rglob("*"))
    if path.suffix in {".h", ".cc"} and "tests" not in path.parts
}
INCLUDES = {
    name: re.findall(r'^\s*#\s*include\s*[<"]([^">]+)[">]', path.read_text(), re.MULTILINE)
    for name, path in FILES.items()
}


def unit_of(name: str) -> str:
    """A header and its source are one unit."""
    return name.rsplit(".", 1)[0]


def room_of(name: str) -> str:
    return str(Path(name).parent)


UNITS = sorted({unit_of(name) for name in FILES})


def own_includes(name: str) -> list[str]:
    return [included for included in INCLUDES[name] if included in FILES]


def unit_graph() -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {unit: set() for unit in UNITS}
    for name in FILES:
        graph[unit_of(name)].update(map(unit_of, own_includes(name)))
    return {unit: others - {unit} for unit, others in graph.items()}


def room_graph() -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {room: set() for room in ROOMS}
    for unit, others in unit_graph().items():
        graph[room_of(unit)].update(map(room_of, others))
    return {room: others - {room} for room, others in graph.items()}


def reached(name: str) -> set[str]:
    """Every header that the file includes, directly or through others."""
    found: set[str] = set()
    pending = [name]
    while pending:
        for included in set(INCLUDES.get(pending.pop(), ())) - found:
            found.add(included)
            pending.append(included)
    return found


def is_arrow(header: str) -> bool:
    return header.startswith(("arrow/", "parquet/"))


def test_every_folder_is_a_room() -> None:
    assert {room_of(name) for name in FILES} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_holds_few_units(room: Any) -> None:
    units = [unit for unit in UNITS if room_of(unit) == room]
    assert 0 < len(units) <= MAX_UNITS


@pytest.mark.parametrize("name", FILES)
def test_includes_go_down(name: Any) -> None:
    for included in own_includes(name):
        assert ROOMS.index(room_of(included)) <= ROOMS.index(room_of(name)), included


def test_includes_do_not_go_round() -> None:
    """Shown by `pytest -s`: each room with the rooms that it includes from."""
    assert list(TopologicalSorter(unit_graph()).static_order())
    graph = room_graph()
    assert list(TopologicalSorter(graph).static_order())
    for room in ROOMS:
        print(f"{room}: {' '.join(sorted(graph[room], key=ROOMS.index)) or '-'}")


def test_own_files_are_named_by_their_path() -> None:
    """Includes relative to the folder of the file would escape these tests."""
    known = {Path(name).name for name in FILES}
    for name, headers in INCLUDES.items():
        for header in headers:
            named_by_path = header in FILES or is_arrow(header)
            assert named_by_path or Path(header).name not in known, (name, header)


def test_only_headers_are_included() -> None:
    included = {header for headers in INCLUDES.values() for header in headers}
    assert not [header for header in included if header.endswith((".cc", ".cpp"))]


def test_only_bindings_know_python() -> None:
    for name, headers in INCLUDES.items():
        if room_of(name) == "bindings":
            assert not any(map(is_arrow, headers)), name
        else:
            knows = [header for header in headers if header.startswith(("pybind11/", "Python.h"))]
            assert not knows, name
            assert not re.search(r"\bPy(Gil|GIL|Obj|Err|Eval)", FILES[name].read_text()), name


@pytest.mark.parametrize("unit", [unit for unit in UNITS if room_of(unit) != KNOWS_ARROW])
def test_one_room_knows_arrow(unit: Any) -> None:
    for name in FILES:
        if unit_of(name) == unit:
            assert not any(map(is_arrow, reached(name)))
            assert not re.search(r"\b(arrow|parquet)::", FILES[name].read_text())


def test_the_room_that_knows_arrow_needs_the_interface_alone() -> None:
    graph = room_graph()
    assert graph[KNOWS_ARROW] == {"bridge"}
    assert not [room for room, others in graph.items() if KNOWS_ARROW in others]


def test_no_exception_passes_the_c_library() -> None:
    """Without memory glibc ends the process; `once.h` tells why."""
    for name in FILES:
        assert name == "once.h" or "call_once" not in FILES[name].read_text(), name


def test_tests_stand_in_the_room_of_their_unit() -> None:
    for path in (CPP / "tests").rglob("*_test.cc"):
        tested = str(path.relative_to(CPP / "tests").with_suffix("")).removesuffix("_test")
        same_room = [unit for unit in UNITS if room_of(unit) == room_of(tested)]
        assert any(tested.startswith(unit) for unit in same_room), tested
