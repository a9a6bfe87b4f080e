"""The site: it builds without a warning, and its drawing is that of the plan."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.tree import ROOT
from tests.frameworks.jobs.running import run

DOCS = ROOT / "docs"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the group docs is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")]
    run(command, ROOT)
    api = (tmp_path / "site" / "reference" / "api.html").read_text()
    for name in ("ParquetDataset", "unbatched", "to_padded", "TransformError", "stopping"):
        assert name in api, name


def test_the_drawing_is_that_of_the_plan(monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    from draw_order import order_drawing

    assert (DOCS / "images" / "order.svg").read_text() == order_drawing()
