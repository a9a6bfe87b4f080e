"""The layers: C++ and Python files import downwards only."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CPP = ROOT / "cpp"
PACKAGE = ROOT / "python" / "torchparquet"

# From the lowest to the highest. A file includes what stands in a lower layer or, without
# going round, in its own.
CPP_LAYERS = {
    "errors": ["ceil_divide", "errors"],
    "scratch": ["page_codec", "scratch", "task_costs"],
    "kernels": sorted({f"kernels/{path.stem}" for path in (CPP / "kernels").iterdir()}),
    "layout": ["layout"],
    "memory": ["jagged", "reader_memory", "scratch_pool", "slab_pool"],
    "cursor": ["chunk_cursor", "epoch_ledger"],
    "other threads": ["gloo_threads"],
    "source": ["byte_window", "source"],
    "column decoder": [
        "byte_array_values",
        "column_pages",
        "column_reader",
        "column_target",
        "compact_reader",
        "declared_lengths",
        "decrypted_pages",
        "decryption",
        "encoded_reader",
        "fallback_reader",
        "fixed_bytes_dictionary",
        "fixed_list_reader",
        "flat_reader",
        "flat_table",
        "footer",
        "footer_scan",
        "footers",
        "item_appender",
        "jagged_reader",
        "known_schemas",
        "level_blocks",
        "open_column",
        "page_header",
        "page_values",
        "parquet_file",
        "parquet_files",
        "row_walk",
        "schema",
        "segment_writer",
        "value_reader",
        "value_source",
        "vocabulary",
    ],
    "batch ring": ["batch_ring", "memory_plan", "share"],
    "parallel reader": [
        "open_window",
        "parallel_reader",
        "reader_costs",
        "reader_plan",
        "reader_spec",
        "slice_queue",
        "slice_stream",
        "slice_tasks",
        "task_parts",
        "task_source",
        "waits",
        "window_cells",
        "window_items",
        "window_places",
        "window_queue",
        "window_stream",
        "window_tasks",
    ],
    "bindings": [
        "bindings/batch_objects",
        "bindings/batch_reader",
        "bindings/data_files",
        "bindings/file_keys",
        "bindings/exceptions",
        "bindings/held_contents",
        "bindings/module",
        "bindings/reader_stats",
        "bindings/share_arrays",
        "bindings/specs",
        "bindings/without_gil",
    ],
}
# Compiled and tested without the Arrow libraries, all that they include too.
WITHOUT_ARROW = {
    "batch_ring",
    "byte_window",
    "ceil_divide",
    "chunk_cursor",
    "compact_reader",
    "epoch_ledger",
    "errors",
    "footer_scan",
    "gloo_threads",
    "jagged",
    "layout",
    "memory_plan",
    "page_header",
    "share",
    "slab_pool",
    "source",
    "task_costs",
    *CPP_LAYERS["kernels"],
    *CPP_LAYERS["parallel reader"],
}
PYTHON_LAYERS = [
    [
        "errors",
        "_pyarrow",
        "jagged",
        "second_sharding",
        "bottleneck",
        "wait_ranges",
        "interpreter_exit",
        "_core",
        "_decryption",
    ],
    ["metrics"],
    ["read_totals"],
    ["plan_options", "ranges", "draws"],
    ["share"],
    ["division", "order", "windows"],
    ["plan"],
    ["elastic"],
    ["column", "columns", "discovery", "fields", "memory_files", "options", "schemas", "sharding"],
    ["packed_items", "tensors", "row_places", "mix_order"],
    ["hand_over", "reader_arguments"],
    ["batch_rows", "mix_sources", "mix_state"],
    ["reader"],
    ["decryption", "forks"],
    ["epochs", "manifest"],
    ["manifest_cache"],
    ["stream_parts", "transforms", "delivered_rows"],
    ["costs", "distribution", "filters", "state", "streams", "window_limits"],
    ["row_sources", "mixture", "row_mixing", "batch_mixing", "rows"],
    ["planner"],
    ["iteration", "origins", "progress"],
    ["agreement"],
    ["membership"],
    ["rank_check"],
    ["dynamic"],
    ["iteration_source", "row_iteration"],
    ["unbatched"],
    ["dataset", "mixing"],
    ["audit", "plan_report", "row_audit", "screen"],
    ["__init__"],
    ["inspection.column_chunks", "inspection.tensors", "frameworks.loaders"],
    ["inspection.pages", "inspection.advice", "frameworks.accelerate", "frameworks.metrics"],
    ["frameworks.lightning"],
    ["inspection", "frameworks.transformers", "frameworks"],
    [
        "verification.decoding",
        "verification.exactly_once",
        "timing.consumption",
        "rewriting.options",
        "rewriting.schemas",
        "demo.data",
        "demo.totals",
    ],
    ["timing.routes", "rewriting.input_rows", "rewriting.journal", "demo.job"],
    ["rewriting.shuffling", "rewriting.output_files", "demo.display", "demo.launch", "demo.report"],
    ["verification", "timing", "rewriting", "demo.train", "demo"],
    ["cli.arguments", "cli.plots"],
    ["cli.inspect", "cli.plan", "cli.verify", "cli.bench", "cli.rewrite", "cli.demo"],
    ["cli", "__main__"],
]
# What the command line needs beside the package's own requirements, and who may.
SCREEN_LIBRARIES = {"click", "rich", "duckdb", "matplotlib", "plotly"}
SCREEN_MODULES = ("screen", "__main__", "cli", "demo")

LAYER_OF = {unit: number for number, units in enumerate(CPP_LAYERS.values()) for unit in units}
PYTHON_LAYER_OF = {
    module: number for number, modules in enumerate(PYTHON_LAYERS) for module in modules
}


def cpp_files() -> dict[str, Path]:
    """Every source file by its path within cpp/; the tests there are above all layers."""
    paths = [path for path in CPP.rglob("*") if path.suffix in {".h", ".cc"}]
    files = {str(path.relative_to(CPP)): path for path in paths}
    return {name: path for name, path in files.items() if not name.startswith("tests/")}


def includes_of(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*[<"]([^">]+)[">]', path.read_text(), re.MULTILINE)


CPP_FILES = cpp_files()
INCLUDES = {name: includes_of(path) for name, path in CPP_FILES.items()}


def unit_of(name: str) -> str:
    return name.rsplit(".", 1)[0]


def own_file(name: str, included: str) -> str | None:
    """The name within cpp/ of an included file of ours."""
    beside = str(Path(name).parent / included)
    return next((known for known in (included, beside) if known in CPP_FILES), None)


def own_includes(name: str) -> list[str]:
    return [own for included in INCLUDES[name] if (own := own_file(name, included))]


def reached(name: str) -> set[str]:
    """Every header, ours or not, that the file includes itself or through others."""
    found, pending = set(), [name]
    while pending:
        current = pending.pop()
        for included in INCLUDES[current]:
            own = own_file(current, included)
            if own is None:
                found.add(included)
            elif own not in found:
                found.add(own)
                pending.append(own)
    return found


def is_arrow(header: str) -> bool:
    return header.startswith(("arrow/", "parquet/"))


# C++


def test_every_cpp_file_has_a_layer():
    assert {unit_of(name) for name in CPP_FILES} == set(LAYER_OF)


@pytest.mark.parametrize("name", CPP_FILES)
def test_cpp_includes_go_down(name):
    unit = unit_of(name)
    for included in own_includes(name):
        assert LAYER_OF[unit_of(included)] <= LAYER_OF[unit], included


def test_cpp_includes_do_not_go_round():
    graph: dict[str, set[str]] = {}
    for name in CPP_FILES:
        others = {unit_of(included) for included in own_includes(name)} - {unit_of(name)}
        graph.setdefault(unit_of(name), set()).update(others)
    assert list(TopologicalSorter(graph).static_order())


def test_only_source_files_are_included():
    included = {header for headers in INCLUDES.values() for header in headers}
    assert not [header for header in included if header.endswith((".cc", ".cpp"))]


def test_only_bindings_know_python():
    for name, headers in INCLUDES.items():
        knows = [header for header in headers if header.startswith(("pybind11/", "Python.h"))]
        assert not knows or name.startswith("bindings/"), name


def test_headers_do_not_know_arrow():
    for name, headers in INCLUDES.items():
        assert name.endswith(".cc") or not any(map(is_arrow, headers)), name


@pytest.mark.parametrize("unit", sorted(WITHOUT_ARROW))
def test_kernels_and_machinery_do_without_arrow(unit):
    names = [name for name in CPP_FILES if unit_of(name) == unit]
    assert names
    for name in names:
        assert not any(map(is_arrow, reached(name)))
        assert "arrow::" not in CPP_FILES[name].read_text()


def test_bindings_know_no_arrow_and_decode_threads_no_python():
    for name in CPP_FILES:
        if name.startswith("bindings/"):
            assert not any(map(is_arrow, INCLUDES[name])), name
        else:
            assert not re.search(r"\bPy(Gil|GIL|Obj|Err|Eval)", CPP_FILES[name].read_text()), name


# Python


def imports_of(path: Path) -> dict[str, set[str]]:
    """What a module imports when it runs: {"top": …, "any": …}; not what only types need."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    return {"top": _names(tree.body), "any": _names(list(ast.walk(tree)))}


