"""Fixtures for all tests of frameworks: data, and installed frameworks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.tree import ROOT
from tests.frameworks.jobs.recorded import ids_of, write_data
from tests.frameworks.jobs.running import JOB_SECONDS, python, run

HERE = Path(__file__).parent
sys.path.insert(0, str(ROOT / "examples"))
from clicks import open_clicks  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow several jobs a test."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(4 * JOB_SECONDS))


@pytest.fixture(scope="session")
def data(tmp_path_factory: Any) -> Path:
    return write_data(tmp_path_factory.mktemp("frameworks"))


@pytest.fixture(scope="session")
def clicks(tmp_path_factory: Any) -> Any:
    """The click log of the examples: 20,000 rows in row groups of several sizes."""
    directory = tmp_path_factory.mktemp("examples") / "clicks"
    run(python("examples/clicks.py", directory), directory.parent)
    return directory


@pytest.fixture(scope="session")
def shares(clicks: Path) -> list[list[list[list[int]]]]:
    """The rows of each batch that a bare loop reads, by rank of two and by epoch."""
    ranks = [open_clicks(str(clicks), batch_size=256, rank=rank, world_size=2) for rank in (0, 1)]
    return [[ids_of(rank) for _ in range(2)] for rank in ranks]
