"""The rooms of python/torchparquet: imports go down, and nowhere round.

A module belongs to the folder that it stands in. Modules of the package's root stand alone: some
are below all rooms (errors), others above (the data set).
"""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "torchparquet"

# From the lowest to the highest. All else about the layers is read from the tree.
ROOMS = (
    *("plan", "files", "tables", "rows", "ranks", "batches", "functions", "reading"),
    *("sequences", "metrics", "session", "mixing"),
)
MOST_MODULES = 12
# They stand on the public package, and nothing of it on them.
ABOVE = ("frameworks", "tools", "cli", "__main__")
EXTENSIONS = {"_core": "native"}
# The command line's own requirements, and the modules that may import them.
SCREEN_LIBRARIES = {"click", "rich", "matplotlib"}
SCREEN_MODULES = ("tools", "cli", "__main__")
# Packages of stores: the room of remote files imports them in functions, for URLs.
STORE_LIBRARIES = {"fsspec", "huggingface_hub"}
# Decoders of images and audio.
MEDIA_LIBRARIES = {"PIL", "soundfile", "torchcodec", "torchvision"}
# The rooms and modules that find and plan data, which must load without torch.
WITHOUT_TORCH = ("plan", "files", "tables", "rows", "errors", "checks")


def module_name(path: Path) -> str:
    """Return the dotted name within the package; `__init__` for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    parts = parts[1:] if parts[0] == "_impl" and len(parts) > 2 else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def imported_names(path: Path) -> set[str]:
    """Return the absolute names that a module imports anywhere, for types only too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports by a relative name"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


PATHS = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
NAMES = {module: imported_names(path) for module, path in PATHS.items()}
KNOWN = {*PATHS, *EXTENSIONS}


def own_module(name: str) -> str:
    """Return the module that an imported name is or is of; `__init__` for public names."""
    parts = name.split(".")[1:]
    ends = range(len(parts), 0, -1)
    return next((found for end in ends if (found := ".".join(parts[:end])) in KNOWN), "__init__")


def own_modules(names: Iterable[str]) -> set[str]:
    return {own_module(name) for name in names if name.split(".")[0] == "torchparquet"}


IMPORTS = {module: own_modules(names) - {module} for module, names in NAMES.items()}


def folder_of(module: str) -> str:
    """Return the folder that a module stands in; a root module is one by itself."""
    if module in PATHS and PATHS[module].name == "__init__.py":
        return module
    return module.rpartition(".")[0] or module


def folder_graph() -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {}
    for module, others in IMPORTS.items():
        folders = {folder_of(other) for other in others} - {folder_of(module)}
        graph.setdefault(folder_of(module), set()).update(folders)
    return graph


def shown(graph: Mapping[str, set[str]]) -> str:
    """Return a graph as lines, the lowest nodes first; raise CycleError where it goes round."""
    order = TopologicalSorter(graph).static_order()
    return "\n".join(f"{node} -> {' '.join(sorted(graph.get(node, ())))}" for node in order)


def test_no_circle_between_files() -> None:
    print(shown(IMPORTS))


def test_no_circle_between_folders() -> None:
    print(shown(folder_graph()))


@pytest.mark.parametrize("module", sorted(PATHS))
def test_imports_go_down(module: str) -> None:
    room = module.split(".")[0]
    for other in IMPORTS[module]:
        above = other.split(".")[0]
        if room in ROOMS and above in ROOMS:
            assert ROOMS.index(above) <= ROOMS.index(room), other
        if room not in ABOVE:
            assert above not in ABOVE, other


def test_rooms_are_seen_at_a_glance() -> None:
    bench = (ROOT / "bench").rglob("*.py")
    folders = {path.parent for path in [*PATHS.values(), *bench]}
    sizes = {
        str(folder): sum(path.name != "__init__.py" for path in folder.glob("*.py"))
        for folder in folders
    }
    assert {name: size for name, size in sizes.items() if size > MOST_MODULES} == {}


@pytest.mark.parametrize(("extension", "importer"), EXTENSIONS.items())
def test_one_module_imports_an_extension(extension: str, importer: str) -> None:
    importers = {module for module, others in IMPORTS.items() if extension in others}
    assert importers == {importer}


def roots(names: Iterable[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def test_third_party_imports() -> None:
    """Data is found and planned without torch; only commands need the command line's packages."""
    known = {"numpy", "torch", "pyarrow", "torchparquet", *sys.stdlib_module_names}
    for module, names in NAMES.items():
        folder = module.split(".")[0]
        if folder == "frameworks":
            continue  # Each module imports its own framework: see below.
        allowed = known | (SCREEN_LIBRARIES if folder in SCREEN_MODULES else set())
        allowed |= {"sqlglot"} if module == "rows.sql" else set()
        allowed |= {"pyiceberg"} if module == "tables.iceberg" else set()
        allowed |= MEDIA_LIBRARIES if module == "functions.decoders" else set()
        allowed |= STORE_LIBRARIES if module.startswith("files.remote.") else set()
        assert roots(names) <= allowed, module
        if folder in WITHOUT_TORCH:
            assert "torch" not in roots(names), module


@pytest.mark.long
def test_the_package_does_without_the_command_line() -> None:
    program = "import sys, torchparquet; print(sorted({n.split('.')[0] for n in sys.modules}))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    loaded = set(ast.literal_eval(done.stdout))
    assert "torchparquet" in loaded
    assert not loaded & SCREEN_LIBRARIES


def test_frameworks_are_imported_in_their_own_modules_only() -> None:
    own = {"accelerate": {"accelerate", "torchdata"}}
    own["transformers"] = {"accelerate", "transformers"}
    own["lightning"] = {"torchparquet_lightning"}
    for path in (PACKAGE / "frameworks").glob("*.py"):
        known = {"torch", "torchparquet", *sys.stdlib_module_names}
        assert roots(imported_names(path)) - known <= own.get(path.stem, set()), path.stem


def test_the_plan_is_pure() -> None:
    names = {name for module in PATHS if module.split(".")[0] == "plan" for name in NAMES[module]}
    language = {
        "__future__",
        "collections",
        "copy",
        "dataclasses",
        "fractions",
        "functools",
        "math",
    }
    assert roots(names) <= language | {"typing", "bisect", "heapq", "numpy", "torchparquet"}
    assert {folder_of(module) for module in own_modules(names)} <= {"plan", "checks"}
    program = """
        import sys, types
        import numpy as np
        import numpy.random
        # The package without the imports of its own module.
        package = sys.modules["torchparquet"] = types.ModuleType("torchparquet")
        package.__path__ = [sys.argv[1]]
        from torchparquet._impl.plan.elastic import Leg, plan_leg
        from torchparquet._impl.plan.epoch_plan import EpochPlan
        from torchparquet._impl.plan.plan_options import PlanOptions
        assert not {"torch", "pyarrow"} & set(sys.modules)
        events = []
        watched = ("open", "os.", "socket.", "subprocess.", "time.sleep", "import", "ctypes.")
        sys.addaudithook(lambda event, _: event.startswith(watched) and events.append(event))
        rows = np.array([3, 9, 50, 7, 11, 6])
        for even in ("split", "drop", "pad", "none"):
            for batch_size in (None, 4):
                options = PlanOptions(
                    batch_size, shuffle=True, shuffle_window=2, world_size=3, even=even
                )
                epoch = EpochPlan(rows, options)
                assert sum(epoch.share(index).total_rows for index in range(3)) > 0
                legs = [Leg(3, 1, batch_size, 1), Leg(2, 1, batch_size, 0)]
                assert plan_leg(rows, options, legs) is not None
        assert not events, events
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(PACKAGE)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
