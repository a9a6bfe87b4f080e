"""Functions are short enough to read in one piece."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_LINES = 80


def lines_of_functions(path: Path) -> dict[str, int]:
    """Return the lines of each function from `def` to its end, docstring aside."""
    lines = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = 0 if ast.get_docstring(node) is None else num_lines(node.body[0])
            lines[f"{node.name}, line {node.lineno}"] = num_lines(node) - docstring
    return lines


def num_lines(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


@pytest.mark.parametrize("folder", ["python", "tests", "bench", "examples"])
def test_functions_are_short(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    long = {
        f"{path.relative_to(ROOT)}: {name}": lines
        for path in paths
        for name, lines in lines_of_functions(path).items()
        if lines > MOST_LINES
    }
    assert long == {}