def _names(nodes: list[ast.AST]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            # What is imported may be a module of the one named; `own_module` tells.
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def module_name(path: Path) -> str:
    """Its dotted name within the package; that of a package for its `__init__`."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {module_name(path): imports_of(path) for path in PACKAGE.rglob("*.py")}


def own_module(name: str) -> str:
    """The module of the package that an imported name is or is of; `__init__` for public names."""
    parts = name.split(".")[1:]
    known = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((module for module in known if module in PYTHON_LAYER_OF), "__init__")


def own_modules(names: set[str]) -> set[str]:
    return {own_module(name) for name in names if name.split(".")[0] == "torchparquet"}


def test_every_module_has_a_layer():
    assert set(MODULES) == set(PYTHON_LAYER_OF) - {"_core", "_decryption"}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_python_imports_go_down(module):
    for other in own_modules(MODULES[module]["any"]):
        assert PYTHON_LAYER_OF[other] <= PYTHON_LAYER_OF[module], other


def test_python_imports_do_not_go_round():
    graph = {module: own_modules(imports["any"]) for module, imports in MODULES.items()}
    assert list(TopologicalSorter(graph).static_order())


@pytest.mark.parametrize(
    ("extension", "importer"), [("_core", "reader"), ("_decryption", "decryption")]
)
def test_one_module_imports_an_extension(extension, importer):
    importers = {module for module in MODULES if extension in own_modules(MODULES[module]["any"])}
    assert importers == {importer}


def test_third_party_imports():
    """The data planning needs no torch; the command line's packages are nowhere else needed."""
    known = {"numpy", "torch", "pyarrow", "torchparquet"}
    for module, imports in MODULES.items():
        roots = {name.split(".")[0] for name in imports["any"]} - set(sys.stdlib_module_names)
        folder = module.split(".")[0]
        if folder == "frameworks":
            continue  # Each module imports its own framework: the test below.
        on_screen = folder in SCREEN_MODULES
        assert roots <= known | (SCREEN_LIBRARIES if on_screen else set()), module
    planning = (*PLAN, "discovery", "memory_files", "schemas", "manifest", "options", "errors")
    for module in planning:
        assert "torch" not in {name.split(".")[0] for name in MODULES[module]["any"]}, module


def test_the_package_does_without_the_command_line():
    program = "import sys, torchparquet; print(sorted({n.split('.')[0] for n in sys.modules}))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    loaded = set(ast.literal_eval(done.stdout))
    assert "torchparquet" in loaded
    assert not loaded & SCREEN_LIBRARIES


def test_frameworks_are_imported_in_their_own_modules_only():
    """And nothing else imports these modules, so that `import torchparquet` needs none."""
    own = {"accelerate": {"accelerate", "torchdata"}, "transformers": {"transformers"}}
    for path in (PACKAGE / "frameworks").glob("*.py"):
        roots = {name.split(".")[0] for name in imports_of(path)["any"]}
        known = {"torch", "torchparquet", *sys.stdlib_module_names}
        assert roots - known <= own.get(path.stem, set()), path.stem
    for module, imports in MODULES.items():
        within = module.split(".")[0] == "frameworks"
        assert within or not any(".frameworks" in name for name in imports["any"]), module


PLAN = ("plan_options", "ranges", "share", "division", "order", "windows", "plan", "elastic")


def test_the_plan_is_pure():
    imports = set().union(*(MODULES[module]["any"] for module in PLAN))
    language = {"__future__", "collections", "copy", "dataclasses", "functools", "typing"}
    allowed = language | {"bisect", "heapq", "numpy", "torchparquet"}
    assert {name.split(".")[0] for name in imports} <= allowed
    assert own_modules(imports) <= set(PLAN)
    program = """
        import sys, types
        import numpy as np
        import numpy.random
        # The package without what its own module imports.
        package = sys.modules["torchparquet"] = types.ModuleType("torchparquet")
        package.__path__ = [sys.argv[1]]
        from torchparquet.elastic import Leg, plan_leg
        from torchparquet.plan import EpochPlan
        from torchparquet.plan_options import PlanOptions
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
