"""The layers: C++ files include downwards only."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CPP = ROOT / "cpp"

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
LAYER_OF = {unit: number for number, units in enumerate(CPP_LAYERS.values()) for unit in units}


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
